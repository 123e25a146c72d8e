package control_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/control"
)

func TestCommandsWaitForTheTransferBeforeThem(t *testing.T) {
	both(t, func(t *testing.T, s *server, c *client) {
		data := c.passive()
		c.play("> STOR x", "< 150 ", "> NOOP", "> STRU F", "> PWD", "> SYST")
		c.settled()
		_, _ = io.WriteString(data, "content")
		_ = data.Close()
		c.play("< 226 ", "< 200 OK", "< 200 OK", `< 257 "/" is the current`, "< 215 ")
		f := <-s.files
		if f.err != nil || f.gone {
			t.Errorf("the upload: %v, gone: %v", f.err, f.gone)
		}
	})
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
	c.h.mkd = func(*control.Command, string) error { early <- struct{}{}; return nil }
	data := c.passive()
	c.play(">> STOR x\r\nMKD a\r\n", "< 150 ")
	_ = data.Close()
	c.play("< 226 ", "< 257 ")
}

// The library says 425 before it closes the handle.
func TestACommandSeesTheEndOfATransferWithoutDataConnection(t *testing.T) {
	s := serve(t, "tcp4", control.Options{}, awaitsData(10*time.Millisecond))
	c := s.login()
	early := make(chan struct{}, 1)
	s.onClose = func() {
		select {
		case <-early:
			t.Error("a command was executed before the file was closed")
		case <-time.After(100 * time.Millisecond):
		}
	}
	c.h.mkd = func(*control.Command, string) error { early <- struct{}{}; return nil }
	c.epsv()
	c.play(">> STOR x\r\nMKD a\r\nSTRU F\r\n", "< 425 ", "< 257 ", "< 200 ")
	<-s.files
	if got := c.h.notes(); got != "" {
		t.Error(got)
	}
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
	if got := c.h.notes(); got != "" {
		t.Error(got)
	}
}

func TestListingsAreTransfers(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.login()
	for line, want := range map[string]string{
		"LIST": "LIST of \r\n", "LIST -al a b": "LIST of -al a b\r\n", "nlst *": "NLST of *\r\n", "MLSD /": "MLSD of /\r\n",
	} {
		data := c.passive()
		c.play("> "+line, "< 150 ")
		if got, err := io.ReadAll(data); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", line, got, err)
		}
		c.expect("226 ")
	}
}

