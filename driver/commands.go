package driver

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/files"
	"github.com/ftplockd/ftplockd/lock"
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
	for _, verb := range []string{"SMNT", "CCC", "COMB", "LANG", "HOST", "ADAT", "MIC", "CONF", "ENC"} {
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

// mkd is MKD: acquire.
func (s *session) mkd(cmd control.Command) control.Decision {
	view, err := s.abs(cmd.Param)
	if err != nil {
		return s.refuse("", err)
	}
	client := s.client
	m, err := client.make(s.context(), view)
	if err != nil {
		return s.refuse(view, err)
	}
	r := control.Reply{Code: 257, Text: quotedPath(view) + " created"}
	if m.lock {
		r.Text = quotedPath(view) + s.granted(m.hold)
		r.Undelivered = func() { s.undeliver(client, m) }
	}
	return control.Answer(r)
}

// quotedPath is a path as RFC 959 page 63 and appendix II have it: in quotes, quotes in it doubled.
func quotedPath(view string) string { return `"` + strings.ReplaceAll(view, `"`, `""`) + `"` }

// granted is what stands behind the path in the 257 of a lock. There is no quote in it: Net::FTP's
// pattern for the path goes to the last one.
func (s *session) granted(h lock.Hold) string {
	if h.Rule.MaxAge == 0 {
		return " locked, token " + strconv.FormatUint(uint64(h.Token), 10) + ", never expires"
	}
	left := h.Rule.MaxAge - (s.server.clock.Now().Boot - h.Renewed.Boot)
	return " locked, token " + strconv.FormatUint(uint64(h.Token), 10) + ", expires in " + max(0, left).Round(time.Second).String()
}

// undeliver takes back a grant of which the client cannot have heard.
func (s *session) undeliver(c *client, m made) {
	err := c.locks.Undo(context.WithoutCancel(s.context()), m.name, m.hold.Token)
	if err != nil && !errors.Is(err, lock.ErrStale) && !errors.Is(err, lock.ErrNotHeld) {
		s.log.Error("could not take back a grant that was not delivered", "name", string(m.name), "token", m.hold.Token, "err", err)
	}
}

// rmd is RMD: release.
func (s *session) rmd(cmd control.Command) control.Decision {
	view, err := s.abs(cmd.Param)
	if err != nil {
		return s.refuse("", err)
	}
	wasLock, err := s.client.unmake(s.context(), view)
	switch {
	case err != nil:
		return s.refuse(view, err)
	case wasLock:
		return reply(250, view+" released")
	}
	return reply(250, view+" removed")
}

func (s *session) pwd(control.Command) control.Decision { return reply(257, quotedPath(s.cwd)) }

func (s *session) cwdCommand(cmd control.Command) control.Decision { return s.changeTo(cmd.Param) }

func (s *session) cdup(control.Command) control.Decision { return s.changeTo("..") }

func (s *session) changeTo(param string) control.Decision {
	return s.withPath(param, 250, "is the current directory", func(view string) error {
		if err := s.client.enter(view); err != nil {
			return err
		}
		s.cwd = view
		return nil
	})
}

func (s *session) dele(cmd control.Command) control.Decision {
	return s.withPath(cmd.Param, 250, "removed", func(view string) error { return s.client.delete(s.context(), view) })
}

func (s *session) rnfr(cmd control.Command) control.Decision {
	s.renameFrom = ""
	return s.withPath(cmd.Param, 350, "is there: now RNTO", func(view string) error {
		err := s.client.mayMoveFrom(view)
		if err == nil {
			s.renameFrom = view
		}
		return err
	})
}

func (s *session) rnto(cmd control.Command) control.Decision {
	from := s.renameFrom
	s.renameFrom = ""
	if from == "" {
		return reply(503, "RNFR comes before RNTO")
	}
	return s.withPath(cmd.Param, 250, "is the new name", func(view string) error {
		return s.client.move(s.context(), from, view)
	})
}

// size is SIZE (RFC 3659 section 4): bytes as they lie on disk, in ASCII type too, as vsftpd has it.
func (s *session) size(cmd control.Command) control.Decision {
	return s.describe(cmd.Param, func(info fs.FileInfo) (string, error) {
		switch {
		case isVirtual(info): // a client that compares it with what RETR sends would think that bytes were lost
			return "", errChanging
		case info.IsDir():
			return "", errIsDir
		case !info.Mode().IsRegular():
			return "", files.ErrNotRegular
		}
		return strconv.FormatInt(info.Size(), 10), nil
	})
}

// mdtm is MDTM (RFC 3659 section 3); of a lock: when it was acquired.
func (s *session) mdtm(cmd control.Command) control.Decision {
	return s.describe(cmd.Param, func(info fs.FileInfo) (string, error) {
		return info.ModTime().UTC().Format(timeValue), nil
	})
}

// describe answers 213 with something about a file.
func (s *session) describe(param string, say func(fs.FileInfo) (string, error)) control.Decision {
	view, err := s.abs(param)
	if err != nil {
		return s.refuse("", err)
	}
	info, err := s.client.stat(view)
	if err != nil {
		return s.refuse(view, err)
	}
	text, err := say(info)
	if err != nil {
		return s.refuse(view, err)
	}
	return reply(213, text)
}

// mfmt is MFMT (draft-somers-ftp-mfxx).
func (s *session) mfmt(cmd control.Command) control.Decision {
	stamp, name, ok := strings.Cut(cmd.Param, " ")
	when, err := time.Parse(timeValue, stamp)
	if !ok || err != nil || name == "" {
		return reply(501, "MFMT wants YYYYMMDDHHMMSS in UTC and a path")
	}
	view, err := s.abs(name)
	if err == nil {
		err = s.client.Chtimes(view, when, when)
	}
	if err != nil {
		return s.refuse(view, err)
	}
	return reply(213, "Modify="+stamp+"; "+view)
}

// mlst is MLST (RFC 3659 section 7).
func (s *session) mlst(cmd control.Command) control.Decision {
	view, err := s.abs(cmd.Param)
	if err != nil {
		return s.refuse("", err)
	}
	info, err := s.client.stat(view)
	if err != nil {
		return s.refuse(view, err)
	}
	var b bytes.Buffer
	s.facts.appendFacts(&b, entry{name: view, info: info}, s.client.account.rights())
	return control.Answer(control.Reply{Code: 250, Text: "facts about it", Lines: []string{" " + b.String()}})
}

func (s *session) avbl(cmd control.Command) control.Decision {
	view, err := s.abs(cmd.Param)
	if err != nil {
		return s.refuse("", err)
	}
	available, err := s.client.GetAvailableSpace(view)
	if err != nil {
		return s.refuse(view, err)
	}
	return reply(213, strconv.FormatInt(available, 10))
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

func (s *session) pasv(control.Command) control.Decision {
	local, err := netip.ParseAddr(address(s.conn.LocalAddr()))
	switch {
	case s.epsvAll:
		return reply(501, "after EPSV ALL there is EPSV only")
	case err != nil || !local.Unmap().Is4():
		// ftpserverlib v0.32.3 answers 421 and leaks a listener.
		return reply(425, "PASV knows IPv4 only: use EPSV")
	}
	return control.Pass("PASV")
}

// epsv is EPSV (RFC 2428 section 3).
func (s *session) epsv(cmd control.Command) control.Decision {
	family := "1"
	if local, err := netip.ParseAddr(address(s.conn.LocalAddr())); err == nil && !local.Unmap().Is4() {
		family = "2"
	}
	switch what := strings.ToUpper(strings.TrimSpace(cmd.Param)); what {
	case "ALL":
		s.epsvAll = true
		return reply(200, "EPSV only, from now on")
	case "", family:
		return control.Pass("EPSV")
	case "1", "2":
		return reply(522, "use the family of the control connection ("+family+")")
	}
	return reply(501, "EPSV, EPSV "+family+" or EPSV ALL")
}

// lowestPort keeps clients from having the server connect to services of theirs.
const lowestPort = 1024

func (s *session) portCommand(cmd control.Command) control.Decision {
	parts := strings.Split(strings.TrimSpace(cmd.Param), ",")
	var n [6]byte
	if len(parts) != len(n) {
		return reply(501, "PORT wants h1,h2,h3,h4,p1,p2")
	}
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 8)
		if err != nil {
			return reply(501, "PORT wants h1,h2,h3,h4,p1,p2")
		}
		n[i] = byte(v)
	}
	ap := netip.AddrPortFrom(netip.AddrFrom4([4]byte(n[:4])), uint16(n[4])<<8|uint16(n[5]))
	return s.activeTo(ap, "PORT "+strings.Join(parts, ","))
}

