package control

import (
	"strings"
	"testing"
)

// What becomes of each command: the line that the library gets, or the reply of control's.
var table = []struct {
	line  string
	pass  string // what the library gets; "": nothing
	reply string // the beginning of what control says
}{
	{line: "USER u", reply: "530 you are logged in"},
	{line: "PASS p", pass: "PASS p"},
	{line: "PASS", pass: "PASS"},
	{line: "ACCT a", reply: "202 "},
	{line: "ACCT", reply: "202 "},
	{line: "REIN", pass: "REST 0"},
	{line: "QUIT", pass: "QUIT"},
	{line: "AUTH TLS", reply: "534 "},
	{line: "AUTH GSSAPI", reply: "504 "},
	{line: "PBSZ 0", reply: "503 "},
	{line: "PROT P", reply: "503 "},
	{line: "FEAT", reply: "211-"},
	{line: "HELP", reply: "214-"},
	{line: "HELP mkd", reply: "214 Syntax: MKD path"},
	{line: "HELP PWD", reply: "214 Syntax: PWD : the current directory"},
	{line: "HELP nonsense", reply: "502 "},
	{line: "HELP SMNT", reply: "502 "},
	{line: "SYST", pass: "SYST"},
	{line: "NOOP", pass: "NOOP"},
	{line: "noop now", pass: "noop now"},
	{line: "CLNT a client", pass: "CLNT a client"},
	{line: "OPTS UTF8 ON", pass: "OPTS UTF8"},
	{line: "OPTS utf-8", pass: "OPTS UTF8"},
	{line: "OPTS HASH md5", pass: "OPTS HASH MD5"},
	{line: "OPTS HASH", pass: "OPTS HASH"},
	{line: "OPTS MLST size;type;nonsense;", reply: "200 MLST OPTS type;size;\r\n"},
	{line: "OPTS MLST", reply: "200 MLST OPTS\r\n"},
	{line: "OPTS x", reply: "501 "},
	{line: "STAT", reply: "211-"},
	{line: "STAT  ", reply: "211-"},
	{line: "STAT a b", pass: "STAT a b"},
	{line: "SMNT /", reply: "502 "},

	{line: "MKD  a ", pass: "MKD  a "},
	{line: "XMKD a", pass: "XMKD a"},
	{line: "RMD a", pass: "RMD a"},
	{line: "XRMD a", pass: "XRMD a"},
	{line: "PWD", pass: "PWD"},
	{line: "XPWD", pass: "XPWD"},
	{line: "CWD a", pass: "CWD a"},
	{line: "XCWD a", pass: "XCWD a"},
	{line: "CDUP", pass: "CDUP"},
	{line: "XCUP", pass: "CDUP"},
	{line: "SITE HELP", pass: "SITE HELP"},

	{line: "DELE a", pass: "DELE a"},
	{line: "RNFR a", pass: "RNFR a"},
	{line: "RNTO a", pass: "RNTO a"},
	{line: "SIZE a", pass: "SIZE a"},
	{line: "MDTM a b", pass: "MDTM a b"},
	{line: "MDTM 20200102030405 a b", pass: "MFMT 20200102030405 a b"},
	{line: "MDTM 20200102030405", pass: "MDTM 20200102030405"},
	{line: "MDTM 20200102030405 ", pass: "MDTM 20200102030405 "},
	{line: "MDTM 2020010203040x a", pass: "MDTM 2020010203040x a"},
	{line: "MFMT 20200102030405 a", pass: "MFMT 20200102030405 a"},
	{line: "MLST", pass: "MLST"},
	{line: "MLST a", pass: "MLST a"},
	{line: "AVBL", pass: "AVBL"},
	{line: "HASH a b", pass: `HASH "a b"`},
	{line: `HASH a"b`, pass: `HASH "a""b"`},
	{line: `HASH "a b"`, pass: `HASH "a b"`},
	{line: `HASH "`, pass: `HASH """"`},
	{line: "xcrc a b", pass: `XCRC "a b"`},
	{line: "MD5 a", pass: `MD5 "a"`},
	{line: "XMD5 a", pass: `XMD5 "a"`},
	{line: "XSHA a", pass: `XSHA "a"`},
	{line: "XSHA1 a", pass: `XSHA1 "a"`},
	{line: "XSHA256 a", pass: `XSHA256 "a"`},
	{line: "XSHA512 a", pass: `XSHA512 "a"`},

	{line: "TYPE a", pass: "TYPE A"},
	{line: "TYPE A N", pass: "TYPE A N"},
	{line: "type an", pass: "TYPE AN"},
	{line: "TYPE i", pass: "TYPE I"},
	{line: "TYPE L 8", pass: "TYPE L 8"},
	{line: "TYPE E", pass: "TYPE E"},
	{line: "MODE s", pass: "MODE S"},
	{line: "MODE b", pass: "MODE B"},
	{line: "STRU f", reply: "200 "},
	{line: "STRU R", reply: "504 "},
	{line: "ALLO 12", pass: "ALLO 12"},
	{line: "ALLO 12 R 3", pass: "ALLO 12"},
	{line: "ALLO 12 r 3", pass: "ALLO 12"},
	{line: "ALLO  012 ", pass: "ALLO 012"},
	{line: "ALLO -1", reply: "501 "},
	{line: "ALLO \t", reply: "501 "},
	{line: "ALLO x", reply: "501 "},
	{line: "ALLO 9223372036854775808", reply: "501 "},
	{line: "REST 12", pass: "REST 12"},
	{line: "REST 007", pass: "REST 007"},
	{line: "REST -1", reply: "501 "},
	{line: "REST x", reply: "501 "},
	{line: "PASV", pass: "PASV"},
	{line: "PASV x", pass: "PASV"},
	{line: "EPSV", pass: "EPSV"},
	{line: "EPSV 1", pass: "EPSV"},
	{line: "EPSV 2", reply: "522 use the family of the control connection (1)"},
	{line: "EPSV 3", reply: "522 "},
	{line: "EPSV all", reply: "200 "},
	{line: "PORT 127,0,0,1,195,80", pass: "EPRT |1|127.0.0.1|50000|"},
	{line: "PORT 0,0,0,0,195,81", pass: "EPRT |1|127.0.0.1|50001|"},
	{line: "PORT 127,0,0,2,195,80", reply: "501 "},
	{line: "PORT 127,0,0,1,3,255", reply: "501 "},
	{line: "PORT 127,0,0,1,4", reply: "501 "},
	{line: "PORT 127,0,0,1,195,80,0", reply: "501 "},
	{line: "PORT 127,0,0,1,256,0", reply: "501 "},
	{line: "PORT ,,,,,", reply: "501 "},
	{line: "EPRT |1|127.0.0.1|50000|", pass: "EPRT |1|127.0.0.1|50000|"},
	{line: "EPRT !1!127.0.0.1!50000!", pass: "EPRT |1|127.0.0.1|50000|"},
	{line: "EPRT |2|::ffff:127.0.0.1|50000|", pass: "EPRT |1|127.0.0.1|50000|"},
	{line: "EPRT |2|::|50000|", pass: "EPRT |1|127.0.0.1|50000|"},
	{line: "EPRT |2|127.0.0.1|50000|", reply: "501 "},
	{line: "EPRT |1|127.0.0.1|80|", reply: "501 "},
	{line: "EPRT |1|127.0.0.1|65536|", reply: "501 "},
	{line: "EPRT |1|127.0.0.2|50000|", reply: "501 "},
	{line: "EPRT |3|127.0.0.1|50000|", reply: "522 use (1,2)"},
	{line: "EPRT |1|localhost|50000|", reply: "501 "},
	{line: "EPRT |", reply: "501 "},

	{line: "RETR a", pass: "RETR a"},
	{line: "STOR a b", pass: "STOR a b"},
	{line: "APPE a", pass: "APPE a"},
	{line: "STOU", pass: "STOR ."},
	{line: "STOU a b", pass: "STOR a b"},
	{line: "LIST -al a", pass: "RETR ."},
	{line: "NLST", pass: "RETR ."},
	{line: "MLSD a", pass: "RETR ."},

	{line: "CCC", reply: "502 "},
	{line: "LANG en", reply: "502 "},
	{line: "HOST x", reply: "502 "},
	{line: "ADAT x", reply: "502 "},
	{line: "MIC x", reply: "502 "},
	{line: "CONF x", reply: "502 "},
	{line: "ENC x", reply: "502 "},
	{line: "NONSENSE", reply: "500 'NONSENSE' is not a command"},
	{line: "XABOR", reply: "500 "},
	{line: "MKD\ta", reply: "500 "},
}