func TestActiveTransfers(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6"} {
		t.Run(network, func(t *testing.T) {
			s := serve(t, network, control.Options{})
			c := s.login()
			host, _, _ := net.SplitHostPort(s.addr)
			l, err := net.Listen(network, net.JoinHostPort(host, "0"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			port := l.Addr().(*net.TCPAddr).Port
			forms := []string{fmt.Sprintf("EPRT |2|%s|%d|", host, port), fmt.Sprintf("EPRT !2!::!%d!", port)} // lftp says ::
			if network == "tcp4" {
				forms = []string{fmt.Sprintf("EPRT |1|%s|%d|", host, port), fmt.Sprintf("PORT 127,0,0,1,%d,%d", port>>8, port&255)}
			}
			for _, form := range forms {
				c.play("> "+form, "< 200 ", "> STOR x")
				data, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.WriteString(data, form)
				_ = data.Close()
				c.play("< 150 ", "< 226 ", "> STOR x", "< 425 use PASV")
				if got, err := afero.ReadFile(s.fs, "x"); err != nil || string(got) != form {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
}

func TestStatIsAnsweredDuringATransfer(t *testing.T) {
	both(t, func(t *testing.T, s *server, c *client) {
		data := c.passive()
		c.play("> STOR x", "< 150 ", "> STAT", "< 211-", "<  connected", "<  type", "<  fine", "<  transferring x", "< 211 ",
			"> stat", "< 211-", "<  connected", "<  type", "<  fine", "<  transferring x", "< 211 ", "> NOOP")
		c.settled()
		_ = data.Close()
		c.play("< 226 ", "< 200 ", "> NOOP", "< 200 ")
	})
}

func TestStatOfAPathWaitsForTheTransfer(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.login()
	data := c.passive()
	c.play("> STOR x", "< 150 ", ">> STAT /\r\nSTAT\r\n")
	c.settled()
	if strings.Contains(c.h.executed(), "STAT") {
		t.Error("it did not")
	}
	_ = data.Close()
	c.expect("226 ")
	for _, code := range []string{"213 ", "211 "} {
		if got := c.reply(); !strings.HasPrefix(got[len(got)-1], code) && !strings.HasPrefix(got[len(got)-1], "212 ") {
			t.Errorf("%q", got)
		}
	}
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
			addr := c.epsv()
			c.play("> ABOR", "< 226 ", "> STOR x", "< 425 ")
			if nc, err := net.Dial("tcp", addr); err == nil {
				t.Error("the port is open")
				_ = nc.Close()
			}
		}},
		{"with an argument", func(t *testing.T, s *server, c *client) {
			c.passive()
			c.play("> STOR x", "< 150 ", "> ABOR now", "< 426 ", "< 226 ")
		}},
		{"during an upload", func(t *testing.T, s *server, c *client) {
			c.passive()
			c.play("> STOR x", "< 150 ", "> ABOR", "< 426 ", "< 226 ")
			if f := <-s.files; f.err == nil {
				t.Error("the upload was not told")
			}
		}},
		{"during a listing that nobody reads", func(t *testing.T, s *server, c *client) {
			if err := afero.WriteFile(s.fs, "big", make([]byte, 16<<20), 0o644); err != nil {
				t.Fatal(err)
			}
			c.passive()
			c.play("> RETR big", "< 150 ", "> ABOR", "< 426 ", "< 226 ")
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
			c.play(">> STOR x\r\nABOR\r\n", "< 425 ", "< 226 ")
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
			c.play("> STOR x", "< 150 ", ">> NOOP\r\nXPWD\r\nABOR\r\nXPWD\r\n", "< 426 ", "< 200 OK", "< 257 ", "< 226 ", "< 257 ")
		}},
		{"overtakes while the data connection is awaited", func(t *testing.T, s *server, c *client) {
			c.epsv()
			c.play(">> STOR x\r\nNOOP\r\nABOR\r\nXPWD\r\n", "< 426 ", "< 200 ", "< 226 ", "< 257 ")
		}},
		{"overtakes a line that is no command", func(t *testing.T, s *server, c *client) {
			c.passive()
			c.play("> STOR x", "< 150 ", ">> \r\n"+strings.Repeat("x", 10<<10)+"\r\nABOR\r\n", "< 426 ", "< 500 ", "< 500 ", "< 226 ")
		}},
		{"behind another transfer is for that one", func(t *testing.T, s *server, c *client) {
			data := c.passive()
			c.play("> STOR x", "< 150 ", ">> NOOP\r\nRETR y\r\nABOR\r\n")
			c.settled()
			_ = data.Close()
			c.play("< 226 ", "< 200 ", "< 425 ", "< 226 ")
		}},
		{"at once behind another transfer is for that one, too", func(t *testing.T, s *server, c *client) {
			data := c.passive()
			c.play("> STOR x", "< 150 ", ">> EPSV\r\nSTOR y\r\nABOR\r\n")
			c.settled()
			_ = data.Close()
			c.play("< 226 ", "< 229 ", "< 426 ", "< 226 ")
			if _, err := s.fs.Stat("x"); err != nil {
				t.Error(err)
			}
		}},
		{"an urgent one that comes before the waiting NOOP is read", func(t *testing.T, s *server, c *client) {
			c.passive()
			c.play("> STOR x", "< 150 ", "> NOOP")
			c.settled()
			c.play("> ABOR", "< 426 ", "< 200 ", "< 226 ")
		}},
		{"of an active transfer to a client that does not accept", func(t *testing.T, s *server, c *client) {
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			port := l.Addr().(*net.TCPAddr).Port
			c.play(fmt.Sprintf("> PORT 127,0,0,1,%d,%d", port>>8, port&255), "< 200 ", "> STOR x", "< 150 ", "> ABOR", "< 426 ", "< 226 ")
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
			if got := c.h.notes(); got != "" {
				t.Error(got)
			}
		})
	}
}

// Whenever ABOR comes, there are two final replies, in the order of the commands, and an upload has the effect that its
// reply tells.
func TestAbortAtAnyMoment(t *testing.T) {
	for _, tc := range []struct {
		name   string
		secure bool
		upload bool
		awaits bool // the data connection comes late, or not at all
	}{
		{name: "download"}, {name: "upload", upload: true}, {name: "download, tls", secure: true},
		{name: "upload without data connection", upload: true, awaits: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{})
			s.hangUp = 0
			if err := afero.WriteFile(s.fs, "f", bytes.Repeat([]byte("x"), 100<<10), 0o644); err != nil {
				t.Fatal(err)
			}
			c := s.dial()
			if tc.secure {
				c.play("> AUTH TLS", "< 234 ")
				c.startTLS()
			}
			c.play("> USER u", "< 331 ", "> PASS p", "< 230 ")
			seen := map[string]int{}
			for i := range 200 {
				addr, name := c.epsv(), fmt.Sprint("up", i)
				over, heard := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(over)
					if tc.awaits && i%3 == 0 {
						return
					}
					nc, err := net.Dial("tcp", addr)
					if err != nil {
						return
					}
					defer nc.Close()
					if tc.upload {
						spin(rand.IntN(200))
						_, _ = nc.Write([]byte("content"))
					} else {
						go func() { <-heard; _ = nc.Close() }() // Linux does not always reset what a closing listener had not accepted
						_, _ = io.Copy(io.Discard, nc)
					}
				}()
				if tc.upload {
					c.send("STOR " + name + "\r\n")
				} else {
					c.send("RETR f\r\n")
				}
				spin(rand.IntN(1500))
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
				got, behind := codes[0], strings.Join(codes[1:], " ")
				if got != "426" && got != "226" || behind != []string{"226 200", "200 226"}[i%2] {
					t.Fatalf("round %d: %s %s", i, got, behind)
				}
				seen[got]++
				close(heard)
				<-over
				if tc.upload {
					f := <-s.files
					_, err := s.fs.Stat(name)
					if (got == "226") != (err == nil) || (f.err == nil) != (err == nil) {
						t.Fatalf("round %d: the reply is %s, the file: %v", i, got, err)
					}
				}
			}
			t.Log(seen)
			c.play("> NOOP", "< 200 OK")
			if got := c.h.notes(); got != "" {
				t.Error(got)
			}
		})
	}
}

