package control

import (
	"slices"
	"strings"
	"testing"
)

// table has a command, and the line that the library gets for it, or the reply of this package. The package integration tests commands
// that pass unchanged with the library itself.
var table = []struct {
	line  string
	pass  string // the line that the library gets; "": none
	reply string // the beginning of the reply
}{
	{line: "USER u", reply: "530 you are logged in"},
	{line: "REIN", reply: "502 "},
	{line: "AUTH TLS", reply: "534 "},
	{line: "AUTH GSSAPI", reply: "504 "},
	{line: "PBSZ 0", reply: "503 "},
	{line: "PROT P", reply: "503 "},
	{line: "HELP mkd", reply: "214 Syntax: MKD path"},
	{line: "HELP nonsense", reply: "502 "},
	{line: "OPTS UTF8 ON", pass: "OPTS UTF8"},
	{line: "OPTS utf-8", pass: "OPTS UTF8"},
	{line: "OPTS HASH md5", pass: "OPTS HASH MD5"},
	{line: "OPTS MLST size;type;nonsense;", reply: "200 MLST OPTS type;size;\r\n"},
	{line: "OPTS x", reply: "501 "},
	{line: "STAT a b", pass: "STAT a b"},

	{line: "MKD  a ", pass: "MKD  a "},
	{line: "XCUP", pass: "CDUP"},
	{line: "HASH " + strings.Repeat("a", maxLine-len("HASH ")), reply: "500 line too long"}, // with the quotes

	{line: "MDTM a b", pass: "MDTM a b"},
	{line: "MDTM 20200102030405 a b", pass: "MFMT 20200102030405 a b"},
	{line: "MDTM 20200102030405 ", pass: "MDTM 20200102030405 "},
	{line: "MFMT 20200102030405 ", reply: "501 MFMT needs a time"},
	{line: "MFMT 99991231235959 f", reply: "501 MFMT needs a time"},
	{line: "MDTM 99991231235959 f", pass: "MDTM 99991231235959 f"},
	{line: "HASH a b", pass: `HASH "a b"`},
	{line: `HASH a"b`, pass: `HASH "a""b"`},
	{line: `HASH "a b"`, pass: `HASH "a b"`},
	{line: `HASH "`, pass: `HASH """"`},
	{line: "xcrc a b", pass: `XCRC "a b"`},
	{line: "XCRC a 1", pass: `XCRC "a 1"`}, // the driver quotes the path if there is no such file
	{line: `XCRC "a b"`, pass: `XCRC "a b"`},
	{line: `XCRC "a ""b""" 0  12 `, pass: `XCRC "a ""b""" 0 12`},
	{line: `XMD5 "a" 5`, pass: `XMD5 "a" 5`},
	{line: `XMD5 "a" 1 2 3`, pass: `XMD5 """a"" 1 2 3"`},
	{line: `XMD5 "a" -1 2`, pass: `XMD5 """a"" -1 2"`},
	{line: `XCRC " 1`, pass: `XCRC """ 1"`},
	{line: `HASH "a" 0 1`, pass: `HASH """a"" 0 1"`},

	{line: "TYPE a", pass: "TYPE A"},
	{line: "TYPE L 8", pass: "TYPE L 8"},
	{line: "TYPE L 7", reply: "504 "},
	{line: "MODE s", pass: "MODE S"},
	{line: "STRU R", reply: "504 "},
	{line: "ALLO 12", pass: "ALLO 12"},
	{line: "ALLO 12 R 3", pass: "ALLO 12"},
	{line: "ALLO  012 ", pass: "ALLO 012"},
	{line: "ALLO -1", reply: "501 "},
	{line: "ALLO 9223372036854775808", reply: "501 "},
	{line: "REST 12", pass: "REST 12"},
	{line: "REST -1", reply: "501 "},
	{line: "EPSV 1", pass: "EPSV"},
	{line: "EPSV 2", reply: "522 use the family of the control connection (1)"},
	{line: "EPSV all", reply: "200 "},
	{line: "PORT 127,0,0,1,195,80", pass: "PORT 127,0,0,1,195,80"},
	{line: "PORT 0,0,0,0,195,81", pass: "PORT 127,0,0,1,195,81"},
	{line: "PORT 127,0,0,2,195,80", reply: "501 "},
	{line: "PORT 127,0,0,1,4", reply: "501 "},
	{line: "PORT 127,0,0,1,195,80,0", reply: "501 "},
	{line: "PORT ,,,,,", reply: "501 "},
	{line: "EPRT |1|127.0.0.1|50000|", pass: "EPRT |1|127.0.0.1|50000|"},
	{line: "EPRT !1!127.0.0.1!50000!", pass: "EPRT |1|127.0.0.1|50000|"},
	{line: "EPRT |2|::1|50000|", reply: "522 use (1)"},
	{line: "EPRT |2|::ffff:127.0.0.1|50000|", reply: "522 use (1)"},
	{line: "EPRT |1|::1|50000|", reply: "501 "},
	{line: "PORT 127, 0, 0, 1, 195, 80", pass: "PORT 127,0,0,1,195,80"},
	{line: "PORT  127,0,0,1,195 ,80 ", pass: "PORT 127,0,0,1,195,80"},
	{line: "EPRT |1|127.0.0.2|50000|", reply: "501 "},
	{line: "EPRT |3|127.0.0.1|50000|", reply: "522 use (1,2)"},
	{line: "EPRT |1|localhost|50000|", reply: "501 "},
	{line: "EPRT |", reply: "501 "},

	{line: "PORT 127,0,0,1,0,21", reply: "501 data connections to ports below 1024"},
	{line: "PORT 127,0,0,1,78,32", reply: "501 this server uses that port itself"}, // 20000, a passive one
	{line: "PORT 127,0,0,1,24,235", reply: "501 on this machine"},                  // 6379
	{line: "PORT 127,0,0,1,192,0", pass: "PORT 127,0,0,1,192,0"},
	{line: "ABOR now", reply: "226 "},
	{line: "\xff\xf4\xf2ABOR", reply: "226 "}, // Telnet's signals (RFC 854)
	{line: "\xff\xf1", reply: "500 "},
	{line: ""},
	{line: " NOOP", reply: "500 "},
	{line: "MKD caf\xff\xf4\xff", pass: "MKD caf\xff\xf4\xff"},

	{line: "STOU", pass: "STOR ."},
	{line: "LIST -al a", pass: "RETR ."},
	{line: "NLST", pass: "RETR ."},
	{line: "MLSD a", pass: "RETR ."},

	{line: "NONSENSE", reply: "500 'NONSENSE' is not a command"},
	{line: "MKD\ta", reply: "500 "},
}

