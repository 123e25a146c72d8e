package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// This file has what is said about commands before the library gets them: the answers to those that it lacks or cannot
// answer, and the forms of the others that it understands. The names are those in the table.

// fixed answers always the same.
func fixed(code int, text string) func(*Conn, *Command) Reply {
	return func(*Conn, *Command) Reply { return Reply{Code: code, Text: text} }
}

func unknownTo(verb string) func(*Conn, *Command) Reply {
	return fixed(502, "this server does not know "+verb)
}

// alias has the library execute another command, without the argument.
func alias(line string) func(*Conn, *Command) Reply {
	return func(_ *Conn, cmd *Command) Reply {
		cmd.pass = line
		return Reply{}
	}
}

// quoted shortens what a client sent, for an error text.
func quoted(s string) string {
	const most = 40
	if len(s) > most {
		s = s[:most] + "..."
	}
	return "'" + s + "'"
}

// change runs f on what the client has said, with the mutex held.
func (c *Conn) change(f func(*dialogue)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.dialogue)
}

func (c *Conn) said() dialogue {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dialogue
}

func (c *Conn) loginState() loginState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.login
}

// prepareUser refuses another name after login: ftpserverlib v0.32.3 would take it without a password (handle_auth.go:61).
func prepareUser(c *Conn, _ *Command) Reply {
	switch {
	case c.loginState() == loggedIn:
		return Reply{Code: 530, Text: "you are logged in: say REIN first"}
	case c.opts.Policy().TLSRequired && c.TLS() == nil:
		return Reply{Code: 530, Text: "this server wants TLS: say AUTH TLS first"}
	}
	return Reply{}
}

func afterUser(c *Conn, cmd *Command) {
	if cmd.code == 331 {
		c.setLogin(userNamed)
	}
}

// preparePass lets the library ask the driver, which says LogIn if the password is right. The name is for one try.
func preparePass(c *Conn, _ *Command) Reply {
	switch c.loginState() {
	case loggedIn:
		return Reply{Code: 230, Text: "you are logged in already"}
	case loggedOut:
		return Reply{Code: 503, Text: "say USER first"}
	}
	c.setLogin(loggedOut)
	return Reply{}
}

// prepareRein puts all back to where USER was not said. The library has no such command; it gets one that takes back a
// REST. Under TLS there is no way back to the clear (RFC 4217 section 11).
func prepareRein(c *Conn, cmd *Command) Reply {
	if c.TLS() != nil {
		return Reply{Code: 502, Text: "not under TLS: hang up instead"}
	}
	c.handler.Reset()
	c.unprepare()
	c.setLogin(loggedOut)
	c.change(func(d *dialogue) {
		hash := d.hash // the library keeps it
		*d = newDialogue()
		d.hash = hash
	})
	cmd.pass = "REST 0"
	return Reply{}
}

// authTLS is AUTH (RFC 4217 section 4). The handshake is done here, not by the library, so that lines are seen in the
// clear here.
func authTLS(c *Conn, cmd *Command) Reply {
	switch mechanism := strings.ToUpper(cmd.trimmed()); {
	case mechanism != "TLS" && mechanism != "TLS-C" && mechanism != "SSL":
		return Reply{Code: 504, Text: "AUTH TLS is what this server knows"}
	case c.opts.TLS == nil:
		return Reply{Code: 534, Text: "TLS is not configured on this server"}
	case c.TLS() != nil:
		return Reply{Code: 503, Text: "the connection is encrypted already"}
	case c.loginState() == loggedIn:
		return Reply{Code: 503, Text: "AUTH comes before USER"}
	}
	c.setLogin(loggedOut)
	return Reply{Code: 234, Text: "begin TLS now"}
}

// preparePbsz is PBSZ (RFC 2228). With TLS the size is always 0 (RFC 4217 section 8).
func preparePbsz(c *Conn, _ *Command) Reply {
	if c.TLS() == nil {
		return Reply{Code: 503, Text: "PBSZ comes after AUTH TLS"}
	}
	return Reply{}
}

func afterPbsz(c *Conn, cmd *Command) { c.change(func(d *dialogue) { d.pbsz = cmd.code == 200 }) }

// prepareProt is PROT (RFC 4217 section 9). The library takes `PROT p` for PROT C (handle_misc.go:31).
func prepareProt(c *Conn, cmd *Command) Reply {
	level := strings.ToUpper(cmd.trimmed())
	switch {
	case c.TLS() == nil || !c.said().pbsz:
		return Reply{Code: 503, Text: "PROT comes after AUTH TLS and PBSZ 0"}
	case level == "S" || level == "E":
		return Reply{Code: 536, Text: "PROT P or PROT C"}
	case level == "C" && c.opts.Policy().TLSRequired:
		return Reply{Code: 534, Text: "this server wants PROT P"}
	case level != "P" && level != "C":
		return Reply{Code: 504, Text: "PROT P or PROT C"}
	}
	cmd.pass = "PROT " + level
	return Reply{}
}

