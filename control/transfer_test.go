package control_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/control"
	"github.com/spf13/afero"
)

func TestCommandsWaitForTheTransferBeforeThem(t *testing.T) {
	both(t, func(t *testing.T, s *server, c *client) {
		data := c.passive()
		c.play("> STOR x", "< 150 ", "> NOOP", "> XPWD", "> PWD", "> SYST")
		c.settledOrBusy()
		_, _ = io.WriteString(data, "content")
		_ = data.Close()
		c.play("< 226 ", "< 200 control's NOOP", `< 257 "/" is it`, `< 257 "/" is the current`, "< 215 ")
		f := <-s.files
		if f.err != nil || f.gone {
			t.Errorf("the upload: %v, gone: %v", f.err, f.gone)
		}
	})
}

// settledOrBusy is settled where the tap can count: in the clear.
func (c *client) settledOrBusy() {
	if c.conn == net.Conn(c.tcp) {
		c.settled()
	}
}

func TestACommandSeesTheEndOfTheTransfer(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.login()
	early := make(chan struct{}, 1)
	s.onClose = func() {
		select {
		case <-early:
			t.Error("a command was executed before the file was closed")
		case <-time.After(100 * time.Millisecond):
		}
	}
	c.h.any = func(_ *control.Conn, cmd control.Command) (control.Decision, bool) {
		if cmd.Verb == "NOOP" {
			early <- struct{}{}
		}
		return control.Decision{}, false
	}
	data := c.passive()
	c.play(">> STOR x\r\nNOOP\r\n", "< 150 ")
	_ = data.Close()
	c.play("< 226 ", "< 200 control's")
}

