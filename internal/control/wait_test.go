package control_test

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
)

// waiting is a command that waits until it is granted or withdrawn.
type waiting struct {
	h         *handler
	mu        sync.Mutex
	granted   bool
	withdrawn bool
	polled    int
	inPoll    bool // it is granted while it is polled for the first time
}

func (w *waiting) grant() {
	w.mu.Lock()
	w.granted = true
	w.mu.Unlock()
	w.h.c.Wake()
}

func (w *waiting) poll() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polled++
	if w.inPoll && !w.granted {
		w.granted = true
		w.h.c.Wake()
		return false
	}
	return w.granted
}

var errHeld = errors.New("held")

// wait is MKD of a held lock.
func (w *waiting) wait(cmd *control.Command) error {
	if err := cmd.Wait(w.poll); err != nil {
		if !errors.Is(err, control.ErrWithdrawn) {
			w.h.note(err.Error())
		}
		w.mu.Lock()
		w.withdrawn = true
		w.mu.Unlock()
		w.h.note("withdrawn")
		cmd.Say(control.Reply{Code: 550, Text: "withdrawn"})
		return errHeld
	}
	cmd.Lost(func() { w.h.note("lost") })
	cmd.Say(control.Reply{Code: 257, Text: `"/a" granted`})
	return nil
}

// waits makes MKD of the client wait, and hands the waiters over.
func (c *client) waits(change ...func(*waiting)) chan *waiting {
	ch := make(chan *waiting, 10)
	c.h.mkd = func(cmd *control.Command, _ string) error {
		w := &waiting{h: c.h}
		for _, f := range change {
			f(w)
		}
		ch <- w
		return w.wait(cmd)
	}
	return ch
}

func TestWaiting(t *testing.T) {
	for _, tc := range []struct {
		name  string
		run   func(t *testing.T, c *client, ws chan *waiting)
		notes string
	}{
		{"granted", func(t *testing.T, c *client, ws chan *waiting) {
			c.send("MKD a\r\n")
			w := <-ws
			c.settled()
			w.grant()
			c.play(`< 257 "/a" granted`, "> NOOP", "< 200 ", "> QUIT", "< 221 ")
		}, "ended: quit"},
		{"granted before it waits", func(t *testing.T, c *client, ws chan *waiting) {
			c.waits((*waiting).grant)
			c.play("> MKD a", "< 257 ", "> QUIT", "< 221 ")
		}, "ended: quit"},
		{"granted between the poll and the wait", func(t *testing.T, c *client, ws chan *waiting) {
			c.waits(func(w *waiting) { w.inPoll = true })
			c.play("> MKD a", "< 257 ", "> QUIT", "< 221 ")
		}, "ended: quit"},
		{"not granted to a client that has left", func(t *testing.T, c *client, ws chan *waiting) {
			c.waits(func(w *waiting) { c.untilGone(); w.grant() })
			c.send("MKD a\r\n")
			_ = c.tcp.CloseWrite()
			c.play("< 550 withdrawn")
			c.expectEOF()
		}, "withdrawn; ended: closed by the client"},
		{"granted, and a line has come behind it", func(t *testing.T, c *client, ws chan *waiting) {
			c.waits((*waiting).grant)
			c.play(">> MKD a\r\nQUIT\r\n", "< 257 ", "< 221 ")
		}, "ended: quit"},
		{"woken for nothing", func(t *testing.T, c *client, ws chan *waiting) {
			c.send("MKD a\r\n")
			w := <-ws
			for range 100 {
				c.h.c.Wake()
			}
			w.grant()
			c.play("< 257 ", "> QUIT", "< 221 ")
		}, "ended: quit"},
		{"withdrawn by a line, which is executed itself", func(t *testing.T, c *client, ws chan *waiting) {
			c.send("MKD a\r\n")
			<-ws
			c.play("> XPWD", "< 550 withdrawn", "< 257 ", "> QUIT", "< 221 ")
		}, "withdrawn; ended: quit"},
		{"withdrawn by a pipelined line", func(t *testing.T, c *client, ws chan *waiting) {
			c.play(">> MKD a\r\nMKD b\r\nQUIT\r\n", "< 550 withdrawn", "< 550 withdrawn", "< 221 ")
		}, "withdrawn; withdrawn; ended: quit"},
		{"withdrawn by a wrong line", func(t *testing.T, c *client, ws chan *waiting) {
			c.play(">> MKD a\r\n\r\n", "< 550 withdrawn", "< 500 ", "> QUIT", "< 221 ")
		}, "withdrawn; ended: quit"},
		{"withdrawn by ABOR", func(t *testing.T, c *client, ws chan *waiting) {
			c.play("> MKD a", "> ABOR", "< 550 withdrawn", "< 226 ", "> QUIT", "< 221 ")
		}, "withdrawn; ended: quit"},
		{"withdrawn by QUIT of a client that hangs up", func(t *testing.T, c *client, ws chan *waiting) {
			c.send("MKD a\r\n")
			<-ws
			c.send("QUIT\r\n")
			_ = c.tcp.CloseWrite()
			c.play("< 550 withdrawn", "< 221 ")
		}, "withdrawn; ended: quit"},
		{"not withdrawn by half a line", func(t *testing.T, c *client, ws chan *waiting) {
			c.send("MKD a\r\nNO")
			w := <-ws
			c.settled()
			w.grant()
			c.play("< 257 ", ">> OP\r\n", "< 200 ", "> QUIT", "< 221 ")
		}, "ended: quit"},
		{"withdrawn by EOF", func(t *testing.T, c *client, ws chan *waiting) {
			c.send("MKD a\r\n")
			<-ws
			_ = c.tcp.CloseWrite()
			c.play("< 550 withdrawn")
			c.expectEOF()
		}, "withdrawn; ended: closed by the client"},
		{"withdrawn by a reset", func(t *testing.T, c *client, ws chan *waiting) {
			c.send("MKD a\r\n")
			<-ws
			c.settled()
			reset(c.tcp)
		}, "withdrawn; ended: reset"},
		{"withdrawn by a kick", func(t *testing.T, c *client, ws chan *waiting) {
			c.send("MKD a\r\n")
			<-ws
			c.h.c.Kick(control.Reply{Code: 421, Text: "go"})
			c.play("< 550 withdrawn", "< 421 go")
			c.expectEOF()
		}, "withdrawn; ended: kicked"},
		{"withdrawn by the server's stop", func(t *testing.T, c *client, ws chan *waiting) {
			c.send("MKD a\r\n")
			<-ws
			_ = c.s.listener.Shutdown(control.Reply{Code: 421, Text: "stop"})
			c.play("< 550 withdrawn", "< 421 stop")
		}, "withdrawn; ended: server stops"},
		{"closed by the driver", func(t *testing.T, c *client, ws chan *waiting) {
			c.send("MKD a\r\n")
			<-ws
			_ = c.h.c.Close()
		}, "ended: closed by the server; withdrawn"},
	} {
		for _, secure := range []bool{false, true} {
			name := tc.name
			if secure {
				name += ", tls"
			}
			t.Run(name, func(t *testing.T) {
				s := serve(t, "tcp4", control.Options{})
				c := s.dial()
				if secure {
					c.play("> AUTH TLS", "< 234 ")
					c.startTLS()
				}
				c.play("> USER u", "< 331 ", "> PASS p", "< 230 ")
				tc.run(t, c, c.waits())
				c.h.wait(t)
				for until := time.Now().Add(patience); c.h.notes() != tc.notes && time.Now().Before(until); {
					if strings.HasSuffix(tc.notes, "withdrawn") && !strings.HasSuffix(c.h.notes(), "withdrawn") {
						time.Sleep(time.Millisecond) // the command is over after the end
						continue
					}
					t.Fatalf("got %q, want %q", c.h.notes(), tc.notes)
				}
			})
		}
	}
}

