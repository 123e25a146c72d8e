package control

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// The functions in this file run before the library gets a command, as do those for data connections in active.go and ports.go. They
// answer the commands that the library lacks, and change the others into a form that it accepts. The table in verbs.go refers to them.

// fixed answers with the same reply each time.
func fixed(code int, text string) func(*Conn, *Command) Reply {
	return func(*Conn, *Command) Reply { return Reply{Code: code, Text: text} }
}

// alias makes the library execute another line.
func alias(line string) func(*Conn, *Command) Reply {
	return func(_ *Conn, cmd *Command) Reply {
		cmd.forLibrary = line
		return Reply{}
	}
}

// Quoted returns a part of a command, shortened and in quotes, for an error text.
func Quoted(s string) string {
	const most = 40
	if len(s) > most {
		s = s[:most] + "..."
	}
	return "'" + s + "'"
}

var notLoggedIn = Reply{Code: 530, Text: "please log in with USER and PASS"}

// prepareUser refuses another name after login: ftpserverlib v0.32.3 would take it without a password (handle_auth.go:61).
func prepareUser(c *Conn, _ *Command) Reply {
	switch {
	case c.isLoggedIn():
		return Reply{Code: 530, Text: "you are logged in already: reconnect to use another account"}
	case c.server.opts.Policy().TLSRequired && !c.isTLS():
		return Reply{Code: 530, Text: "this server requires TLS: send AUTH TLS first"}
	}
	c.named = true
	return Reply{}
}

// preparePass requires a USER before each PASS (RFC 959 section 5.4).
func preparePass(c *Conn, _ *Command) Reply {
	switch {
	case c.isLoggedIn():
		return Reply{Code: 503, Text: "you are logged in already"}
	case !c.named:
		return Reply{Code: 503, Text: "send USER first"}
	}
	c.named = false
	return Reply{}
}

// authTLS answers AUTH (RFC 4217 section 4). This package does the handshake, not the library, so that it can read the lines.
func authTLS(c *Conn, cmd *Command) Reply {
	switch mechanism := strings.ToUpper(cmd.trimmed()); {
	case mechanism != "TLS" && mechanism != "TLS-C" && mechanism != "SSL":
		return Reply{Code: 504, Text: "this server supports AUTH TLS only"}
	case c.server.opts.TLS == nil:
		return Reply{Code: 534, Text: "TLS is not configured on this server"}
	case c.isTLS():
		return Reply{Code: 503, Text: "the connection is encrypted already"}
	case c.isLoggedIn():
		return Reply{Code: 503, Text: "send AUTH before USER"}
	}
	return Reply{Code: 234, Text: "begin TLS now"}
}

// pbsz answers PBSZ. Its number has 32 bits (RFC 2228 section 3); with TLS the size is always 0 (RFC 4217 section 8).
func pbsz(c *Conn, cmd *Command) Reply {
	if !c.isTLS() {
		return Reply{Code: 503, Text: "send AUTH TLS before PBSZ"}
	}
	if _, err := strconv.ParseUint(cmd.trimmed(), 10, 32); err != nil {
		return Reply{Code: 501, Text: "PBSZ needs a number: PBSZ 0"}
	}
	c.sized = true
	return Reply{Code: 200, Text: "PBSZ=0"}
}

// prepareProt checks PROT (RFC 4217 section 9). The library treats `PROT p` as PROT C (handle_misc.go:31).
func prepareProt(c *Conn, cmd *Command) Reply {
	level := strings.ToUpper(cmd.trimmed())
	switch {
	case !c.isTLS():
		return Reply{Code: 503, Text: "send AUTH TLS before PROT"}
	case !c.sized:
		return Reply{Code: 503, Text: "send PBSZ 0 first"}
	case level == "S" || level == "E":
		return Reply{Code: 536, Text: "only PROT P and PROT C are supported"}
	case level == "C" && c.server.opts.Policy().TLSRequired:
		return Reply{Code: 534, Text: "this server requires PROT P"}
	case level != "P" && level != "C":
		return Reply{Code: 504, Text: "only PROT P and PROT C are supported"}
	}
	cmd.forLibrary = "PROT " + level
	return Reply{}
}

func afterProt(c *Conn, cmd *Command, r Reply) Reply {
	c.unprepare() // an earlier PASV was for the other kind of connection
	c.private = cmd.forLibrary == "PROT P"
	return r
}

// hashNames are the digests that the library computes. The first one is the default.
var hashNames = []string{"SHA-256", "SHA-512", "SHA-1", "MD5", "CRC32"}

// factNames are the facts of MLSD and MLST. They are in lower case because PHP programs look for `type`; RFC 3659 section 7.5
// allows both.
var factNames = []string{"type", "size", "modify", "unique", "unix.mode"}