// What runs is waited for: the connection is one of the listener's until then.
func TestAConnectionIsLeftWhenNothingRunsAnyMore(t *testing.T) {
	for name, end := range map[string]func(c *client){
		"hung up":              func(c *client) { _ = c.tcp.Close() },
		"closed by the driver": func(c *client) { _ = c.h.c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{})
			c := s.login()
			running, goOn := make(chan struct{}), make(chan struct{})
			s.onFile = func(string) { close(running); <-goOn }
			c.passive()
			c.send("STOR x\r\n")
			within(t, "the transfer", running)
			end(c)
			<-c.h.over
			brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if err := s.listener.Wait(brief); err == nil {
				t.Error("the connection was left while its transfer ran")
			}
			close(goOn)
			if err := s.listener.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The transfer may end between the look at it and the wait for its end.
func TestATransferThatEndsBeforeTheWaitIsNotWaitedFor(t *testing.T) {
	s := serve(t, "tcp4", control.Options{}, plain)
	c := s.login()
	asked, go1 := make(chan struct{}), make(chan struct{})
	c.h.onUrgent = func(verb string) {
		if asked != nil {
			close(asked)
			asked = nil
			<-go1
		}
	}
	data, isAsked := c.passive(), asked
	c.play("> STOR x", "< 150 ", "> NOOP")
	within(t, "Urgent", isAsked)
	_ = data.Close()
	c.expect("226 ")
	for until := time.Now().Add(5 * time.Millisecond); time.Now().Before(until); {
		runtime.Gosched() // the transfer's goroutine goes on after the write
	}
	close(go1)
	c.expect("200 ")
}

// A reader that is about to wait when the transfer ends must not sleep on what it holds.
func TestTheEndOfATransferIsNeverMissed(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	if err := afero.WriteFile(s.fs, "f", bytes.Repeat([]byte("x"), 100), 0o644); err != nil {
		t.Fatal(err)
	}
	c := s.login()
	for range 200 {
		c.passive()
		c.play(">> RETR f\r\nNOOP\r\nPWD\r\n", "< 150 ", "< 226 ", "< 200 ", "< 257 ")
	}
}

func TestStatAnswersDuringATransfer(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.login()
	data := c.passive()
	c.play("> STOR x", "< 150 ", "> STAT", "< 211-", "<  fine", "< 211 ", "> NOOP")
	c.settled()
	_ = data.Close()
	c.play("< 226 ", "< 200 ", "> NOOP", "< 200 ")
}

// To the library a command is over when it reads on, so it can be handed none meanwhile.
func TestWhatIsPassedDuringATransferIsRefused(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.login()
	c.h.any = func(_ *control.Conn, cmd control.Command) (control.Decision, bool) {
		return control.Pass(cmd.Line), cmd.Verb == "STAT"
	}
	data := c.passive()
	c.play("> STOR x", "< 150 ", "> STAT", "< 502 ")
	_ = data.Close()
	c.play("< 226 ")
}

func TestAbort(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(t *testing.T, s *server, c *client)
	}{
		{"with nothing to abort", func(t *testing.T, s *server, c *client) {
			c.play("> ABOR", "< 226 ")
		}},
		{"behind PASV", func(t *testing.T, s *server, c *client) {
			c.passive()
			c.play("> ABOR", "< 226 ")
		}},
		{"during an upload", func(t *testing.T, s *server, c *client) {
			c.passive()
			c.play("> STOR x", "< 150 ", "> ABOR", "< 426 ", "< 226 ")
			if f := <-s.files; f.err == nil {
				t.Error("the upload was not told")
			}
		}},
		{"pipelined behind an upload", func(t *testing.T, s *server, c *client) {
			c.passive()
			c.play(">> STOR x\r\nABOR\r\n")
			line, err := c.line()
			if err == nil && strings.HasPrefix(line, "150 ") { // it may be too early for that
				line, err = c.line()
			}
			if err != nil || !strings.HasPrefix(line, "426 ") {
				t.Errorf("%q, %v", line, err)
			}
			c.play("< 226 ")
		}},
		{"after a transfer", func(t *testing.T, s *server, c *client) {
			data := c.passive()
			c.play("> STOR x", "< 150 ")
			_ = data.Close()
			c.play("< 226 ", "> ABOR", "< 226 ")
		}},
		{"of a transfer that failed", func(t *testing.T, s *server, c *client) {
			c.passive()
			c.play(">> RETR nothing\r\nABOR\r\n", "< 550 ", "< 226 ")
		}},
		{"of one without data connection", func(t *testing.T, s *server, c *client) {
			c.play(">> STOR x\r\nABOR\r\n", "< 550 ", "< 226 ")
		}},
		{"twice", func(t *testing.T, s *server, c *client) {
			c.passive()
			c.play("> STOR x", "< 150 ", ">> ABOR\r\nABOR\r\n", "< 426 ", "< 226 ", "< 226 ")
		}},
		{"while the data connection is awaited", func(t *testing.T, s *server, c *client) {
			c.epsv()
			c.play("> STOR x", "> ABOR", "< 426 ", "< 226 ")
		}},
		{"while the file is being opened", func(t *testing.T, s *server, c *client) {
			opening, open := make(chan struct{}), make(chan struct{})
			s.onFile = func(string) { close(opening); <-open }
			c.passive()
			c.send("STOR x\r\n")
			within(t, "the file is opened", opening)
			c.send("ABOR\r\n")
			c.settled()
			close(open)
			c.play("< 426 ", "< 226 ")
			s.onFile = nil
		}},
		{"overtakes what waits, its reply does not", func(t *testing.T, s *server, c *client) {
			c.passive()
			c.play("> STOR x", "< 150 ", ">> NOOP\r\nXPWD\r\nABOR\r\nXPWD\r\n",
				"< 426 ", "< 200 control's NOOP", "< 257 ", "< 226 ", "< 257 ")
		}},
		{"answered by the handler overtakes too", func(t *testing.T, s *server, c *client) {
			c.h.any = func(_ *control.Conn, cmd control.Command) (control.Decision, bool) {
				return control.Answer(control.Reply{Code: 225, Text: "not today"}), cmd.Verb == "ABOR"
			}
			data := c.passive()
			c.play("> STOR x", "< 150 ", ">> NOOP\r\nABOR\r\nXPWD\r\n")
			c.settled()
			if !strings.HasSuffix(c.h.executed(), "ABOR") {
				t.Errorf("executed: %s", c.h.executed())
			}
			_ = data.Close()
			c.play("< 226 ", "< 200 ", "< 225 not today", "< 257 ")
			c.h.any = nil
		}},
		{"overtakes while the data connection is awaited", func(t *testing.T, s *server, c *client) {
			c.epsv()
			c.play(">> STOR x\r\nNOOP\r\nABOR\r\nXPWD\r\n", "< 426 ", "< 200 ", "< 226 ", "< 257 ")
		}},
		{"behind another transfer is for that one", func(t *testing.T, s *server, c *client) {
			data := c.passive()
			c.play("> STOR x", "< 150 ", ">> NOOP\r\nRETR y\r\nABOR\r\n")
			c.settled()
			_ = data.Close()
			c.play("< 226 ", "< 200 ", "< 550 ", "< 226 ")
		}},
		{"at once behind another transfer is for that one, too", func(t *testing.T, s *server, c *client) {
			data := c.passive()
			c.play("> STOR x", "< 150 ", ">> RETR y\r\nABOR\r\n")
			c.settled()
			_ = data.Close()
			c.play("< 226 ", "< 550 ", "< 226 ")
		}},
		{"an urgent one that comes before the waiting NOOP is read", func(t *testing.T, s *server, c *client) {
			c.passive()
			c.play("> STOR x", "< 150 ", "> NOOP")
			c.settled()
			c.play("> ABOR", "< 426 ", "< 200 ", "< 226 ")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{})
			c := s.login()
			tc.run(t, s, c)
			// All is as before: nothing more is said, and the next transfer works.
			data := c.passive()
			c.play("> NOOP", "< 200 ", "> STOR again", "< 150 ")
			_, _ = io.WriteString(data, "all")
			_ = data.Close()
			c.play("< 226 ", "> NOOP", "< 200 ")
			if got, err := afero.ReadFile(s.fs, "again"); err != nil || string(got) != "all" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// Whenever ABOR comes, there are two final replies, in the order of the commands.
func TestAbortAtAnyMoment(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	if err := afero.WriteFile(s.fs, "f", bytes.Repeat([]byte("x"), 100<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	c := s.login()
	for i := range 150 {
		data := c.passive()
		go func() { _, _ = io.Copy(io.Discard, data) }()
		c.send("RETR f\r\n")
		spin(rand.IntN(200))
		if i%2 == 0 {
			c.send("ABOR\r\nNOOP\r\n")
		} else {
			c.send("NOOP\r\nABOR\r\n")
		}
		var codes []string
		for len(codes) < 3 {
			line, err := c.line()
			if err != nil {
				t.Fatalf("round %d, after %q: %v", i, codes, err)
			}
			if line[:3] != "150" || len(codes) > 0 { // ABOR may come before that
				codes = append(codes, line[:3])
			}
		}
		got := strings.Join(codes, " ")
		want := map[bool][]string{
			true:  {"426 226 200", "226 226 200"},
			false: {"426 200 226", "226 200 226"},
		}[i%2 == 0]
		if !strings.Contains(strings.Join(want, ";"), got) {
			t.Fatalf("got %s, want one of %q", got, want)
		}
	}
	c.play("> NOOP", "< 200 control's")
}

// spin passes about so many microseconds.
func spin(n int) {
	for until := time.Now().Add(time.Duration(n) * time.Microsecond); time.Now().Before(until); {
	}
}

func TestTheEndIsNoticedDuringATransfer(t *testing.T) {
	for name, tc := range map[string]struct {
		pipelined string
		hangUp    func(c *client)
		want      control.Reason
	}{
		"EOF":                    {"", func(c *client) { _ = c.tcp.CloseWrite() }, control.ReasonEOF},
		"EOF behind commands":    {"NOOP\r\nMKD a\r\n", func(c *client) { _ = c.tcp.CloseWrite() }, control.ReasonEOF},
		"reset":                  {"", func(c *client) { reset(c.tcp) }, control.ReasonReset},
		"reset behind commands":  {"NOOP\r\nMKD a\r\n", func(c *client) { reset(c.tcp) }, control.ReasonReset},
		"EOF behind very many":   {repeat(20000, func(int) string { return "NOOP\r\n" }), func(c *client) { _ = c.tcp.CloseWrite() }, control.ReasonEOF},
		"reset behind very many": {repeat(20000, func(int) string { return "NOOP\r\n" }), func(c *client) { reset(c.tcp) }, control.ReasonReset},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{}, plain)
			c := s.login()
			data := c.passive()
			c.play("> STOR x", "< 150 ")
			c.send(tc.pipelined)
			tc.hangUp(c)
			select {
			case why := <-c.h.over:
				if why != tc.want && !(tc.want == control.ReasonReset && why == control.ReasonEOF && len(tc.pipelined) > 64<<10) {
					t.Errorf("ended: %v", why)
				}
			case <-time.After(patience):
				t.Fatal("not noticed")
			}
			if !c.h.c.Gone() {
				t.Error("it is not gone")
			}
			_ = data.Close()
			if f := <-s.files; f.err == nil && !f.gone {
				t.Error("the upload looks complete")
			}
			if strings.Contains(c.h.executed(), "MKD") {
				t.Errorf("executed: %s", c.h.executed())
			}
		})
	}
}

func TestQuitLetsTheTransferFinish(t *testing.T) {
	for _, halfClosed := range []bool{false, true} {
		s := serve(t, "tcp4", control.Options{}, plain)
		c := s.login()
		data := c.passive()
		c.play("> STOR x", "< 150 ", ">> XPWD\r\nQUIT\r\n")
		if halfClosed {
			_ = c.tcp.CloseWrite()
			if !c.h.c.GoneWithin(patience) {
				t.Error("not gone")
			}
		}
		select {
		case why := <-c.h.over:
			t.Errorf("ended: %v", why)
		default:
		}
		_ = data.Close()
		c.play("< 226 ", "< 257 ", "< 221 ")
		c.expectEOF()
		c.h.endedWith(t, control.ReasonQuit)
		if f := <-s.files; f.gone != halfClosed {
			t.Errorf("gone: %v", f.gone)
		}
	}
}

func TestAReadAheadOfManyCommandsLosesNone(t *testing.T) {
	s := serve(t, "tcp4", control.Options{}, plain)
	c := s.login()
	data := c.passive()
	c.play("> STOR x", "< 150 ")
	const n = 30000
	go func() {
		_, _ = io.WriteString(c.conn, repeat(n, func(int) string { return "XPWD\r\n" }))
		_ = data.Close()
	}()
	c.expect("226 ")
	for range n {
		c.expect("257 ")
	}
}

// What a transfer asks for at its end: that an ABOR which arrived before was told of.
func TestWhatHasArrivedIsLookedAt(t *testing.T) {
	s := serve(t, "tcp4", control.Options{}, plain)
	c := s.login()
	for range 200 {
		data := c.passive()
		c.play("> STOR x", "< 150 ")
		told := make(chan struct{})
		c.h.onAbort = func() { close(told) }
		c.send("NOOP\r\nABOR\r\n")
		c.h.c.CatchUp(patience)
		select {
		case <-told:
		default:
			t.Fatal("ABOR was not told of")
		}
		c.play("< 426 ", "< 200 ", "< 226 ")
		_ = data.Close()
	}
	c.h.onAbort = nil
	began := time.Now() // more than is read ahead is not waited for
	c.passive()
	c.play("> STOR x", "< 150 ")
	c.send(strings.Repeat("NOOP\r\n", 40_000))
	c.h.c.CatchUp(20 * time.Millisecond)
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it took %v", took)
	}
}

func TestBehind(t *testing.T) {
	s := serve(t, "tcp4", control.Options{}, plain)
	c := s.login()
	behind := make(chan bool, 10)
	goOn := make(chan struct{})
	c.h.any = func(conn *control.Conn, cmd control.Command) (control.Decision, bool) {
		if cmd.Verb == "XPWD" {
			<-goOn
			behind <- conn.Behind()
		}
		return control.Decision{}, false
	}
	for raw, want := range map[string]bool{"XPWD\r\n": false, "XPWD\r\nNOOP\r\n": true, "XPWD\r\nNO": true} {
		c.send(raw)
		goOn <- struct{}{}
		if got := <-behind; got != want {
			t.Errorf("%q: %v", raw, got)
		}
		c.expect("257 ")
		if want {
			c.send(strings.TrimPrefix("OP\r\n", map[bool]string{true: "OP\r\n"}[strings.HasSuffix(raw, "\n")]))
			c.expect("200 ")
		}
	}
	c.send("XPWD\r\n") // what comes while it is executed
	for until := time.Now().Add(10 * time.Millisecond); time.Now().Before(until); {
		runtime.Gosched()
	}
	c.send("NOOP\r\n")
	goOn <- struct{}{}
	if !<-behind {
		t.Error("what came meanwhile was not seen")
	}
	c.expect("257 ", "200 ")
}