func afterProt(c *Conn, cmd *Command) {
	if cmd.code == 200 {
		c.unprepare() // what PASV prepared is of the other kind
		c.change(func(d *dialogue) { d.private = cmd.pass == "PROT P" })
	}
}

var hashNames = [...]string{"SHA-256", "SHA-512", "SHA-1", "MD5", "CRC32"}

// feat is FEAT (RFC 2389). It lists what the library and the driver do, and which facts and algorithm are chosen.
func feat(c *Conn, _ *Command) Reply {
	d := c.said()
	lines := []string{"CLNT", "EPRT", "EPSV", "MDTM", "MFMT", d.facts.feature(), "REST STREAM", "SIZE", "TVFS", "UTF8", "AVBL"}
	if c.opts.TLS != nil {
		lines = append(lines, "AUTH TLS", "PBSZ", "PROT")
	}
	lines = append(lines, starred("HASH ", hashNames[:], func(i int) bool { return hashNames[i] == d.hash }))
	lines = append(lines, "XCRC", "MD5", "XMD5", "XSHA", "XSHA1", "XSHA256", "XSHA512")
	lines = append(lines, c.opts.Features...)
	slices.Sort(lines)
	for i, l := range lines {
		lines[i] = " " + l
	}
	return Reply{Code: 211, Text: "Features:", Lines: lines}
}