func TestTheEndIsNoticedDuringATransfer(t *testing.T) {
	many := repeat(20000, func(int) string { return "NOOP\r\n" })
	for name, tc := range map[string]struct {
		pipelined string
		hangUp    func(c *client)
		want      control.Reason
	}{
		"EOF":                    {"", func(c *client) { _ = c.tcp.CloseWrite() }, control.ReasonEOF},
		"EOF behind commands":    {"NOOP\r\nMKD a\r\n", func(c *client) { _ = c.tcp.CloseWrite() }, control.ReasonEOF},
		"reset":                  {"", func(c *client) { reset(c.tcp) }, control.ReasonReset},
		"reset behind commands":  {"NOOP\r\nMKD a\r\n", func(c *client) { reset(c.tcp) }, control.ReasonReset},
		"reset behind QUIT":      {"QUIT\r\n", func(c *client) { reset(c.tcp) }, control.ReasonReset},
		"EOF behind very many":   {many, func(c *client) { _ = c.tcp.CloseWrite() }, control.ReasonEOF},
		"reset behind very many": {many, func(c *client) { reset(c.tcp) }, control.ReasonReset},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{}, plain)
			c := s.login()
			told := make(chan control.Interruption, 10)
			c.h.onInterrupt = func(i control.Interruption) { told <- i }
			c.passive()
			c.play("> STOR x", "< 150 ")
			c.send(tc.pipelined)
			tc.hangUp(c)
			why := c.h.wait(t)
			if why != tc.want && len(tc.pipelined) < 64<<10 {
				t.Errorf("ended: %v", why)
			}
			if !c.h.c.Gone() {
				t.Error("it is not gone")
			}
			if f := <-s.files; f.err == nil && !f.gone {
				t.Error("the upload looks complete")
			}
			if i := <-told; i != control.Ended && (i != control.Quitting || tc.pipelined != "QUIT\r\n") {
				t.Errorf("the transfer was told %v", i)
			}
			if strings.Contains(c.h.executed(), "MKD") {
				t.Errorf("executed: %s", c.h.executed())
			}
		})
	}
}