func TestTable(t *testing.T) {
	for _, tc := range table {
		want := tc.pass
		if want != "" {
			want += "\r\n"
		}
		pass, reply := ask(Options{}, tc.line)
		if pass != want || tc.reply == "" && reply != "" || !strings.HasPrefix(reply, tc.reply) {
			t.Errorf("%s: the library got %q, want %q; the reply is %q, want %q", tc.line, pass, want, reply, tc.reply)
		}
	}
}

// These replies depend on more than the line.
func TestTableInOtherStates(t *testing.T) {
	passive := func(o *Options) { o.Policy = func() Policy { return Policy{} } }
	withTLS := func(o *Options) { o.TLS = certificate() }
	for _, tc := range []struct {
		change func(*Options)
		lines  string
		last   string // the beginning of the last reply; "": the library gets the last line
	}{
		{passive, "PORT 127,0,0,1,195,80", "502 "},
		{passive, "EPRT |1|127.0.0.1|50000|", "502 "},
		{nil, "FEAT", " CLNT\r\n EPRT\r\n EPSV\r\n"},
		{passive, "FEAT", " CLNT\r\n EPSV\r\n"},
		{nil, "EPSV ALL\r\nPASV", "501 "},
		{nil, "EPSV ALL\r\nPORT 127,0,0,1,195,80", "501 "},
		{nil, "EPSV ALL\r\nEPRT |1|127.0.0.1|50000|", "501 "},
		{nil, "EPSV ALL\r\nEPSV ALL", "200 "},
		{nil, "EPSV ALL\r\nEPSV", ""},
		{withTLS, "AUTH TLS", "503 send AUTH before USER"},
		{withTLS, "FEAT", " XCRC\r\n XMD5\r\n XSHA\r\n XSHA1\r\n XSHA256\r\n XSHA512\r\n211 End"},
		{nil, "OPTS MLST size;modify;\r\nFEAT", " MLST type;size*;modify*;unique;unix.mode;\r\n"},
		{nil, "FEAT", " HASH SHA-256*;SHA-512;SHA-1;MD5;CRC32;\r\n"},
	} {
		var o Options
		if tc.change != nil {
			tc.change(&o)
		}
		pass, replies := ask(o, tc.lines)
		if !strings.Contains("\n"+replies, "\n"+tc.last) || (tc.last == "") != (pass != "") {
			t.Errorf("%q: %q, the library got %q", tc.lines, replies, pass)
		}
	}
	for _, tc := range []struct{ line, pass, reply string }{
		{"PASV", "", "425 "},
		{"EPSV 2", "EPSV", ""},
		{"EPSV 1", "", "522 use the family of the control connection (2)"},
		{"EPRT |2|::1|50000|", "EPRT |2|::1|50000|", ""},
		{"EPRT |2|::|50000|", "EPRT |2|::1|50000|", ""},
		{"EPRT |1|127.0.0.1|50000|", "", "522 use (2)"},
		{"EPRT |2|::1%lo|50000|", "", "501 "},
		{"PORT 127,0,0,1,195,80", "", "501 PORT is for IPv4 only"},
		{"PORT 0,0,0,0,195,80", "", "501 PORT is for IPv4 only"},
	} {
		s := scripted(tc.line)
		s.six = true
		c, _ := connected(s, Options{})
		buf := make([]byte, 4096)
		n, _ := c.Read(buf)
		if got := strings.TrimSpace(string(buf[:n])); got != tc.pass || !strings.HasPrefix(s.replies.String(), tc.reply) {
			t.Errorf("over IPv6, %s: the library got %q, the reply is %q", tc.line, got, s.replies.String())
		}
	}
}