// eprt is EPRT (RFC 2428 section 2).
func (s *session) eprt(cmd control.Command) control.Decision {
	param := strings.TrimSpace(cmd.Param)
	if param == "" {
		return reply(501, "EPRT wants |family|address|port|")
	}
	parts := strings.Split(param, param[:1])
	if len(parts) != 5 {
		return reply(501, "EPRT wants |family|address|port|")
	}
	if parts[1] != "1" && parts[1] != "2" {
		return reply(522, "use (1,2)")
	}
	addr, err := netip.ParseAddr(parts[2])
	port, perr := strconv.ParseUint(parts[3], 10, 16)
	if err != nil || perr != nil || addr.Is4() != (parts[1] == "1") {
		return reply(501, "EPRT wants |family|address|port|")
	}
	return s.activeTo(netip.AddrPortFrom(addr, uint16(port)), "EPRT |"+strings.Join(parts[1:4], "|")+"|")
}

// activeTo prepares an active data connection, to the client's own machine only.
func (s *session) activeTo(to netip.AddrPort, line string) control.Decision {
	remote, err := netip.ParseAddr(address(s.conn.RemoteAddr()))
	switch {
	case s.epsvAll:
		return reply(501, "after EPSV ALL there is EPSV only")
	case !s.server.settings.Load().Active:
		return reply(502, "active data connections are off: use PASV or EPSV")
	case err != nil || remote.Unmap() != to.Addr().Unmap():
		return reply(501, "data connections go to the address that the control connection comes from")
	case to.Port() < lowestPort:
		return reply(501, "ports below 1024 are not for data connections")
	}
	s.unprepare() // ftpserverlib v0.32.3 forgets a passive listener without closing it
	s.prepared(nil)
	return control.Pass(line)
}

