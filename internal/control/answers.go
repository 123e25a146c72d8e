package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The functions in this file run before the library gets a command. They answer the commands that the library lacks, and bring
// the others into a form that it understands. The table in verbs.go refers to them.

// fixed answers with the same reply each time.
func fixed(code int, text string) func(*Conn, *Command) Reply {
	return func(*Conn, *Command) Reply { return Reply{Code: code, Text: text} }
}

// alias makes the library execute another command, without an argument.
func alias(line string) func(*Conn, *Command) Reply {
	return func(_ *Conn, cmd *Command) Reply {
		cmd.pass = line
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
	case c.phase == loggedIn:
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
	case c.phase == loggedIn:
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
	case c.phase == loggedIn:
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
		return Reply{Code: 536, Text: "PROT P or PROT C"}
	case level == "C" && c.server.opts.Policy().TLSRequired:
		return Reply{Code: 534, Text: "this server requires PROT P"}
	case level != "P" && level != "C":
		return Reply{Code: 504, Text: "PROT P or PROT C"}
	}
	cmd.pass = "PROT " + level
	return Reply{}
}

func afterProt(c *Conn, cmd *Command, r Reply) Reply {
	c.unprepare() // an earlier PASV was for the other kind of connection
	c.private = cmd.pass == "PROT P"
	return r
}

// hashNames are the digests that the library computes. The first one is the default.
var hashNames = []string{"SHA-256", "SHA-512", "SHA-1", "MD5", "CRC32"}

// factNames are the facts of MLSD and MLST. They are in lower case because PHP programs look for `type`; RFC 3659 section 7.5
// allows both.
var factNames = []string{"type", "size", "modify", "perm", "unique", "unix.mode"}

