package control_test

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/control"
)

func TestKick(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.login()
	c.settled()
	c.h.c.Kick(control.Reply{Code: 421, Text: "enough"})
	c.expect("421 enough")
	c.expectEOF()
	c.h.endedWith(t, control.ReasonKicked)

	c = s.login()
	data := c.passive()
	c.play("> STOR x", "< 150 ", "> NOOP")
	c.settled()
	c.h.c.Kick(control.Reply{Code: 421, Text: "enough"})
	c.expect("421 enough")
	c.expectEOF()
	c.h.endedWith(t, control.ReasonKicked)
	if !c.h.c.Gone() {
		t.Error("a kicked client is not gone")
	}
	_ = data.Close()
	<-s.files
}

func TestShutdownLetsTransfersFinish(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	idle, busy := s.login(), s.login()
	data := busy.passive()
	busy.play("> STOR x", "< 150 ", "> NOOP")
	busy.settled()
	if err := s.listener.Shutdown(control.Reply{Code: 421, Text: "bye"}); err != nil {
		t.Fatal(err)
	}
	idle.expect("421 bye")
	idle.expectEOF()
	idle.h.endedWith(t, control.ReasonShutdown)
	_, _ = io.WriteString(data, "x")
	_ = data.Close()
	busy.expect("226 ", "421 bye")
	busy.expectEOF()
	busy.h.endedWith(t, control.ReasonShutdown)
	if f := <-s.files; f.err != nil {
		t.Error(f.err)
	}
	if nc, err := net.Dial("tcp", s.addr); err == nil {
		t.Error("it still listens")
		_ = nc.Close()
	}
	if err := s.listener.Close(); err != nil {
		t.Error("closed twice:", err)
	}
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
		{"refused by the library", func(c *client) { c.play("> USER u", "< 331 ", "> PASS wrong", "< 530 ") }, control.ReasonClosed},
		{"closed by the handler", func(c *client) { c.play("> KILL", "< 421 ") }, control.ReasonClosed},
		{"closed by the driver", func(c *client) { c.settled(); _ = c.h.c.Close() }, control.ReasonClosed},
		{"closed by everybody", func(c *client) {
			for range 5 {
				go func() { _ = c.h.c.Close() }()
			}
		}, control.ReasonClosed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{})
			c := s.dial()
			tc.run(c)
			c.h.endedWith(t, tc.want)
			_, _ = io.Copy(io.Discard, c.conn)
			_ = c.tcp.Close()
			if got := c.h.notes(); strings.Count(got, "ended") != 1 {
				t.Error(got)
			}
			if !c.h.c.Gone() || !c.h.c.GoneWithin(time.Hour) {
				t.Error("not gone")
			}
		})
	}
}