// The library gets no command that needs a login before it, and none without a required argument.
func TestCommandsBeforeLoginAndWithoutArgument(t *testing.T) {
	beforeLogin := strings.Fields("USER PASS ACCT REIN QUIT AUTH PBSZ PROT FEAT HELP SYST NOOP CLNT OPTS SMNT CCC LANG HOST ADAT MIC CONF ENC")
	withoutArgument := strings.Fields("PASS ACCT REIN QUIT FEAT HELP SYST NOOP CLNT STAT SMNT PWD XPWD CDUP XCUP MLST AVBL PASV EPSV ABOR STOU LIST NLST MLSD CCC LANG HOST ADAT MIC CONF ENC")
	for name := range commands() {
		s := scripted(name + " x")
		c, _ := connected(s, Options{})
		c.account = ""
		n, _ := c.Read(make([]byte, 4096))
		refused := strings.HasPrefix(s.replies.String(), "530 please log in")
		if refused == slices.Contains(beforeLogin, name) || refused && n != 0 {
			t.Errorf("%s before the login: %q, the library got %d bytes", name, s.replies.String(), n)
		}
		for _, line := range []string{name, name + "   "} {
			pass, reply := ask(Options{}, line)
			refused := strings.HasPrefix(reply, "501 "+name+" needs an argument")
			if refused == slices.Contains(withoutArgument, name) || refused && pass != "" {
				t.Errorf("%q: %q, the library got %q", line, reply, pass)
			}
		}
		_, usage := ask(Options{}, "HELP "+name)
		if _, list := ask(Options{}, "HELP"); strings.HasPrefix(usage, "214 Syntax: "+name) != slices.Contains(strings.Fields(list), name) {
			t.Errorf("HELP %s: %q", name, usage)
		}
	}
}

// A panic in this package or in the driver ends no connection, and the command ends.
func TestAPanicIsAnInternalError(t *testing.T) {
	s := scripted("PWD", "STRU F")
	c, h := connected(s, Options{})
	h.onBegin = func(cmd *Command) {
		if cmd.Verb == "PWD" {
			panic("a bug")
		}
	}
	if n, _ := c.Read(make([]byte, 4096)); n > 0 || s.replies.String() != "451 internal error\r\n200 OK\r\n" {
		t.Errorf("%q", s.replies.String())
	}
	if notes := h.notes(); notes != "ended: closed by the client" || h.begun != 0 {
		t.Errorf("%q, %d commands did not end", notes, h.begun)
	}
}