// feat is FEAT (RFC 2389).
func (s *session) feat(control.Command) control.Decision {
	lines := []string{"CLNT", "EPRT", "EPSV", "MDTM", "MFMT", s.facts.feature(), "REST STREAM", "SIZE", "TVFS", "UTF8", "AVBL"}
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
	if t != nil && !t.isAnswered() {
		lines = append(lines, " transferring "+t.path())
	}
	return control.Answer(control.Reply{Code: 211, Text: "ftplockd", Lines: lines, End: "End of status"})
}

// retr is RETR.
func (s *session) retr(cmd control.Command) control.Decision {
	view, err := s.abs(cmd.Param)
	if err != nil {
		return s.refuse("", err)
	}
	o := files.DownloadOptions{Offset: s.rest, ASCII: s.ascii, Pace: s.pace()}
	client := s.client
	return s.begin(&transfer{view: view, opening: "opening data connection for " + view, done: "transfer complete", open: func(t *transfer) (ftpserver.FileTransfer, error) {
		from, err := client.content(view, o)
		if err != nil {
			return nil, err
		}
		return &download{source: from, t: t, pace: o.Pace}, nil
	}}, false)
}

func (s *session) stor(cmd control.Command) control.Decision {
	return s.upload(cmd.Param, files.UploadOptions{Offset: s.rest, HasOffset: s.restSet})
}

func (s *session) appe(cmd control.Command) control.Decision {
	return s.upload(cmd.Param, files.UploadOptions{Append: true})
}

func (s *session) stou(cmd control.Command) control.Decision {
	return s.upload(cmd.Param, files.UploadOptions{Unique: true})
}