// feat answers FEAT (RFC 2389) with the commands that the configuration allows. A star marks the facts and the digest that are in use (RFC 3659 section 7.8).
func feat(c *Conn, _ *Command) Reply {
	lines := []string{
		"CLNT", "EPSV", "MDTM", "MFMT", "MLST " + starred(factNames, c.facts...), "REST STREAM", "SIZE", "TVFS", "UTF8", "AVBL",
		"HASH " + starred(hashNames, c.hash),
	}
	lines = append(lines, Digests...)
	if c.server.opts.Policy().Active {
		lines = append(lines, "EPRT")
	}
	if c.server.opts.TLS != nil {
		lines = append(lines, "AUTH TLS", "PBSZ", "PROT")
	}
	lines = append(lines, c.server.opts.Features...)
	slices.Sort(lines)
	for i, l := range lines {
		lines[i] = " " + l
	}
	return Reply{Code: 211, Text: "Features:", Lines: lines}
}

func starred(names []string, chosen ...string) (list string) {
	for _, name := range names {
		list += name
		if slices.Contains(chosen, name) {
			list += "*"
		}
		list += ";"
	}
	return list
}

// help answers HELP. Net::FTP announces the length of its uploads if the reply lists ALLO.
func help(c *Conn, cmd *Command) Reply {
	if name := strings.ToUpper(cmd.trimmed()); name != "" {
		v := c.server.verbs[name]
		if v == nil || v.usage == "" {
			return Reply{Code: 502, Text: "unknown command " + Quoted(name)}
		}
		return Reply{Code: 214, Text: "Syntax: " + strings.TrimSuffix(name+" "+v.usage, " ")}
	}
	var names []string
	for name, v := range c.server.verbs {
		if v.usage != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var lines []string
	for row := range slices.Chunk(names, 8) {
		lines = append(lines, " "+strings.Join(row, " "))
	}
	return Reply{Code: 214, Text: "The following commands are recognized:", Lines: lines, End: "SITE HELP explains the locks"}
}

// prepareOpts answers OPTS (RFC 2389). File names are bytes, so UTF8 changes nothing. The library executes OPTS HASH; it accepts
// algorithms in upper case only.
func prepareOpts(c *Conn, cmd *Command) Reply {
	what, rest, _ := strings.Cut(cmd.trimmed(), " ")
	switch strings.ToUpper(what) {
	case "UTF8", "UTF-8":
		cmd.forLibrary = "OPTS UTF8"
		return Reply{}
	case "MLST": // RFC 3659 section 7.9: unknown names are ignored
		want := strings.Split(strings.ToLower(rest), ";")
		facts := slices.DeleteFunc(slices.Clone(factNames), func(name string) bool { return !slices.Contains(want, name) })
		c.facts = facts
		text := "MLST OPTS"
		if len(facts) > 0 {
			text += " " + strings.Join(facts, ";") + ";"
		}
		return Reply{Code: 200, Text: text}
	case "HASH":
		if name := strings.ToUpper(strings.TrimSpace(rest)); slices.Contains(hashNames, name) {
			c.hash = name
		}
		return upperParam(c, cmd)
	}
	return Reply{Code: 501, Text: "use OPTS UTF8, OPTS MLST or OPTS HASH"}
}

// prepareStat answers STAT without an argument, which is about the session (RFC 959 section 4.1.3).
func prepareStat(c *Conn, cmd *Command) Reply {
	switch {
	case cmd.trimmed() == "":
		return c.sessionStatus()
	case !c.isLoggedIn():
		return notLoggedIn
	}
	return Reply{}
}

func (c *Conn) sessionStatus() Reply {
	kind := "binary"
	if c.ascii {
		kind = "ASCII"
	}
	lines := append([]string{" connected from " + c.client.String(), " type " + kind}, c.handler.Status()...)
	return Reply{Code: 211, Text: "ftplockd", Lines: lines, End: "End of status"}
}

// prepareMdtm makes the library execute "MDTM time path" as MFMT: some clients set the time of a file by it.
func prepareMdtm(c *Conn, cmd *Command) Reply {
	_ = prepareMfmt(c, cmd) // otherwise the parameter is a path
	return Reply{}
}

// prepareMfmt checks the parameters of MFMT. Without a path the library would change the current directory, and its reply to a
// malformed time contains a Go error.
func prepareMfmt(_ *Conn, cmd *Command) Reply {
	stamp, name, _ := strings.Cut(cmd.Param, " ")
	at, err := time.Parse("20060102150405", stamp)
	if err != nil || at.Year() < 1902 || at.Year() > 2261 || strings.Trim(name, " ") == "" { // os.Chtimes counts nanoseconds in 64 bits
		return Reply{Code: 501, Text: "MFMT needs a time, YYYYMMDDHHMMSS in UTC from 1902 to 2261, and a path"}
	}
	cmd.forLibrary = "MFMT " + cmd.Param
	return Reply{}
}

// quotePath quotes the argument, which the library splits at spaces (handle_files.go:785). Some clients send it quoted.
func quotePath(_ *Conn, cmd *Command) Reply {
	name := cmd.Param
	if len(name) < 2 || name[0] != '"' || name[len(name)-1] != '"' {
		name = `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	cmd.forLibrary = cmd.Verb + " " + name
	return Reply{}
}

// quotePathBeforeRange is quotePath for a path that a range of bytes may follow, see CutRange. The library reads the range.
func quotePathBeforeRange(c *Conn, cmd *Command) Reply {
	path, bytes := CutRange(cmd.Param)
	if bytes == "" || path[0] != '"' {
		return quotePath(c, cmd)
	}
	cmd.forLibrary = cmd.Verb + " " + path + " " + bytes
	return Reply{}
}

// CutRange splits the argument of XCRC and the like into a path and a range of bytes: "start", or "start end", where end is the first byte
// after the range. Without a range it returns the whole argument. The last words of a path without quotes may look like a range.
func CutRange(param string) (path, bytes string) {
	path = strings.TrimRight(param, " ")
	for range 2 {
		i := strings.LastIndexByte(path, ' ')
		if i < 0 {
			break
		}
		if _, err := strconv.ParseUint(path[i+1:], 10, 63); err != nil {
			break
		}
		bytes = strings.TrimRight(path[i+1:]+" "+bytes, " ")
		path = strings.TrimRight(path[:i], " ")
	}
	if quoted := strings.HasPrefix(path, `"`); path == "" || quoted && (len(path) < 2 || !strings.HasSuffix(path, `"`)) {
		return param, ""
	}
	return path, bytes
}

// upperParam passes the argument on in upper case, the only form that the library accepts.
func upperParam(_ *Conn, cmd *Command) Reply {
	cmd.forLibrary = cmd.Verb + " " + strings.ToUpper(cmd.trimmed())
	return Reply{}
}

// prepareType checks TYPE (RFC 959 section 3.1.1). The library takes L 7 for ASCII (handle_misc.go:291).
func prepareType(c *Conn, cmd *Command) Reply {
	if kind := strings.ToUpper(strings.ReplaceAll(cmd.Param, " ", "")); !slices.Contains([]string{"A", "AN", "I", "L8"}, kind) {
		return Reply{Code: 504, Text: "only TYPE A and TYPE I are supported"}
	}
	return upperParam(c, cmd)
}

// afterType records the type of the next transfers (RFC 959 section 3.1.1): A, A N, I, L 8.
func afterType(c *Conn, cmd *Command, r Reply) Reply {
	if r.Code == 200 {
		c.ascii = strings.HasPrefix(cmd.forLibrary, "TYPE A")
	}
	return r
}

func stru(_ *Conn, cmd *Command) Reply {
	if strings.EqualFold(cmd.trimmed(), "F") {
		return Reply{Code: 200, Text: "OK"}
	}
	return Reply{Code: 504, Text: "only STRU F is supported"}
}

// prepareBytes checks ALLO and REST. Of ALLO's "n R m" (RFC 959 section 4.1.3) the library accepts "n" only, and it accepts a
// negative REST (RFC 3659 section 5).
func prepareBytes(_ *Conn, cmd *Command) Reply {
	bytes, _, _ := strings.Cut(cmd.trimmed(), " ")
	if n, err := strconv.ParseInt(bytes, 10, 64); err != nil || n < 0 {
		return Reply{Code: 501, Text: cmd.Verb + " needs a number of bytes"}
	}
	cmd.forLibrary = cmd.Verb + " " + bytes
	return Reply{}
}

// prepareStou makes the library execute STOU as STOR. The driver chooses the name.
func prepareStou(_ *Conn, cmd *Command) Reply {
	cmd.forLibrary = "STOR " + cmd.Param
	if cmd.trimmed() == "" {
		cmd.forLibrary = "STOR ."
	}
	return Reply{}
}

// abor answers ABOR in its turn: lookAhead aborted the transfer before it, which has ended. The library does not get ABOR, because it
// would not wait for the end of the transfer's goroutine (client_handler.go:612), and both would write to one buffer.
func abor(c *Conn, _ *Command) Reply {
	c.unprepare()
	return Reply{Code: 226, Text: "no transfer is under way"}
}
