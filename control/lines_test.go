package control_test

import (
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/control"
)

// both runs the test in the clear and under TLS, over IPv4 and IPv6.
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
					c.play("> AUTH TLS", "< 234 go on")
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
		{"control answers, the library answers", []string{"> NOOP", "< 200 control's NOOP", "> PWD", `< 257 "/" is the current directory`}},
		{"lower case", []string{"> noop", "< 200 control's NOOP", "> pwd", `< 257 "/" is the current`}},
		{"pipelined in one segment", []string{
			">> NOOP\r\nPWD\r\nXPWD\r\nCWD /nowhere\r\nNOOP\r\n",
			"< 200 control's NOOP", `< 257 "/" is the current`, `< 257 "/" is it`, "< 550 ", "< 200 control's NOOP"}},
		{"split at every byte", []string{">> N", ">> O", ">> O", ">> P", ">> \r", ">> \nXP", ">> WD\r\n", "< 200 control's NOOP", `< 257 "/" is it`}},
		{"bare LF", []string{">> NOOP\nXPWD\n", "< 200 ", "< 257 "}},
		{"CR CR LF", []string{">> NOOP\r\r\n", "< 200 control's NOOP"}},
		{"an empty line is no command", []string{"> ", "< 500 no command", "> NOOP", "< 200 "}},
		{"a line that begins with a space", []string{">>  NOOP\r\n", "< 500 no command", "> NOOP", "< 200 "}},
		{"NUL", []string{">> NO\x00OP\r\n", "< 501 NUL", "> NOOP", "< 200 "}},
		{"CR inside", []string{">> MKD a\rb\r\n", "< 501 CR", "> NOOP", "< 200 "}},
		{"a longer line than allowed", []string{">> MKD " + strings.Repeat("x", 8<<10) + "\r\n", "< 500 line too long", "> NOOP", "< 200 "}},
		{"a far longer line", []string{">> " + strings.Repeat("x", 300<<10) + "\r\nNOOP\r\n", "< 500 line too long", "< 200 "}},
		{"a line too long for the library", []string{">> MKD " + strings.Repeat("x", 4<<10) + "\r\n", "< 500 line too long", "> NOOP", "< 200 "}},
		{"the longest line for the library", []string{">> CWD /" + strings.Repeat("x", control.MaxPass-5) + "\r\n", "< 550 ", "> NOOP", "< 200 "}},
		{"no decision", []string{"> VOID", "< 502 ", "> NOOP", "< 200 "}},
		{"several lines", []string{"> STAT", "< 211-Status", "<  fine", "< 211 End"}},
		{"a rewritten reply stays one line", []string{"> SYST", "< 215 rewritten??and not split", "> NOOP", "< 200 "}},
		{"a dropped reply", []string{">> PBSZ 0\r\nNOOP\r\n", "< 200 control's NOOP"}},
		{"the library's own lines of several", []string{"> FEAT", "< 211- ", "<  CLNT"}},
		{"Telnet sequences before a command", []string{
			">> \xff\xf4\xff\xf2NOOP\r\n", "< 200 control's NOOP",
			">> \xff\xf4\xf2NOOP\r\n", "< 200 control's NOOP",
			">> \xff\xfb\x01\xff\xfe\x03NOOP\r\n", "< 200 control's NOOP"}},
		{"only Telnet sequences", []string{">> \xff\xf1\r\n", "< 500 no command", ">> \xff\r\n", "< 500 no command"}},
		{"255 in a name is a letter", []string{"> MKD caf\xff\xf4\xff", "< 257 ", "> CWD caf\xff\xf4\xff", "< 250 "}},
		{"closed by the handler", []string{"> KILL", "< 421 as you wish"}},
		{"quit", []string{">> NOOP\r\nQUIT\r\n", "< 200 ", "< 221 "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			both(t, func(t *testing.T, _ *server, c *client) { c.play(tc.steps...) })
		})
	}
}

func TestParamsAreKeptAsTheyAre(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.dial()
	var got []control.Command
	c.h.any = func(_ *control.Conn, cmd control.Command) (control.Decision, bool) {
		got = append(got, cmd)
		return control.Answer(control.Reply{Code: 200}), true
	}
	c.play(">> mkd  two  \r\nPWD\r\nX \r\n", "< 200 ", "< 200 ", "< 200 ")
	want := []control.Command{
		{Verb: "MKD", Param: " two  ", Line: "mkd  two  "},
		{Verb: "PWD", Param: "", Line: "PWD"},
		{Verb: "X", Param: "", Line: "X "},
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %+v, want %+v", got[i], want[i])
		}
	}
}

func TestAnIncompleteLineIsNeverExecuted(t *testing.T) {
	for name, end := range map[string]func(c *client){
		"half-closed": func(c *client) { _ = c.tcp.CloseWrite() },
		"closed":      func(c *client) { _ = c.tcp.Close() },
		"kicked":      func(c *client) { c.settled(); c.h.c.Kick(control.Reply{Code: 421}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{})
			c := s.login()
			c.send("MKD whole\r\nMKD half")
			c.expect("257 ")
			end(c)
			<-c.h.over
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