func TestQuitLetsTheTransferFinish(t *testing.T) {
	for _, secure := range []bool{false, true} {
		{
			t.Run(fmt.Sprintf("tls %v", secure), func(t *testing.T) {
				s := serve(t, "tcp4", control.Options{}, plain)
				c := s.dial()
				if secure {
					c.play("> AUTH TLS", "< 234 ")
					c.startTLS()
				}
				c.play("> USER u", "< 331 ", "> PASS p", "< 230 ")
				told := make(chan control.Interruption, 10)
				c.h.onInterrupt = func(i control.Interruption) { told <- i }
				data := c.passive()
				c.play("> STOR x", "< 150 ", ">> XPWD\r\nQUIT\r\n")
				if i := <-told; i != control.Quitting {
					t.Errorf("the transfer was told %v", i)
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
				if f := <-s.files; f.gone {
					t.Errorf("gone: %v", f.gone)
				}
			})
		}
	}
}

func TestQuitDoesNotWaitForADataConnection(t *testing.T) {
	for name, tc := range map[string]struct{ first, then string }{
		"that is awaited already": {"STOR x\r\n", "QUIT\r\n"},
		"pipelined":               {"", "STOR x\r\nQUIT\r\n"},
		"behind other commands":   {"RETR x\r\n", "NOOP\r\nQUIT\r\n"},
		"listing":                 {"LIST\r\n", "QUIT\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{})
			if err := afero.WriteFile(s.fs, "x", nil, 0o644); err != nil {
				t.Fatal(err)
			}
			c := s.login()
			c.epsv()
			c.send(tc.first)
			c.settled()
			began := time.Now()
			c.send(tc.then)
			c.expect("425 ")
			if strings.Contains(tc.then, "NOOP") {
				c.expect("200 ")
			}
			c.expect("221 ")
			if took := time.Since(began); took > 250*time.Millisecond {
				t.Errorf("it took %v", took)
			}
			c.expectEOF()
			c.h.endedWith(t, control.ReasonQuit)
		})
	}
}

// A data connection that has come before the QUIT counts, though nobody has accepted it yet.
func TestQuitBehindADataConnectionThatHasCome(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	for range 20 {
		c := s.login()
		data := c.passive()
		_, _ = io.WriteString(data, "content")
		_ = data.Close()
		c.play(">> STOR x\r\nQUIT\r\n", "< 150 ", "< 226 ", "< 221 ")
		if f := <-s.files; f.err != nil {
			t.Error(f.err)
		}
	}
}

