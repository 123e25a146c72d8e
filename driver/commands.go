package driver

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ftplockd/ftplockd/control"
)

// command is one verb: who may say it, and what it does.
type command struct {
	open  bool   // before login, too
	param bool   // a bare one is 501: ftpserverlib would act on the current directory
	usage string // for HELP
	run   func(*session, control.Command) control.Decision
}

// allCommands is every verb that the server knows (RFC 959, 1123, 2228, 2389, 2428, 3659, 4217 and drafts).
func allCommands() map[string]command {
	passed := func(line string) func(*session, control.Command) control.Decision {
		return func(*session, control.Command) control.Decision { return control.Pass(line) }
	}
	fixed := func(code int, text string) func(*session, control.Command) control.Decision {
		return func(*session, control.Command) control.Decision { return reply(code, text) }
	}
	acquire := command{param: true, usage: "path: take the lock of that name, or make a directory", run: (*session).mkd}
	release := command{param: true, usage: "path: give the lock back, or remove an empty directory", run: (*session).rmd}
	pwd := command{usage: ": the current directory", run: (*session).pwd}
	cwd := command{param: true, usage: "path: change the current directory", run: (*session).cwdCommand}
	up := command{usage: ": change to the directory above", run: (*session).cdup}
	all := map[string]command{
		"USER": {open: true, param: true, usage: "name", run: (*session).userCommand},
		"PASS": {open: true, usage: "password", run: (*session).passCommand},
		"ACCT": {open: true, usage: "account", run: fixed(202, "no account is needed")},
		"REIN": {open: true, usage: ": log out", run: (*session).reinCommand},
		"QUIT": {open: true, usage: ": good bye", run: passed("QUIT")},
		"AUTH": {open: true, param: true, usage: "TLS", run: (*session).authCommand},
		"PBSZ": {open: true, param: true, usage: "0", run: (*session).pbszCommand},
		"PROT": {open: true, param: true, usage: "P or C", run: (*session).protCommand},
		"FEAT": {open: true, usage: ": what this server knows", run: (*session).feat},
		"HELP": {open: true, usage: "[command]", run: (*session).help},
		"SYST": {open: true, usage: ": the kind of system", run: fixed(215, "UNIX Type: L8")},
		"NOOP": {open: true, usage: ": a sign of life", run: fixed(200, "OK")},
		"CLNT": {open: true, usage: "name and version", run: fixed(200, "good to know")},
		"OPTS": {open: true, param: true, usage: "UTF8 ON, or MLST facts", run: (*session).opts},
		"STAT": {open: true, usage: "[path]", run: (*session).stat},

		"MKD": acquire, "XMKD": acquire, "RMD": release, "XRMD": release,
		"PWD": pwd, "XPWD": pwd, "CWD": cwd, "XCWD": cwd, "CDUP": up, "XCUP": up,
		"SITE": {param: true, usage: "command: see SITE HELP", run: (*session).site},

		"DELE": {param: true, usage: "path: remove a file", run: (*session).dele},
		"RNFR": {param: true, usage: "path: what to rename", run: (*session).rnfr},
		"RNTO": {param: true, usage: "path: its new name", run: (*session).rnto},
		"SIZE": {param: true, usage: "path: bytes of a file", run: (*session).size},
		"MDTM": {param: true, usage: "path: when it was modified, or a lock acquired", run: (*session).mdtm},
		"MFMT": {param: true, usage: "time path: set the modification time", run: (*session).mfmt},
		"MLST": {usage: "[path]: facts about it", run: (*session).mlst},
		"HASH": {param: true, usage: "path: its digest, see OPTS HASH", run: (*session).hashCommand},
		"COMB": {param: true, usage: "path parts: append the parts to the file, and remove them", run: (*session).comb},
		"AVBL": {usage: "[path]: bytes available", run: (*session).avbl},

		"TYPE": {param: true, usage: "A or I", run: (*session).typeCommand},
		"MODE": {param: true, usage: "S", run: only("S", "only stream mode is known")},
		"STRU": {param: true, usage: "F", run: only("F", "only file structure is known")},
		"ALLO": {param: true, usage: "bytes: how long the next upload will be", run: (*session).allo},
		"REST": {param: true, usage: "offset: where the next transfer begins", run: (*session).restCommand},
		"PASV": {usage: ": passive data connection", run: (*session).pasv},
		"EPSV": {usage: "[1, 2 or ALL]", run: (*session).epsv},
		"PORT": {param: true, usage: "h1,h2,h3,h4,p1,p2", run: (*session).portCommand},
		"EPRT": {param: true, usage: "|family|address|port|", run: (*session).eprt},
		"ABOR": {usage: ": end the transfer", run: (*session).abor},

		"RETR": {param: true, usage: "path: download", run: (*session).retr},
		"STOR": {param: true, usage: "path: upload", run: (*session).stor},
		"APPE": {param: true, usage: "path: upload to its end", run: (*session).appe},
		"STOU": {usage: "[path]: upload under a free name", run: (*session).stou},
		"LIST": {usage: "[-al] [path]", run: (*session).list},
		"NLST": {usage: "[path]", run: (*session).nlst},
		"MLSD": {usage: "[path]", run: (*session).mlsd},
	}
	for verb := range hashVerbs {
		all[verb] = command{param: true, usage: "path: its digest", run: (*session).xhash}
	}
	for _, verb := range []string{"SMNT", "CCC", "LANG", "HOST", "ADAT", "MIC", "CONF", "ENC"} {
		all[verb] = command{open: true, run: fixed(502, "this server does not know "+verb)}
	}
	return all
}