// A grant that comes at the moment at which the client leaves is either told or undone.
func TestAGrantIsToldOrUndone(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	for i := range 100 {
		c := s.login()
		ws := c.waits()
		c.send("MKD a\r\n")
		w := <-ws
		go reset(c.tcp)
		spin(i)
		w.grant()
		c.h.wait(t)
		within(t, "the socket is closed", c.tap.closed)
		w.mu.Lock()
		withdrawn := w.withdrawn
		w.mu.Unlock()
		if got := c.h.notes(); withdrawn == strings.Contains(got, "lost") {
			t.Fatalf("withdrawn: %v, %s", withdrawn, got)
		}
	}
}

func TestAThousandWaitersCostNoGoroutines(t *testing.T) {
	const n = 1000
	s := serve(t, "tcp4", control.Options{}, plain)
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = s.login()
	}
	ch := make(chan *waiting, n)
	idle := runtime.NumGoroutine()
	for _, c := range clients {
		c.h.mkd = func(cmd *control.Command, _ string) error {
			w := &waiting{h: c.h}
			ch <- w
			return w.wait(cmd)
		}
		c.send("MKD a\r\n")
	}
	var ws []*waiting
	for range n {
		ws = append(ws, <-ch)
	}
	if now := runtime.NumGoroutine(); now > idle {
		t.Errorf("%d goroutines wait, %d were idle", now, idle)
	}
	for _, w := range ws {
		w.grant()
	}
	for _, c := range clients {
		c.expect("257 ")
		_ = c.conn.Close()
	}
}

// spin passes about so many microseconds.
func spin(n int) {
	for until := time.Now().Add(time.Duration(n) * time.Microsecond); time.Now().Before(until); {
	}
}