func (s *session) upload(param string, o files.UploadOptions) control.Decision {
	view, err := s.abs(param)
	if err != nil {
		return s.refuse("", err)
	}
	o.ASCII, o.Pace = s.ascii, s.pace()
	var announced int64
	if !s.ascii {
		announced = s.allocated
	}
	client := s.client
	return s.begin(&transfer{view: view, opening: "opening data connection for " + view, open: func(t *transfer) (ftpserver.FileTransfer, error) {
		r, name, err := client.receive(view, o)
		if err != nil {
			return nil, err
		}
		if o.Unique {
			t.found(name, "FILE: "+name) // RFC 1123 section 4.1.2.9
		}
		return &upload{receiver: r, t: t, announced: announced, pace: o.Pace}, nil
	}}, true)
}

// receive opens what an upload writes to, and says under which path it will be.
func (c *client) receive(view string, o files.UploadOptions) (receiver, string, error) {
	n, err := c.resolve(view)
	if err != nil {
		return nil, "", err
	}
	if o.Unique { // the path may be a directory, or a link to one
		if dir, derr := c.follow(view); derr == nil && c.isDirectory(dir) {
			n, view = lock.Name(path.Join(string(dir), uniqueName)), path.Join(view, uniqueName)
		}
	}
	if around, inside := c.lockAround(n); inside {
		return c.receiveNote(n, view, around, o)
	}
	if err := c.mayReplace(n, view); err != nil {
		return nil, "", err
	}
	var title lock.Title
	if !o.Unique { // whose name is not known yet
		if title, err = c.mayWrite(n); err != nil {
			return nil, "", err
		}
		o.Old = c.old(n)
	}
	up, err := c.tree().Upload(string(n), o)
	if err != nil {
		return nil, "", err
	}
	if o.Unique { // only now the name is known
		n = lock.Name(up.Name())
		view = path.Join(path.Dir(view), n.Base())
	}
	return c.guard(n, view, up, title)
}

// uniqueName is what STOU begins with to find a name.
const uniqueName = "ftp"

func (c *client) isDirectory(n lock.Name) bool {
	info, err := c.lstat(n)
	return err == nil && info.IsDir()
}

// mayReplace is mayCreate for uploads: a file that was there before a rule made its name a lock's may
// be written again.
func (c *client) mayReplace(n lock.Name, view string) error {
	err := c.mayCreate(n, view)
	if !errors.Is(err, errLockName) || !c.account.Write {
		return err
	}
	if info, serr := c.lstat(n); serr != nil || info.IsDir() {
		return err
	}
	return nil
}

// guard looks at the name that an upload will have, and by which title that is, if it began with none.
func (c *client) guard(n lock.Name, view string, up *files.Upload, title lock.Title) (receiver, string, error) {
	err := c.mayReplace(n, view)
	if err == nil && title.Lock == "" {
		title, err = c.mayWrite(n)
	}
	if err != nil {
		return nil, "", errors.Join(err, up.Discard())
	}
	protected := &protectedUpload{Upload: up, client: c, began: title}
	if c.isLockName(n) {
		return &lockNamed{protected, c, n, view}, view, nil
	}
	return protected, view, nil
}

// lockNamed is an upload to a file whose name is a lock's: it is published only while nobody holds that lock
// and the file that it replaces is there.
type lockNamed struct {
	*protectedUpload
	client *client
	name   lock.Name
	view   string
}

func (l *lockNamed) Publish() error {
	return l.client.undisturbed(l.client.session.context(), []lock.Name{l.name}, func() error {
		if err := l.client.mayReplace(l.name, l.view); err != nil {
			return err
		}
		return l.protectedUpload.Publish()
	})
}

// receiveNote opens a note in a held lock. Each is written whole: there is nothing to go on with.
func (c *client) receiveNote(n lock.Name, view string, around lock.Status, o files.UploadOptions) (receiver, string, error) {
	if o.Append || o.HasOffset || o.Unique {
		return nil, "", errWholeNote
	}
	if _, held := c.table().Get(n); held {
		return nil, "", errIsLock
	}
	h, err := c.noteHold(n, around)
	if err != nil {
		return nil, "", err
	}
	return &note{client: c, lock: around.Name, token: h.Token, name: n.Base(), timeout: o.Pace.Timeout}, view, nil
}

var errWholeNote = &refusal{text: "is a note in a lock: write it whole with STOR", is: fs.ErrPermission}