// only is a command that has one argument it takes.
func only(value, otherwise string) func(*session, control.Command) control.Decision {
	return func(_ *session, cmd control.Command) control.Decision {
		if strings.EqualFold(strings.TrimSpace(cmd.Param), value) {
			return reply(200, "OK")
		}
		return reply(504, otherwise)
	}
}

// typeCommand is TYPE (RFC 959 section 3.1.1).
func (s *session) typeCommand(cmd control.Command) control.Decision {
	switch strings.ToUpper(strings.Join(strings.Fields(cmd.Param), " ")) {
	case "A", "A N":
		s.ascii = true
		return reply(200, "ASCII: line ends are converted")
	case "I", "L 8", "L8":
		s.ascii = false
		return reply(200, "binary")
	}
	return reply(504, "TYPE A or TYPE I")
}

// allo is ALLO (RFC 959 section 4.1.3): "n" or "n R m". What it announces an upload in binary type must reach.
func (s *session) allo(cmd control.Command) control.Decision {
	fields := strings.Fields(cmd.Param)
	if len(fields) != 1 && (len(fields) != 3 || !strings.EqualFold(fields[1], "R")) {
		return reply(501, "ALLO wants a number of bytes")
	}
	n, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || n < 0 {
		return reply(501, "ALLO wants a number of bytes")
	}
	if available, err := s.client.GetAvailableSpace(s.cwd); err == nil && available < n {
		return reply(452, "there is no space for so many bytes")
	}
	s.allocated = n
	return reply(200, "announced")
}

// restCommand is REST (RFC 3659 section 5): a count of bytes as they lie on disk.
func (s *session) restCommand(cmd control.Command) control.Decision {
	n, err := strconv.ParseInt(strings.TrimSpace(cmd.Param), 10, 64)
	if err != nil || n < 0 {
		return reply(501, "REST wants a number of bytes, 0 or more")
	}
	s.rest, s.restSet = n, n > 0
	return reply(350, "the next transfer begins at "+strconv.FormatInt(n, 10))
}