// An answer that closes is not lost in a reset because of what the client sent behind it.
func TestTheLastReplyIsNotLostInAReset(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	for range 20 {
		c := s.dial()
		c.send(repeat(800, func(i int) string {
			if i == 0 {
				return "KILL\r\n"
			}
			return "NOOP\r\n"
		}))
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

// grants makes MKD succeed, with a reply that notes when it is undelivered.
func (c *client) grants(before func()) {
	c.h.mkd = func(*control.Conn, string) control.Decision {
		before()
		return control.Answer(control.Reply{Code: 257, Text: `"/a" locked`, Undelivered: func() { c.h.note("undone") }})
	}
}

func TestUndelivered(t *testing.T) {
	const undone = "undone; "
	for _, tc := range []struct {
		name string
		run  func(c *client)
		want string
	}{
		{"reset at once", func(c *client) { c.play("> MKD a", "< 257 "); reset(c.tcp) }, undone + "ended: reset"},
		{"reset after another command", func(c *client) { c.play("> MKD a", "< 257 ", "> NOOP", "< 200 "); reset(c.tcp) }, "ended: reset"},
		{"reset after a pipelined command", func(c *client) { c.play(">> MKD a\r\nNOOP\r\n", "< 257 ", "< 200 "); reset(c.tcp) }, undone + "ended: reset"},
		{"two of them", func(c *client) { c.play(">> MKD a\r\nMKD a\r\n", "< 257 ", "< 257 "); reset(c.tcp) }, undone + undone + "ended: reset"},
		{"quit", func(c *client) { c.play("> MKD a", "< 257 ", "> QUIT", "< 221 ") }, "ended: quit"},
		{"EOF", func(c *client) { c.play("> MKD a", "< 257 "); _ = c.tcp.Close() }, "ended: closed by the client"},
		{"half-closed before the reply", func(c *client) {
			c.grants(func() { c.h.c.GoneWithin(patience) })
			c.send("MKD a\r\n")
			_ = c.tcp.CloseWrite()
			c.expect("257 ")
		}, "ended: closed by the client"},
		{"closed before the reply", func(c *client) {
			c.grants(func() { c.h.c.GoneWithin(patience) })
			c.send("MKD a\r\n")
			_ = c.tcp.Close()
		}, undone + "ended: closed by the client"},
		{"reset before the reply", func(c *client) {
			c.grants(func() { c.h.c.GoneWithin(patience) })
			c.send("MKD a\r\n")
			c.tap.settledOnce(c.sent)
			reset(c.tcp)
		}, undone + "ended: reset"},
		{"kicked after it was acknowledged", func(c *client) {
			c.play("> MKD a", "< 257 ")
			c.h.c.Kick(control.Reply{Code: 421})
		}, "ended: kicked"},
		{"closed by the driver after it was acknowledged", func(c *client) {
			c.play("> MKD a", "< 257 ")
			c.settled()
			for c.h.c.Unacked() {
			}
			_ = c.h.c.Close()
		}, "ended: closed by the server"},
		{"closed by the driver before it was acknowledged, of a client that did not read it", func(c *client) {
			c.fill()
			c.send("MKD a\r\n")
			c.settled()
			_ = c.h.c.Close()
		}, undone + "ended: closed by the server"},
		{"EOF of a client that did not read it", func(c *client) {
			c.fill()
			c.send("MKD a\r\n")
			_ = c.tcp.CloseWrite()
		}, undone + "ended: closed by the client"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opts := control.Options{AckTimeout: time.Hour}
			if strings.Contains(tc.name, "did not read") {
				opts.AckTimeout = 300 * time.Millisecond
			}
			s := serve(t, "tcp4", opts)
			c := s.dial()
			c.grants(func() {})
			tc.run(c)
			select {
			case <-c.h.over:
			case <-time.After(patience):
				t.Fatal("it did not end")
			}
			if got := c.h.notes(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// settledOnce waits until n bytes were read, whatever Read does then.
func (t *tap) settledOnce(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.got < n {
		t.cond.Wait()
	}
}

// fill makes the server write until the client's receive buffer is full, but not its own send buffer.
func (c *client) fill() {
	_ = c.tcp.SetReadBuffer(4 << 10)
	_ = c.tap.SetWriteBuffer(1 << 20)
	big := strings.Repeat("x", 100<<10)
	c.h.any = func(_ *control.Conn, cmd control.Command) (control.Decision, bool) {
		return control.Answer(control.Reply{Code: 200, Text: big}), cmd.Verb == "BIG"
	}
	for range 3 {
		c.send("BIG\r\n")
	}
	c.settled()
	if !c.h.c.Unacked() {
		c.t.Fatal("all was acknowledged")
	}
}

func TestAClientThatDoesNotRead(t *testing.T) {
	big := strings.Repeat("x", 20<<20)
	answerBig := func(_ *control.Conn, cmd control.Command) (control.Decision, bool) {
		return control.Answer(control.Reply{Code: 200, Text: big, Undelivered: func() {}}), cmd.Verb == "BIG"
	}
	t.Run("ends the connection", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{WriteTimeout: 50 * time.Millisecond})
		c := s.dial()
		c.h.any = answerBig
		c.send("BIG\r\n")
		c.h.endedWith(t, control.ReasonSlow)
	})
	t.Run("does not keep Close waiting", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{WriteTimeout: time.Hour})
		c := s.dial()
		c.h.any = answerBig
		c.send("BIG\r\n")
		for !c.h.c.Unacked() {
			runtime.Gosched()
		}
		_ = c.h.c.Close()
		c.h.endedWith(t, control.ReasonClosed)
	})
	t.Run("does not keep Kick waiting", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{WriteTimeout: time.Hour})
		c := s.dial()
		_ = c.tap.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = io.WriteString(c.tap.TCPConn, big) // as much as the socket takes
		_ = c.tap.SetWriteDeadline(time.Time{})
		c.h.c.Kick(control.Reply{Code: 421})
		c.h.endedWith(t, control.ReasonKicked)
	})
	t.Run("but reads later", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{})
		c := s.dial()
		c.h.any = answerBig
		c.play("> BIG", "> NOOP")
		line, err := c.line()
		if err != nil || line != "200 "+big {
			t.Errorf("%d bytes, %v", len(line), err)
		}
		c.play("< 200 ", "> NOOP", "< 200 ")
	})
}

// A killed uploader's two connections end in either order, with FIN or RST.
func TestAKilledUploaderIsTold(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, dataFirst := range []bool{false, true} {
			for _, rst := range []bool{false, true} {
				t.Run(fmt.Sprintf("tls %v, data first %v, rst %v", secure, dataFirst, rst), func(t *testing.T) {
					s := serve(t, "tcp4", control.Options{})
					c := s.dial()
					if secure {
						c.play("> AUTH TLS", "< 234 ")
						c.startTLS()
					}
					c.play("> USER u", "< 331 ", "> PASS p", "< 230 ")
					data := c.passive()
					c.play("> STOR x", "< 150 ")
					_, _ = io.WriteString(data, "half of it")
					end := func(nc *net.TCPConn) { _ = nc.Close() }
					if rst {
						end = reset
					}
					if dataFirst {
						_ = data.Close()
						end(c.tcp)
					} else {
						end(c.tcp)
						_ = data.Close()
					}
					if f := <-s.files; f.err == nil && !f.gone {
						t.Error("looks like a finished upload")
					}
				})
			}
		}
	}
}
