package control_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