// help is HELP. Net::FTP looks here for ALLO, and announces the length of its uploads if it finds it.
func help(c *Conn, cmd *Command) Reply {
	if name := strings.ToUpper(cmd.trimmed()); name != "" {
		v := c.listener.verbs[name]
		if v == nil || v.usage == "" {
			return Reply{Code: 502, Text: "unknown command " + quoted(name)}
		}
		return Reply{Code: 214, Text: "Syntax: " + strings.TrimSuffix(name+" "+v.usage, " ")}
	}
	var names []string
	for name, v := range c.listener.verbs {
		if v.usage != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var lines []string
	for row := range slices.Chunk(names, 8) {
		lines = append(lines, " "+strings.Join(row, " "))
	}
	return Reply{Code: 214, Text: "The following commands are recognized:", Lines: lines, End: "SITE HELP tells of the locks"}
}

// prepareOpts is OPTS (RFC 2389). Names are bytes here, so UTF8 changes nothing. OPTS HASH is the library's, which knows
// names of algorithms in upper case only.
func prepareOpts(c *Conn, cmd *Command) Reply {
	what, rest, _ := strings.Cut(cmd.trimmed(), " ")
	switch strings.ToUpper(what) {
	case "UTF8", "UTF-8":
		cmd.pass = "OPTS UTF8"
		return Reply{}
	case "MLST":
		facts := parseFacts(rest)
		c.change(func(d *dialogue) { d.facts = facts })
		return Reply{Code: 200, Text: strings.TrimSpace("MLST OPTS " + facts.String())}
	case "HASH":
		cmd.pass = strings.TrimSpace("OPTS HASH " + strings.ToUpper(strings.TrimSpace(rest)))
		return Reply{}
	}
	return Reply{Code: 501, Text: "OPTS UTF8, OPTS MLST or OPTS HASH"}
}

func afterOpts(c *Conn, cmd *Command) {
	if name, ok := strings.CutPrefix(cmd.pass, "OPTS HASH "); ok && cmd.code == 200 {
		c.change(func(d *dialogue) { d.hash = name })
	}
}

// prepareStat answers STAT without an argument, which is about the session (RFC 959 section 4.1.3).
func prepareStat(c *Conn, cmd *Command) Reply {
	switch {
	case cmd.trimmed() == "":
		return statSession(c, cmd)
	case !c.isLoggedIn():
		return notLoggedIn
	}
	return Reply{}
}

var notLoggedIn = Reply{Code: 530, Text: "please log in with USER and PASS"}

func statSession(c *Conn, _ *Command) Reply {
	kind := map[bool]string{true: "ASCII", false: "binary"}[c.ASCII()]
	lines := append([]string{" connected from " + ipOf(c.RemoteAddr()).String(), " type " + kind}, c.handler.Status()...)
	return Reply{Code: 211, Text: "ftplockd", Lines: lines, End: "End of status"}
}

func afterRnfr(c *Conn, cmd *Command) { c.change(func(d *dialogue) { d.renames = cmd.code == 350 }) }

// prepareRnto lets RNFR be good for one RNTO: the library goes on with it after a failure (handle_files.go:380) and after
// REIN.
func prepareRnto(c *Conn, _ *Command) (r Reply) {
	c.change(func(d *dialogue) {
		if !d.renames {
			r = Reply{Code: 503, Text: "RNFR comes before RNTO"}
		}
		d.renames = false
	})
	return r
}

// prepareMdtm takes "MDTM time path", by which some clients set a time, for MFMT.
func prepareMdtm(_ *Conn, cmd *Command) Reply {
	stamp, name, ok := strings.Cut(cmd.Param, " ")
	if ok && len(stamp) == len("YYYYMMDDHHMMSS") && strings.Trim(stamp, "0123456789") == "" && name != "" {
		cmd.pass = "MFMT " + cmd.Param
	}
	return Reply{}
}

// quotePath puts the argument in quotes: the library splits it at spaces (handle_files.go:785). Some clients quote it
// themselves.
func quotePath(_ *Conn, cmd *Command) Reply {
	name := cmd.Param
	if len(name) < 2 || name[0] != '"' || name[len(name)-1] != '"' {
		name = `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	cmd.pass = cmd.Verb + " " + name
	return Reply{}
}

// prepareType is TYPE (RFC 959 section 3.1.1), without the types that the library takes for others.
func prepareType(_ *Conn, cmd *Command) Reply {
	switch kind := strings.ToUpper(strings.Join(strings.Fields(cmd.Param), "")); kind {
	case "A", "AN", "I", "L8":
		cmd.pass = "TYPE " + kind[:1]
		if kind == "L8" {
			cmd.pass = "TYPE I"
		}
		return Reply{}
	}
	return Reply{Code: 504, Text: "TYPE A or TYPE I"}
}

func afterType(c *Conn, cmd *Command) {
	if cmd.code == 200 {
		c.change(func(d *dialogue) { d.ascii = cmd.pass == "TYPE A" })
	}
}

func upperParam(_ *Conn, cmd *Command) Reply {
	cmd.pass = cmd.Verb + " " + strings.ToUpper(cmd.trimmed())
	return Reply{}
}

func stru(_ *Conn, cmd *Command) Reply {
	if strings.EqualFold(cmd.trimmed(), "F") {
		return Reply{Code: 200, Text: "OK"}
	}
	return Reply{Code: 504, Text: "only file structure is known"}
}

// prepareAllo is ALLO (RFC 959 section 4.1.3): "n" or "n R m", of which the library knows the first.
func prepareAllo(_ *Conn, cmd *Command) Reply {
	bytes, record, _ := strings.Cut(cmd.trimmed(), " ")
	n, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil || n < 0 || record != "" && !strings.HasPrefix(strings.ToUpper(record), "R ") {
		return Reply{Code: 501, Text: "ALLO wants a number of bytes"}
	}
	cmd.pass = "ALLO " + strconv.FormatInt(n, 10)
	return Reply{}
}

// prepareRest is REST (RFC 3659 section 5). The library takes negative numbers.
func prepareRest(_ *Conn, cmd *Command) Reply {
	n, err := strconv.ParseInt(cmd.trimmed(), 10, 64)
	if err != nil || n < 0 {
		return Reply{Code: 501, Text: "REST wants a number of bytes, 0 or more"}
	}
	cmd.pass = "REST " + strconv.FormatInt(n, 10)
	return Reply{}
}

// listing has the library execute a listing as a download: the driver sends it in all formats, sorted and with globs.
func listing(_ *Conn, cmd *Command) Reply {
	cmd.pass = "RETR ."
	return Reply{}
}

// prepareStou has the library execute STOU as STOR, for which the driver chooses a name.
func prepareStou(_ *Conn, cmd *Command) Reply {
	cmd.pass = "STOR " + cmd.Param
	if cmd.trimmed() == "" {
		cmd.pass = "STOR ."
	}
	return Reply{}
}

// preparePasv refuses PASV over IPv6: the library says 421 and leaks a listener (transfer_pasv.go:252). The port before is closed
// first, since it may be the only one.
func preparePasv(c *Conn, cmd *Command) Reply {
	switch {
	case c.said().epsvAll:
		return afterEpsvAll
	case !ipOf(c.LocalAddr()).Is4():
		return Reply{Code: 425, Text: "PASV knows IPv4 only: use EPSV"}
	}
	c.unprepare()
	cmd.pass = cmd.Verb
	return Reply{}
}

var afterEpsvAll = Reply{Code: 501, Text: "after EPSV ALL there is EPSV only"}

// prepareEpsv is EPSV (RFC 2428 section 3).
func prepareEpsv(c *Conn, cmd *Command) Reply {
	family := "1"
	if !ipOf(c.LocalAddr()).Is4() {
		family = "2"
	}
	switch what := strings.ToUpper(cmd.trimmed()); what {
	case "ALL":
		c.change(func(d *dialogue) { d.epsvAll = true })
		return Reply{Code: 200, Text: "EPSV only, from now on"}
	case "", family:
		c.unprepare()
		cmd.pass = "EPSV"
		return Reply{}
	case "1", "2":
		return Reply{Code: 522, Text: "use the family of the control connection (" + family + ")"}
	}
	return Reply{Code: 501, Text: "EPSV, EPSV " + family + " or EPSV ALL"}
}

// afterPassive claims the port that the reply names: "227 ... (h1,h2,h3,h4,p1,p2)." or "229 ... (|||port|)".
func afterPassive(c *Conn, cmd *Command) {
	numbers := strings.FieldsFunc(cmd.text[min(3, len(cmd.text)):], func(r rune) bool { return r < '0' || r > '9' })
	var port int
	switch n := len(numbers); {
	case cmd.code == 229 && n > 0:
		port, _ = strconv.Atoi(numbers[n-1])
	case cmd.code == 227 && n > 1:
		high, _ := strconv.Atoi(numbers[n-2])
		low, _ := strconv.Atoi(numbers[n-1])
		port = high<<8 | low
	default:
		return
	}
	c.prepared(dataPassive, c.opts.Ports.claim(uint16(port), ipOf(c.RemoteAddr())))
}

func preparePort(c *Conn, cmd *Command) Reply {
	parts := strings.Split(cmd.trimmed(), ",")
	var n [6]byte
	for i := range n {
		v, err := uint64(0), error(nil)
		if len(parts) == len(n) {
			v, err = strconv.ParseUint(parts[i], 10, 8)
		}
		if err != nil || len(parts) != len(n) {
			return Reply{Code: 501, Text: "PORT wants h1,h2,h3,h4,p1,p2"}
		}
		n[i] = byte(v)
	}
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte(n[:4])), uint16(n[4])<<8|uint16(n[5]))
	return c.activeTo(cmd, to)
}

// prepareEprt is EPRT (RFC 2428 section 2).
func prepareEprt(c *Conn, cmd *Command) Reply {
	param := cmd.trimmed()
	parts := strings.Split(param, param[:1])
	if len(parts) != 5 {
		return wantsEprt
	}
	if parts[1] != "1" && parts[1] != "2" {
		return Reply{Code: 522, Text: "use (1,2)"}
	}
	addr, err := netip.ParseAddr(parts[2])
	port, perr := strconv.ParseUint(parts[3], 10, 16)
	if err != nil || perr != nil || addr.Is4() != (parts[1] == "1") {
		return wantsEprt
	}
	return c.activeTo(cmd, netip.AddrPortFrom(addr, uint16(port)))
}

var wantsEprt = Reply{Code: 501, Text: "EPRT wants |family|address|port|"}

// lowestPort keeps clients from having the server connect to services of theirs.
const lowestPort = 1024

// activeTo checks where an active data connection is to go: to the client's own machine only. lftp says :: over IPv6,
// and means its own.
func (c *Conn) activeTo(cmd *Command, to netip.AddrPort) Reply {
	client := ipOf(c.RemoteAddr())
	switch {
	case c.said().epsvAll:
		return afterEpsvAll
	case !c.opts.Policy().Active:
		return Reply{Code: 502, Text: "active data connections are off: use PASV or EPSV"}
	case !to.Addr().IsUnspecified() && to.Addr().Unmap() != client:
		return Reply{Code: 501, Text: "data connections go to the address that the control connection comes from"}
	case to.Port() < lowestPort:
		return Reply{Code: 501, Text: "ports below 1024 are not for data connections"}
	}
	c.unprepare() // the library would leak the passive port (transfer_active.go:61)
	port := to.Port()
	switch {
	case cmd.Verb == "PORT":
		cmd.pass = fmt.Sprintf("PORT %s,%d,%d", strings.ReplaceAll(client.String(), ".", ","), port>>8, port&0xff)
	case client.Is4():
		cmd.pass = fmt.Sprintf("EPRT |1|%s|%d|", client, port)
	default:
		cmd.pass = fmt.Sprintf("EPRT |2|%s|%d|", client, port)
	}
	return Reply{}
}

func afterActive(c *Conn, cmd *Command) {
	if cmd.code == 200 {
		c.prepared(dataActive, nil)
	}
}
