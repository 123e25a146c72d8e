package control

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// waiting is an MKD that waits until it is granted or withdrawn.
type waiting struct {
	c       *client
	began   chan struct{}
	granted atomic.Bool
	before  func() // what happens before it waits
	polled  func() // what happens between a poll and what comes next
}

// waits makes MKD of the client wait.
func (c *client) waits() *waiting {
	w := &waiting{c: c, began: make(chan struct{}, 10), before: func() {}, polled: func() {}}
	c.lib.mkd = func(cmd *Command) {
		w.before()
		w.began <- struct{}{}
		err := cmd.Wait(func() bool {
			granted := w.granted.Load()
			w.polled()
			return granted
		})
		if err != nil {
			c.h.note("withdrawn")
			cmd.Say(Reply{Code: 550, Text: "withdrawn"})
			return
		}
		cmd.Lost(func() { c.h.note("lost") })
		cmd.Say(Reply{Code: 257, Text: `"/a" granted`})
	}
	return w
}

func (w *waiting) grant() {
	w.granted.Store(true)
	w.c.lib.conn.Wake()
}

func TestWaiting(t *testing.T) {
	for _, tc := range []struct {
		name  string
		run   func(s *server, c *client, w *waiting)
		notes string
	}{
		{"granted", func(s *server, c *client, w *waiting) {
			c.send("MKD a\r\n")
			<-w.began
			for range 100 { // for nothing
				c.lib.conn.Wake()
			}
			w.grant()
			c.play(`< 257 "/a" granted`, "> NOOP", "< 250 ", "> QUIT", "< 221 ")
		}, "ended: quit"},
		{"granted before it waits, and a line has come behind it", func(s *server, c *client, w *waiting) {
			w.grant()
			c.play(">> MKD a\r\nQUIT\r\n", "< 257 ", "< 221 ")
		}, "ended: quit"},
		{"granted between the poll and the wait", func(s *server, c *client, w *waiting) {
			w.polled = w.grant
			c.play("> MKD a", "< 257 ", "> QUIT", "< 221 ")
		}, "ended: quit"},
		{"not granted to a client that has left", func(s *server, c *client, w *waiting) {
			w.before = func() { c.until("the client has gone", c.lib.conn.Gone); w.grant() }
			c.send("MKD a\r\n")
			_ = c.tcp.CloseWrite()
			c.expect("550 withdrawn")
			c.expectEOF()
		}, "withdrawn; ended: closed by the client"},
		{"withdrawn by a line, which is executed itself", func(s *server, c *client, w *waiting) {
			c.send("MKD a\r\n")
			<-w.began
			c.play("> XPWD", "< 550 withdrawn", "< 250 ", "> QUIT", "< 221 ")
		}, "withdrawn; ended: quit"},
		{"withdrawn by a pipelined line, and by a wrong one", func(s *server, c *client, w *waiting) {
			c.play(">> MKD a\r\nMKD b\r\n \r\n", "< 550 withdrawn", "< 550 withdrawn", "< 500 ", "> QUIT", "< 221 ")
		}, "withdrawn; withdrawn; ended: quit"},
		{"withdrawn by QUIT of a client that hangs up", func(s *server, c *client, w *waiting) {
			c.send("MKD a\r\n")
			<-w.began
			c.send("QUIT\r\n")
			_ = c.tcp.CloseWrite()
			c.play("< 550 withdrawn", "< 221 ")
		}, "withdrawn; ended: quit"},
		{"not withdrawn by half a line", func(s *server, c *client, w *waiting) {
			c.send("MKD a\r\nNO")
			<-w.began
			w.grant()
			c.play("< 257 ", ">> OP\r\n", "< 250 ", "> QUIT", "< 221 ")
		}, "ended: quit"},
		{"withdrawn by EOF", func(s *server, c *client, w *waiting) {
			c.send("MKD a\r\n")
			<-w.began
			_ = c.tcp.CloseWrite()
			c.expect("550 withdrawn")
			c.expectEOF()
		}, "withdrawn; ended: closed by the client"},
		{"withdrawn by a reset", func(s *server, c *client, w *waiting) {
			c.send("MKD a\r\n")
			<-w.began
			reset(c.tcp)
		}, "withdrawn; ended: reset"},
		{"withdrawn by a kick", func(s *server, c *client, w *waiting) {
			c.send("MKD a\r\n")
			<-w.began
			c.lib.conn.Kick(Reply{Code: 421, Text: "go"})
			c.play("< 550 withdrawn", "< 421 go")
			c.expectEOF()
		}, "withdrawn; ended: kicked"},
		{"withdrawn by the server's stop", func(s *server, c *client, w *waiting) {
			c.send("MKD a\r\n")
			<-w.began
			_ = s.Shutdown(Reply{Code: 421, Text: "stop"})
			c.play("< 550 withdrawn", "< 421 stop")
		}, "withdrawn; ended: server stops"},
	} {
		for _, secure := range []bool{false, true} {
			name := tc.name
			if secure {
				name += ", tls"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := serve(t, withTLS)
				c := s.dial()
				if secure {
					c.startTLS(c.tcp)
				}
				c.logIn()
				tc.run(s, c, c.waits())
				<-c.h.over
				if got := c.h.notes(); got != tc.notes {
					t.Errorf("got %q, want %q", got, tc.notes)
				}
			})
		}
	}
}

// If a client hangs up while its MKD is granted, the MKD is withdrawn, or the grant is undone.
func TestAWaiterThatHangsUpIsWithdrawnOrUndone(t *testing.T) {
	s := serve(t)
	for i := range 100 {
		c := s.login()
		w := c.waits()
		c.send("MKD a\r\n")
		<-w.began
		go func() {
			_ = c.tcp.CloseWrite()
			_ = c.tcp.Close()
		}()
		for until := time.Now().Add(time.Duration(i) * time.Microsecond); time.Now().Before(until); {
		}
		w.grant()
		c.until("the connection is closed", func() bool { return s.connected() == 0 })
		if got := c.h.notes(); strings.Contains(got, "withdrawn") == strings.Contains(got, "lost") {
			t.Fatal(got)
		}
	}
}