// feat is FEAT (RFC 2389). "STOR STAGED" says that a file is published by one rename when its upload is complete, so that a client need
// not do that itself; the lines with SITE tell of the commands for locks.
func (s *session) feat(control.Command) control.Decision {
	lines := []string{"CLNT", "COMB", "EPRT", "EPSV", "MDTM", "MFMT", s.facts.feature(), "REST STREAM", "SIZE", "TVFS", "UTF8", "AVBL",
		"SITE LOCK", "SITE LOCKS", "SITE WAIT", "STOR STAGED"}
	if s.server.tls != nil {
		lines = append(lines, "AUTH TLS", "PBSZ", "PROT")
	}
	lines = append(lines, s.hashFeature())
	for verb := range hashVerbs {
		lines = append(lines, verb)
	}
	slices.Sort(lines)
	for i, l := range lines {
		lines[i] = " " + l
	}
	return control.Answer(control.Reply{Code: 211, Text: "Features:", Lines: lines})
}

// opts is OPTS (RFC 2389): names are bytes here, so UTF8 changes nothing.
func (s *session) opts(cmd control.Command) control.Decision {
	what, rest, _ := strings.Cut(strings.TrimSpace(cmd.Param), " ")
	switch strings.ToUpper(what) {
	case "UTF8", "UTF-8":
		return reply(200, "names are bytes, as they are")
	case "MLST":
		s.facts = parseFacts(rest)
		return reply(200, strings.TrimSpace("MLST OPTS "+s.facts.String()))
	case "HASH":
		return s.optsHash(strings.TrimSpace(rest))
	}
	return reply(501, "OPTS UTF8, OPTS MLST or OPTS HASH")
}

// help is HELP. Net::FTP looks here for ALLO, and announces the length of its uploads if it finds it.
func (s *session) help(cmd control.Command) control.Decision {
	if verb := strings.ToUpper(strings.TrimSpace(cmd.Param)); verb != "" {
		c, ok := s.server.commands[verb]
		if !ok || c.usage == "" {
			return reply(502, "unknown command "+quoted(verb))
		}
		return reply(214, "Syntax: "+strings.TrimSuffix(verb+" "+c.usage, " "))
	}
	var verbs []string
	for verb, c := range s.server.commands {
		if c.usage != "" {
			verbs = append(verbs, verb)
		}
	}
	slices.Sort(verbs)
	var lines []string
	for row := range slices.Chunk(verbs, 8) {
		lines = append(lines, " "+strings.Join(row, " "))
	}
	return control.Answer(control.Reply{Code: 214, Text: "The following commands are recognized:", Lines: lines, End: "SITE HELP tells of the locks"})
}

// stat is STAT: of the session, or of a path as LIST would show it (RFC 959 section 4.1.3).
func (s *session) stat(cmd control.Command) control.Decision {
	if strings.TrimSpace(cmd.Param) == "" {
		return s.statSession()
	}
	if s.client == nil {
		return reply(530, "please log in with USER and PASS")
	}
	content, view, err := s.listing(cmd.Param, formatLong)
	if err != nil {
		return s.refuse(view, err)
	}
	var lines []string
	for l := range strings.SplitSeq(strings.TrimSuffix(string(content), "\r\n"), "\r\n") {
		if l != "" {
			lines = append(lines, " "+l)
		}
	}
	return control.Answer(control.Reply{Code: 213, Text: "Status of " + view + ":", Lines: lines, End: "End of status"})
}

func (s *session) statSession() control.Decision {
	kind := map[bool]string{true: "ASCII", false: "binary"}[s.ascii]
	lines := []string{" connected from " + address(s.conn.RemoteAddr()), " type " + kind}
	if s.client == nil {
		lines = append(lines, " not logged in")
	} else {
		lines = append(lines, " logged in as "+s.client.account.Name, " in "+s.cwd)
	}
	s.mu.Lock()
	t := s.transfer
	s.mu.Unlock()
	if t != nil {
		lines = append(lines, " transferring "+t.path())
	}
	return control.Answer(control.Reply{Code: 211, Text: "ftplockd", Lines: lines, End: "End of status"})
}