// feat answers FEAT (RFC 2389). A star marks the facts and the digest that are in use (RFC 3659 section 7.8).
func feat(c *Conn, _ *Command) Reply {
	lines := []string{
		"CLNT", "EPRT", "EPSV", "MDTM", "MFMT", "MLST " + starred(factNames, c.facts...), "REST STREAM", "SIZE", "TVFS", "UTF8", "AVBL",
		"HASH " + starred(hashNames, c.hash), "XCRC", "MD5", "XMD5", "XSHA", "XSHA1", "XSHA256", "XSHA512",
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
		cmd.pass = "OPTS UTF8"
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
	case c.phase != loggedIn:
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

// prepareMdtm turns "MDTM time path" into MFMT: some clients set the time of a file by it.
func prepareMdtm(_ *Conn, cmd *Command) Reply {
	stamp, name, ok := strings.Cut(cmd.Param, " ")
	if ok && len(stamp) == len("YYYYMMDDHHMMSS") && strings.Trim(stamp, "0123456789") == "" && name != "" {
		cmd.pass = "MFMT " + cmd.Param
	}
	return Reply{}
}

var needsTime = Reply{Code: 501, Text: "MFMT needs a time, YYYYMMDDHHMMSS in UTC, and a path"}

// prepareMfmt requires a path: without one the library would change the current directory.
func prepareMfmt(_ *Conn, cmd *Command) Reply {
	if !strings.Contains(cmd.trimmed(), " ") {
		return needsTime
	}
	return Reply{}
}

// afterMfmt replaces the library's replies to a malformed command, which contain a Go error.
func afterMfmt(_ *Conn, _ *Command, r Reply) Reply {
	if r.Code == 500 || r.Code == 501 {
		return needsTime
	}
	return r
}

// quotePath quotes the argument, which the library splits at spaces (handle_files.go:785). Some clients send it quoted.
func quotePath(_ *Conn, cmd *Command) Reply {
	name := cmd.Param
	if len(name) < 2 || name[0] != '"' || name[len(name)-1] != '"' {
		name = `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	cmd.pass = cmd.Verb + " " + name
	return Reply{}
}

// upperParam passes the argument on in upper case, the only form that the library accepts.
func upperParam(_ *Conn, cmd *Command) Reply {
	cmd.pass = cmd.Verb + " " + strings.ToUpper(cmd.trimmed())
	return Reply{}
}

// afterType notes the type (RFC 959 section 3.1.1): A, A N, I, L 8.
func afterType(c *Conn, cmd *Command, r Reply) Reply {
	if r.Code == 200 {
		c.ascii = strings.HasPrefix(cmd.pass, "TYPE A")
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
	cmd.pass = cmd.Verb + " " + bytes
	return Reply{}
}

// listing makes the library execute a listing as a download: the driver writes the lines, sorted, with globs, in each format.
func listing(_ *Conn, cmd *Command) Reply {
	cmd.pass = "RETR ."
	return Reply{}
}

// prepareStou makes the library execute STOU as STOR. The driver chooses the name.
func prepareStou(_ *Conn, cmd *Command) Reply {
	cmd.pass = "STOR " + cmd.Param
	if cmd.trimmed() == "" {
		cmd.pass = "STOR ."
	}
	return Reply{}
}

// abor answers ABOR when its turn comes: the transfer before it, which lookAhead aborted, has ended. The library does not get it, because
// it would not wait for the end of the transfer's goroutine (client_handler.go:612), and both would write to one buffer.
func abor(c *Conn, _ *Command) Reply {
	c.unprepare()
	return Reply{Code: 226, Text: "no transfer is under way"}
}

var afterEpsvAll = Reply{Code: 501, Text: "only EPSV is allowed after EPSV ALL"}

// preparePasv refuses PASV over IPv6: the library would reply 421 and leak a listener (transfer_pasv.go:252). It closes the
// session's previous port first, which may be the only one in the range.
func preparePasv(c *Conn, cmd *Command) Reply {
	switch {
	case c.epsvAll:
		return afterEpsvAll
	case !c.local.Is4():
		return Reply{Code: 425, Text: "PASV is for IPv4 only: use EPSV"}
	}
	cmd.pass = cmd.Verb
	return c.askForPort()
}

// familyOf returns the number of an address family (RFC 2428 section 2).
func familyOf(a netip.Addr) string {
	if a.Is4() {
		return "1"
	}
	return "2"
}

// prepareEpsv checks EPSV (RFC 2428 section 3).
func prepareEpsv(c *Conn, cmd *Command) Reply {
	family := familyOf(c.local)
	switch strings.ToUpper(cmd.trimmed()) {
	case "ALL":
		c.epsvAll = true
		return Reply{Code: 200, Text: "only EPSV is allowed from now on"}
	case "", family:
		cmd.pass = "EPSV"
		return c.askForPort()
	}
	return Reply{Code: 522, Text: "use the family of the control connection (" + family + ")"}
}

// afterPassive claims the port that the reply names: "227 ... (h1,h2,h3,h4,p1,p2)." or "229 ... (|||port|)". If no port is free, the
// library replies 421, which would mean the end of the connection.
func afterPassive(c *Conn, _ *Command, r Reply) Reply {
	numbers := strings.FieldsFunc(r.Text, func(r rune) bool { return r < '0' || r > '9' })
	var port int
	switch n := len(numbers); {
	case r.Code == 229 && n > 0:
		port, _ = strconv.Atoi(numbers[n-1])
	case r.Code == 227 && n > 1:
		high, _ := strconv.Atoi(numbers[n-2])
		low, _ := strconv.Atoi(numbers[n-1])
		port = high<<8 | low
	}
	c.port = c.server.opts.Ports.claim(uint16(port), c.client, c.user)
	c.prepared = c.port != nil
	if r.Code == 421 {
		return Reply{Code: 425, Text: "no port is free for a data connection"}
	}
	return r
}

// preparePort checks PORT (RFC 959 section 4.1.2).
func preparePort(c *Conn, cmd *Command) Reply {
	var n [6]byte
	parts := strings.Split(cmd.trimmed(), ",")
	for i, part := range parts {
		v, err := strconv.ParseUint(strings.Trim(part, " "), 10, 8) // some clients send a space behind each comma
		if err != nil || len(parts) != len(n) {
			return Reply{Code: 501, Text: "PORT needs h1,h2,h3,h4,p1,p2"}
		}
		n[i] = byte(v)
	}
	return c.activeTo(cmd, netip.AddrPortFrom(netip.AddrFrom4([4]byte(n[:4])), uint16(n[4])<<8|uint16(n[5])))
}

// prepareEprt checks EPRT (RFC 2428 section 2).
func prepareEprt(c *Conn, cmd *Command) Reply {
	malformed := Reply{Code: 501, Text: "EPRT needs |family|address|port|"}
	param := cmd.trimmed()
	parts := strings.Split(param, param[:1])
	if len(parts) != 5 {
		return malformed
	}
	if parts[1] != "1" && parts[1] != "2" {
		return Reply{Code: 522, Text: "use (1,2)"}
	}
	if family := familyOf(c.client); parts[1] != family { // the data connection is of the family of the control connection
		return Reply{Code: 522, Text: "use (" + family + ")"}
	}
	addr, err := netip.ParseAddr(parts[2])
	port, perr := strconv.ParseUint(parts[3], 10, 16)
	if err != nil || perr != nil || addr.Is4() != (parts[1] == "1") {
		return malformed
	}
	return c.activeTo(cmd, netip.AddrPortFrom(addr, uint16(port)))
}

// activeTo checks the target of an active data connection: the client's own address only. lftp sends :: over IPv6 for its own
// address.
func (c *Conn) activeTo(cmd *Command, to netip.AddrPort) Reply {
	switch {
	case c.epsvAll:
		return afterEpsvAll
	case !c.server.opts.Policy().Active:
		return Reply{Code: 502, Text: "active data connections are off: use PASV or EPSV"}
	case !to.Addr().IsUnspecified() && to.Addr().Unmap() != c.client:
		return Reply{Code: 501, Text: "the address must be the one of the control connection"}
	}
	if r := c.mayConnect(to.Port()); r.Code != 0 {
		return r
	}
	c.unprepare() // the library would leak the passive port (transfer_active.go:61)
	c.prepared = true
	cmd.pass = fmt.Sprintf("EPRT |%s|%s|%d|", familyOf(c.client), c.client, to.Port())
	if cmd.Verb == "PORT" {
		cmd.pass = fmt.Sprintf("PORT %s,%d,%d", strings.ReplaceAll(c.client.String(), ".", ","), to.Port()>>8, to.Port()&0xff)
	}
	return Reply{}
}
