package control_test

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
)

func TestKick(t *testing.T) {
	t.Run("of an idle connection", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{})
		c := s.login()
		c.settled()
		c.h.c.Kick(control.Reply{Code: 421, Text: "enough"})
		c.expect("421 enough")
		c.expectEOF()
		c.h.endedWith(t, control.ReasonKicked)
	})
	t.Run("during a transfer", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{})
		c := s.login()
		told := make(chan control.Interruption, 10)
		c.h.onInterrupt = func(i control.Interruption) { told <- i }
		c.passive()
		c.play("> STOR x", "< 150 ", "> NOOP")
		c.settled()
		c.h.c.Kick(control.Reply{Code: 421, Text: "enough"})
		c.expect("426 ", "421 enough")
		c.expectEOF()
		c.h.endedWith(t, control.ReasonKicked)
		if !c.h.c.Gone() {
			t.Error("a kicked client is not gone")
		}
		if f := <-s.files; f.err == nil {
			t.Error("the upload looks complete")
		}
		if i := <-told; i != control.Stopped {
			t.Errorf("the transfer was told %v", i)
		}
	})
	t.Run("while a data connection is awaited", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{})
		c := s.login()
		c.epsv()
		c.send("STOR x\r\n")
		c.settled()
		c.h.c.Kick(control.Reply{Code: 421, Text: "enough"})
		c.expect("42", "421 enough")
		c.expectEOF()
		c.h.endedWith(t, control.ReasonKicked)
		<-s.files
	})
	t.Run("while a command is executed", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{})
		c := s.login()
		c.h.mkd = func(*control.Command, string) error {
			c.h.c.Kick(control.Reply{Code: 421, Text: "enough"})
			return nil
		}
		c.play(">> MKD a\r\nMKD b\r\n", "< 257 ", "< 421 enough")
		c.expectEOF()
		c.h.endedWith(t, control.ReasonKicked)
		if strings.Contains(c.h.executed(), "MKD b") {
			t.Error("a command was executed after the kick")
		}
	})
	t.Run("without a reply", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{})
		c := s.login()
		c.h.c.Kick(control.Reply{})
		c.expectEOF()
		c.h.endedWith(t, control.ReasonKicked)
	})
	t.Run("under TLS", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{})
		c := s.dial()
		c.play("> AUTH TLS", "< 234 ")
		c.startTLS()
		c.play("> NOOP", "< 200 ")
		c.h.c.Kick(control.Reply{Code: 421, Text: "enough"})
		c.expect("421 enough")
		c.expectEOF() // close_notify came
		c.h.endedWith(t, control.ReasonKicked)
	})
}

func TestTheEndIsToldOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(c *client)
		want control.Reason
	}{
		{"quit", func(c *client) { c.play("> QUIT", "< 221 ") }, control.ReasonQuit},
		{"EOF", func(c *client) { _ = c.tcp.CloseWrite() }, control.ReasonEOF},
		{"reset", func(c *client) { c.settled(); reset(c.tcp) }, control.ReasonReset},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{})
			c := s.dial()
			tc.run(c)
			if why := c.h.wait(t); why != tc.want {
				t.Errorf("ended: %v, want: %v", why, tc.want)
			}
			_ = c.tcp.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, c.conn); errors.Is(err, syscall.ETIMEDOUT) {
				t.Error(err)
			}
			_ = c.tcp.Close()
			if got := c.h.notes(); strings.Count(got, "ended") != 1 {
				t.Error(got)
			}
			if !c.h.c.Gone() {
				t.Error("not gone")
			}
		})
	}
}

// A reply that closes the connection is not lost in a reset because of what the client sent behind it.
func TestTheLastReplyIsNotLostInAReset(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	for range 20 {
		c := s.login()
		c.h.mkd = func(cmd *control.Command, _ string) error {
			cmd.Say(control.Reply{Code: 421, Text: "as you wish"})
			return nil
		}
		c.send("MKD a\r\n" + repeat(800, func(int) string { return "NOOP\r\n" }))
		c.expect("421 as you wish")
		c.expectEOF()
		within(t, "the socket is closed", c.tap.closed)
		raw, err := c.tcp.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			if errno, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR); errno != 0 || err != nil {
				t.Errorf("the client's socket got %v, %v", syscall.Errno(errno), err)
			}
		})
	}
}