// aborts are left to the tests that transfer: ABOR may be answered on either side.
var aborts = map[string]bool{"ABOR": true}

func TestTable(t *testing.T) {
	tried := map[string]bool{}
	for _, tc := range table {
		verb, _, _ := strings.Cut(strings.ToUpper(tc.line), " ")
		tried[verb] = true
		s, r := scripted(tc.line), &recorder{}
		c := connected(s, Options{Policy: func() Policy { return Policy{Active: true} }}, r)
		buf := make([]byte, 4096)
		n, _ := c.Read(buf)
		want := tc.pass
		if want != "" {
			want += "\r\n"
		}
		if got := string(buf[:n]); got != want {
			t.Errorf("%s: the library got %q, want %q", tc.line, got, want)
		}
		if got := s.replies.String(); tc.reply == "" && got != "" || !strings.HasPrefix(got, tc.reply) {
			t.Errorf("%s: the reply is %q, want %q", tc.line, got, tc.reply)
		}
	}
	for name := range commands() {
		if !tried[name] && !aborts[name] {
			t.Errorf("%s was not tried", name)
		}
	}
}

// Commands that wait for a login are refused before it, and say nothing to the library.
func TestCommandsBeforeLogin(t *testing.T) {
	everybody := map[string]bool{}
	for _, name := range strings.Fields("USER PASS ACCT REIN QUIT AUTH PBSZ PROT FEAT HELP SYST NOOP CLNT OPTS STAT SMNT CCC LANG HOST ADAT MIC CONF ENC") {
		everybody[name] = true
	}
	for name := range commands() {
		s, r := scripted(name+" x"), &recorder{}
		c := connected(s, Options{}, r)
		c.loggedIn = false
		buf := make([]byte, 4096)
		n, _ := c.Read(buf)
		refused := strings.HasPrefix(s.replies.String(), "530 please log in")
		if name == "STAT" { // of a path
			if !refused || n != 0 {
				t.Error("STAT of a path was let through")
			}
			continue
		}
		if refused == everybody[name] || refused && n != 0 {
			t.Errorf("%s: %q, the library got %q", name, s.replies.String(), buf[:n])
		}
	}
}