// What a transfer asks for at its end: that an ABOR which arrived before was told of.
func TestWhatHasArrivedIsLookedAt(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := serve(t, "tcp4", control.Options{}, plain)
		c := s.dial()
		if secure {
			c.play("> AUTH TLS", "< 234 ")
			c.startTLS()
		}
		c.play("> USER u", "< 331 ", "> PASS p", "< 230 ")
		for range 200 {
			told := make(chan control.Interruption, 10)
			c.h.onInterrupt = func(i control.Interruption) { told <- i }
			data := c.passive()
			c.play("> STOR x", "< 150 ")
			c.send("NOOP\r\nABOR\r\n")
			c.h.c.CatchUp(patience)
			select {
			case i := <-told:
				if i != control.Aborted {
					t.Fatalf("the transfer was told %v", i)
				}
			default:
				t.Fatal("ABOR was not told of")
			}
			c.play("< 426 ", "< 200 ", "< 226 ")
			_ = data.Close()
		}
		began := time.Now() // more than is read ahead is not waited for
		c.passive()
		c.play("> STOR x", "< 150 ")
		c.send(strings.Repeat("NOOP\r\n", 40_000))
		c.h.c.CatchUp(20 * time.Millisecond)
		if took := time.Since(began); took > patience/2 {
			t.Errorf("it took %v", took)
		}
	}
}

func TestInterruptionsBeforeOnInterruptAreToldToo(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.login()
	var told []control.Interruption
	c.h.onInterrupt = func(i control.Interruption) { told = append(told, i) }
	opening, open := make(chan struct{}), make(chan struct{})
	s.onFile = func(string) { close(opening); <-open }
	c.epsv()
	c.send("STOR x\r\n")
	within(t, "the file is opened", opening)
	c.send("ABOR\r\nQUIT\r\n")
	c.tap.arrived(c.sent)
	c.settled()
	close(open)
	c.play("< 426 ", "< 226 ", "< 221 ")
	c.h.endedWith(t, control.ReasonQuit)
	if !slices.Equal(told, []control.Interruption{control.Aborted, control.Quitting}) {
		t.Errorf("told: %v", told)
	}
}

// A panic of the driver ends the transfer, and nothing else.
func TestAPanicEndsTheTransferOnly(t *testing.T) {
	t.Run("when the file is opened", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{})
		c := s.login()
		s.onFile = func(string) { panic("a bug\nof two lines") }
		c.passive()
		c.play(">> STOR bad\r\nNOOP\r\n", "< 451 internal error", "< 200 ")
		s.onFile = nil
		c.upload(c.passive(), "good")
	})
	t.Run("when bytes move", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{})
		c := s.login()
		s.onMove = func() { panic("a bug") }
		c.passive()
		c.play(">> STOR bad\r\nNOOP\r\n", "< 150 ", "< 451 internal error", "< 200 ")
		s.onMove = nil
		c.upload(c.passive(), "good")
	})
}

// The library cannot be told to give up an active data connection that nobody accepts: ABOR and QUIT wait for
// Settings.ConnectionTimeout, and so do a kick and the end of the client.
func TestAnActiveConnectionThatIsNotAccepted(t *testing.T) {
	for name, tc := range map[string]struct {
		end    func(c *client)
		within time.Duration
	}{
		"ABOR":   {func(c *client) { c.play("> ABOR", "< 426 ", "< 226 ") }, 2 * connectionTimeout},
		"QUIT":   {func(c *client) { c.play("> QUIT", "< 425 ", "< 221 ") }, 2 * connectionTimeout},
		"kick":   {func(c *client) { c.h.c.Kick(control.Reply{Code: 421}); c.h.wait(c.t) }, 2 * connectionTimeout},
		"hangup": {func(c *client) { _ = c.tcp.Close(); c.h.wait(c.t) }, 2 * connectionTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{})
			c := s.login()
			fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer syscall.Close(fd)
			if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
				t.Fatal(err)
			}
			sa, _ := syscall.Getsockname(fd)
			port := sa.(*syscall.SockaddrInet4).Port
			for full := false; !full; { // the backlog
				nc, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", port), 100*time.Millisecond)
				if full = err != nil; !full {
					defer nc.Close()
				}
			}
			c.play(fmt.Sprintf("> PORT 127,0,0,1,%d,%d", port>>8, port&255), "< 200 ", "> STOR x")
			c.settled()
			began := time.Now()
			tc.end(c)
			if took := time.Since(began); took > tc.within {
				t.Errorf("it took %v", took)
			}
		})
	}
}
