package control_test

import (
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/internal/control"
)

// both runs the test in the clear and under TLS, over IPv4 and IPv6, with a client that has logged in.
func both(t *testing.T, f func(t *testing.T, s *server, c *client)) {
	for _, network := range []string{"tcp4", "tcp6"} {
		for _, secure := range []bool{false, true} {
			name := network
			if secure {
				name += " tls"
			}
			t.Run(name, func(t *testing.T) {
				s := serve(t, network, control.Options{})
				c := s.dial()
				if secure {
					c.play("> AUTH TLS", "< 234 ")
					c.startTLS()
				}
				c.play("> USER u", "< 331 ", "> PASS p", "< 230 ")
				f(t, s, c)
			})
		}
	}
}

func TestTranscripts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps []string
	}{
		{"control answers, the library answers", []string{"> STRU F", "< 200 OK", "> PWD", `< 257 "/" is the current directory`}},
		{"lower case", []string{"> stru f", "< 200 OK", "> pwd", `< 257 "/" is the current`}},
		{"pipelined in one segment", []string{
			">> NOOP\r\nPWD\r\nSTRU F\r\nCWD /nowhere\r\nNOOP\r\n",
			"< 200 OK", `< 257 "/" is the current`, "< 200 OK", "< 550 ", "< 200 OK"}},
		{"split at every byte", []string{">> N", ">> O", ">> O", ">> P", ">> \r", ">> \nXP", ">> WD\r\n", "< 200 OK", `< 257 "/" is`}},
		{"bare LF", []string{">> NOOP\nXPWD\n", "< 200 ", "< 257 "}},
		{"CR CR LF", []string{">> NOOP\r\r\n", "< 200 OK"}},
		{"an empty line is no command", []string{"> ", "< 500 no command", "> NOOP", "< 200 "}},
		{"a line that begins with a space", []string{">>  NOOP\r\n", "< 500 no command", "> NOOP", "< 200 "}},
		{"NUL", []string{">> NO\x00OP\r\n", "< 501 NUL", "> NOOP", "< 200 "}},
		{"CR inside", []string{">> MKD a\rb\r\n", "< 501 CR", "> NOOP", "< 200 "}},
		{"a longer line than allowed", []string{">> MKD " + strings.Repeat("x", 8<<10) + "\r\n", "< 500 line too long", "> NOOP", "< 200 "}},
		{"a far longer line", []string{">> " + strings.Repeat("x", 300<<10) + "\r\nNOOP\r\n", "< 500 line too long", "< 200 "}},
		{"a line too long for the library", []string{">> MKD " + strings.Repeat("x", 4<<10) + "\r\n", "< 500 line too long", "> NOOP", "< 200 "}},
		{"the longest line for the library", []string{">> CWD /" + strings.Repeat("x", control.MaxLine-5) + "\r\n", "< 550 ", "> NOOP", "< 200 "}},
		{"one byte more", []string{">> CWD /" + strings.Repeat("x", control.MaxLine-4) + "\r\n", "< 500 line too long", "> NOOP", "< 200 "}},
		{"several lines", []string{"> STAT", "< 211-ftplockd", "<  connected from ", "<  type ASCII", "<  fine", "< 211 End of status"}},
		{"the library's own lines of several", []string{"> MLST /", "< 250-", "<  ", "< 250 End"}},
		{"a reply that repeats what was sent stays one line", []string{">> SITE x\x0by\x1b\r\n", "< 500 Unknown SITE subcommand: X\vY\x1b", "> NOOP", "< 200 "}},
		{"Telnet sequences before a command", []string{
			">> \xff\xf4\xff\xf2NOOP\r\n", "< 200 OK",
			">> \xff\xf4\xf2NOOP\r\n", "< 200 OK",
			">> \xff\xfb\x01\xff\xfe\x03NOOP\r\n", "< 200 OK"}},
		{"only Telnet sequences", []string{">> \xff\xf1\r\n", "< 500 no command", ">> \xff\r\n", "< 500 no command"}},
		{"255 in a name is a letter", []string{"> MKD caf\xff\xf4\xff", "< 257 ", "> CWD caf\xff\xf4\xff", "< 250 "}},
		{"quit", []string{">> NOOP\r\nQUIT\r\n", "< 200 ", "< 221 "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			both(t, func(t *testing.T, _ *server, c *client) { c.play(tc.steps...) })
		})
	}
}

func TestParamsAreKeptAsTheyAre(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.login()
	var got []control.Command
	c.h.mkd = func(cmd *control.Command, name string) error {
		got = append(got, control.Command{Verb: cmd.Verb, Param: cmd.Param, Line: cmd.Line}, control.Command{Line: name})
		return nil
	}
	c.play(">> mkd  two  \r\n\xff\xf4XMKD /x\xc3\"\r\nmkd a\t\r\n", "< 257 ", "< 257 ", "< 257 ")
	want := []control.Command{
		{Verb: "MKD", Param: " two  ", Line: "mkd  two  "}, {Line: "/ two  "},
		{Verb: "XMKD", Param: "/x\xc3\"", Line: "XMKD /x\xc3\""}, {Line: "/x\xc3\""},
		{Verb: "MKD", Param: "a\t", Line: "mkd a\t"}, {Line: "/a\t"},
	}
	if len(got) != len(want) {
		t.Fatalf("%d commands", len(got)/2)
	}
	for i := range want {
		if got[i].Verb != want[i].Verb || got[i].Param != want[i].Param || got[i].Line != want[i].Line {
			t.Errorf("got %q %q %q, want %q %q %q", got[i].Verb, got[i].Param, got[i].Line, want[i].Verb, want[i].Param, want[i].Line)
		}
	}
}

func TestAnIncompleteLineIsNeverExecuted(t *testing.T) {
	for name, end := range map[string]func(c *client){
		"half-closed": func(c *client) { _ = c.tcp.CloseWrite() },
		"closed":      func(c *client) { _ = c.tcp.Close() },
		"reset":       func(c *client) { c.settled(); reset(c.tcp) },
		"kicked":      func(c *client) { c.settled(); c.h.c.Kick(control.Reply{Code: 421}) },
		"shut down":   func(c *client) { c.settled(); _ = c.s.listener.Shutdown(control.Reply{Code: 421}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{})
			c := s.login()
			c.send("MKD whole\r\nMKD half")
			c.expect("257 ")
			end(c)
			c.h.wait(t)
			if got := c.h.executed(); strings.Contains(got, "half") {
				t.Errorf("executed: %s", got)
			}
			if _, err := s.fs.Stat("half"); err == nil {
				t.Error("the directory was made")
			}
		})
	}
}

// Python's ftplib sends b"ABOR\r\n" urgent, tnftp IAC IP IAC urgent and then DM and ABOR.
func TestUrgentAbort(t *testing.T) {
	for name, parts := range map[string][2]string{
		"ftplib": {"ABOR\r\n", ""},
		"tnftp":  {"\xff\xf4\xff", "\xf2ABOR\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{}, plain)
			c := s.login()
			c.passive()
			c.play("> STOR x", "< 150 ")
			urgently(t, c.tcp, parts[0])
			c.send(parts[1])
			c.play("< 426 ", "< 226 ", "> NOOP", "< 200 ")
		})
	}
}

func urgently(t *testing.T, nc *net.TCPConn, data string) {
	t.Helper()
	raw, err := nc.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if e := raw.Control(func(fd uintptr) {
		err = syscall.Sendto(int(fd), []byte(data), syscall.MSG_OOB, nil)
	}); e != nil || err != nil {
		t.Fatal(e, err)
	}
}