func TestBareCommands(t *testing.T) {
	bare := map[string]bool{}
	for _, name := range strings.Fields("PASS ACCT REIN QUIT FEAT HELP SYST NOOP CLNT STAT SMNT PWD XPWD CDUP XCUP MLST AVBL PASV EPSV ABOR STOU LIST NLST MLSD CCC LANG HOST ADAT MIC CONF ENC") {
		bare[name] = true
	}
	for name := range commands() {
		for _, line := range []string{name, name + " ", name + "   "} {
			s := scripted(line)
			c := connected(s, Options{}, &recorder{})
			buf := make([]byte, 4096)
			n, _ := c.Read(buf)
			refused := strings.HasPrefix(s.replies.String(), "501 "+name+" needs an argument")
			if refused == bare[name] || refused && n != 0 {
				t.Errorf("%q: %q, the library got %q", line, s.replies.String(), buf[:n])
			}
		}
	}
}

func TestAfterEpsvAllThereIsEpsvOnly(t *testing.T) {
	for line, want := range map[string]string{
		"PASV": "501 ", "PORT 127,0,0,1,195,80": "501 ", "EPRT |1|127.0.0.1|50000|": "501 ", "EPSV ALL": "200 ", "EPSV": "",
	} {
		s := scripted("EPSV ALL", line)
		c := connected(s, Options{Policy: func() Policy { return Policy{Active: true} }}, &recorder{})
		n, _ := c.Read(make([]byte, 4096))
		_, reply, _ := strings.Cut(s.replies.String(), "\r\n")
		if !strings.HasPrefix(reply, want) || (want == "") != (n > 0) {
			t.Errorf("%s: %q, the library got %d bytes", line, reply, n)
		}
	}
}

func TestOverIPv6(t *testing.T) {
	for _, tc := range []struct{ line, pass, reply string }{
		{"PASV", "", "425 "},
		{"EPSV", "EPSV", ""},
		{"EPSV 2", "EPSV", ""},
		{"EPSV 1", "", "522 use the family of the control connection (2)"},
		{"EPRT |2|::1|50000|", "EPRT |2|::1|50000|", ""},
		{"EPRT |2|::|50000|", "EPRT |2|::1|50000|", ""},
		{"EPRT |1|127.0.0.1|50000|", "", "501 "},
		{"EPRT |2|::1%lo|50000|", "", "501 "},
		{"PORT 127,0,0,1,195,80", "", "501 "},
	} {
		s := scripted(tc.line)
		s.six = true
		c := connected(s, Options{Policy: func() Policy { return Policy{Active: true} }}, &recorder{})
		buf := make([]byte, 4096)
		n, _ := c.Read(buf)
		if got := strings.TrimSpace(string(buf[:n])); got != tc.pass || !strings.HasPrefix(s.replies.String(), tc.reply) {
			t.Errorf("%s: the library got %q, the reply is %q", tc.line, got, s.replies.String())
		}
	}
}

func TestActiveConnectionsMayBeOff(t *testing.T) {
	for _, line := range []string{"PORT 127,0,0,1,195,80", "EPRT |1|127.0.0.1|50000|"} {
		s := scripted(line)
		c := connected(s, Options{}, &recorder{})
		if n, _ := c.Read(make([]byte, 4096)); n > 0 || !strings.HasPrefix(s.replies.String(), "502 ") {
			t.Errorf("%s: %q", line, s.replies.String())
		}
	}
}

// A bug in control ends nobody else's connection, nor this one.
func TestAPanicIsAnInternalError(t *testing.T) {
	s := scripted("PWD", "STRU F")
	r := &recorder{}
	r.onBegin = func(cmd *Command) {
		if cmd.Verb == "PWD" {
			panic("a bug")
		}
	}
	c := connected(s, Options{}, r)
	if n, _ := c.Read(make([]byte, 4096)); n > 0 || s.replies.String() != "451 internal error\r\n200 OK\r\n" {
		t.Errorf("%q", s.replies.String())
	}
}