// grants makes MKD succeed, with a reply that notes when it is lost.
func (c *client) grants(before func()) {
	c.h.mkd = func(cmd *control.Command, name string) error {
		if name == "/big" {
			cmd.Say(control.Reply{Code: 257, Text: strings.Repeat("x", 100<<10)})
			return nil
		}
		before()
		cmd.Say(control.Reply{Code: 257, Text: `"/a" locked`})
		cmd.Lost(func() { c.h.note("lost") })
		return nil
	}
}

func TestLost(t *testing.T) {
	const lost = "lost; "
	for _, tc := range []struct {
		name string
		run  func(c *client)
		want string
	}{
		{"reset at once", func(c *client) { c.play("> MKD a", "< 257 "); reset(c.tcp) }, lost + "ended: reset"},
		{"reset after another command", func(c *client) { c.play("> MKD a", "< 257 ", "> NOOP", "< 200 "); reset(c.tcp) }, "ended: reset"},
		{"reset after a wrong command", func(c *client) { c.play("> MKD a", "< 257 ", "> ", "< 500 "); reset(c.tcp) }, "ended: reset"},
		{"reset after half a command", func(c *client) { c.play("> MKD a", "< 257 "); c.send("NO"); c.settled(); reset(c.tcp) }, lost + "ended: reset"},
		{"reset after a pipelined command", func(c *client) { c.play(">> MKD a\r\nNOOP\r\n", "< 257 ", "< 200 "); reset(c.tcp) }, lost + "ended: reset"},
		{"two of them", func(c *client) { c.play(">> MKD a\r\nMKD a\r\n", "< 257 ", "< 257 "); reset(c.tcp) }, lost + lost + "ended: reset"},
		{"quit", func(c *client) { c.play("> MKD a", "< 257 ", "> QUIT", "< 221 ") }, "ended: quit"},
		{"EOF", func(c *client) { c.play("> MKD a", "< 257 "); _ = c.tcp.Close() }, "ended: closed by the client"},
		{"half-closed before the reply", func(c *client) {
			c.grants(func() { c.untilGone() })
			c.send("MKD a\r\n")
			_ = c.tcp.CloseWrite()
			c.expect("257 ")
		}, "ended: closed by the client"},
		{"closed before the reply", func(c *client) {
			c.grants(func() { c.untilGone() })
			c.send("MKD a\r\n")
			_ = c.tcp.Close()
		}, lost + "ended: closed by the client"},
		{"reset before the reply", func(c *client) {
			c.grants(func() { c.untilGone() })
			c.send("MKD a\r\n")
			c.tap.arrived(c.sent)
			reset(c.tcp)
		}, lost + "ended: reset"},
		{"kicked after it was acknowledged", func(c *client) {
			c.play("> MKD a", "< 257 ")
			c.h.c.Kick(control.Reply{Code: 421})
		}, "ended: kicked"},
		{"kicked, of a client that did not read it", func(c *client) {
			c.fill()
			c.send("MKD a\r\n")
			c.settled()
			c.h.c.Kick(control.Reply{Code: 421})
		}, lost + "ended: kicked"},
		{"EOF of a client that did not read it", func(c *client) {
			c.fill()
			c.send("MKD a\r\n")
			_ = c.tcp.CloseWrite()
		}, lost + "ended: closed by the client"},
		{"a client that never read it", func(c *client) {
			c.fill()
			c.h.mkd = func(cmd *control.Command, _ string) error {
				cmd.Say(control.Reply{Code: 257, Text: strings.Repeat("x", 20<<20)})
				cmd.Lost(func() { c.h.note("lost") })
				return nil
			}
			c.send("MKD a\r\n")
		}, lost + "ended: did not read its replies"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{}, func(s *server) {
				s.ackTimeout = time.Hour
				if strings.Contains(tc.name, "did not read") {
					s.ackTimeout = 300 * time.Millisecond
				}
				if strings.Contains(tc.name, "never read") {
					s.writeTimeout = 50 * time.Millisecond
				}
			})
			c := s.login()
			c.grants(func() {})
			tc.run(c)
			c.h.wait(t)
			if got := c.h.notes(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// untilGone waits, on the goroutine that executes a command, until the client has hung up.
func (c *client) untilGone() {
	for until := time.Now().Add(patience); !c.h.c.Gone() && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
}

// fill makes the server write until the client's receive buffer is full, but not its own send buffer.
func (c *client) fill() {
	_ = c.tcp.SetReadBuffer(4 << 10)
	_ = c.tap.SetWriteBuffer(1 << 20)
	for range 3 {
		c.send("MKD big\r\n")
	}
	c.settled()
	if c.tap.unacked() == 0 {
		c.t.Fatal("all was acknowledged")
	}
}

// writesWithin is how long a client may leave a reply unread.
func writesWithin(d time.Duration) func(*server) { return func(s *server) { s.writeTimeout = d } }

func TestAClientThatDoesNotRead(t *testing.T) {
	big := strings.Repeat("x", 20<<20)
	answersBig := func(c *client) {
		c.h.mkd = func(cmd *control.Command, _ string) error {
			cmd.Say(control.Reply{Code: 257, Text: big})
			cmd.Lost(func() {})
			return nil
		}
	}
	t.Run("ends the connection", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{}, writesWithin(50*time.Millisecond))
		c := s.login()
		answersBig(c)
		c.send("MKD a\r\n")
		c.h.endedWith(t, control.ReasonSlow)
	})
	t.Run("ends the connection under TLS", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{}, writesWithin(50*time.Millisecond))
		c := s.dial()
		c.play("> AUTH TLS", "< 234 ")
		c.startTLS()
		c.play("> USER u", "< 331 ", "> PASS p", "< 230 ")
		answersBig(c)
		c.send("MKD a\r\n")
		c.h.endedWith(t, control.ReasonSlow)
	})
	t.Run("does not keep Kick waiting", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{}, writesWithin(time.Hour))
		c := s.dial()
		_ = c.tap.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = io.WriteString(c.tap.TCPConn, big) // as much as the socket takes
		_ = c.tap.SetWriteDeadline(time.Time{})
		c.h.c.Kick(control.Reply{Code: 421})
		c.h.endedWith(t, control.ReasonKicked)
	})
	t.Run("but reads later", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{})
		c := s.login()
		answersBig(c)
		c.play("> MKD a", "> NOOP")
		line, err := c.line()
		if err != nil || line != "257 "+big {
			t.Errorf("%d bytes, %v", len(line), err)
		}
		c.play("< 200 ", "> NOOP", "< 200 ")
	})
}

// Whatever ends a connection while its transfer runs, the connection is the listener's until the transfer is over.
func TestAConnectionIsLeftWhenNothingRunsAnyMore(t *testing.T) {
	for name, end := range map[string]func(c *client){
		"hung up": func(c *client) { _ = c.tcp.Close() },
		"kicked":  func(c *client) { c.h.c.Kick(control.Reply{Code: 421}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{})
			c := s.login()
			running, goOn := make(chan struct{}), make(chan struct{})
			var over atomic.Bool
			s.onFile = func(string) { close(running); <-goOn; over.Store(true) }
			c.passive()
			c.send("STOR x\r\n")
			within(t, "the transfer", running)
			end(c)
			left := make(chan error, 1)
			go func() { left <- s.listener.Wait(t.Context()) }()
			select {
			case <-left:
				t.Error("the connection was left while its transfer ran")
			case <-time.After(20 * time.Millisecond):
			}
			close(goOn)
			if err := <-left; err != nil || !over.Load() {
				t.Error(err)
			}
			c.h.wait(t)
			<-s.files
		})
	}
}
