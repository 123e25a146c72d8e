package control_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/control"
)

// waiting is a command that waits until grant or withdrawal.
type waiting struct {
	h         *handler
	c         *control.Conn
	mu        sync.Mutex
	granted   bool
	withdrawn bool
	inPoll    bool // it is granted while it is polled for the first time
	late      bool // it is granted when it is withdrawn
}

func (w *waiting) grant() {
	w.mu.Lock()
	w.granted = true
	w.mu.Unlock()
	w.c.Wake()
}

func (w *waiting) Poll() (control.Reply, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inPoll && !w.granted {
		w.granted = true
		w.c.Wake()
		return control.Reply{}, false
	}
	return w.result(), w.granted
}

func (w *waiting) result() control.Reply {
	return control.Reply{Code: 257, Text: `"/a" granted`, Undelivered: func() { w.h.note("undelivered") }}
}

func (w *waiting) Withdraw() control.Reply {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.granted || w.late {
		return w.result()
	}
	w.withdrawn = true
	w.h.note("withdrawn")
	return control.Reply{Code: 550, Text: "withdrawn"}
}

// waits makes MKD of the client wait, and hands the waiters over.
func (c *client) waits() chan *waiting {
	ch := make(chan *waiting, 10)
	c.h.mkd = func(conn *control.Conn, _ string) control.Decision {
		w := &waiting{h: c.h, c: conn}
		ch <- w
		return control.Wait(w)
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
			c.h.mkd = func(conn *control.Conn, _ string) control.Decision {
				w := &waiting{h: c.h, c: conn}
				w.grant()
				return control.Wait(w)
			}
			c.play("> MKD a", "< 257 ", "> QUIT", "< 221 ")
		}, "ended: quit"},
		{"granted between the poll and the wait", func(t *testing.T, c *client, ws chan *waiting) {
			c.h.mkd = func(conn *control.Conn, _ string) control.Decision {
				return control.Wait(&waiting{h: c.h, c: conn, inPoll: true})
			}
			c.play("> MKD a", "< 257 ", "> QUIT", "< 221 ")
		}, "ended: quit"},
		{"granted when the client has left", func(t *testing.T, c *client, ws chan *waiting) {
			c.h.mkd = func(conn *control.Conn, _ string) control.Decision {
				return control.Wait(&waiting{h: c.h, c: conn, late: true})
			}
			c.send("MKD a\r\n")
			_ = c.tcp.CloseWrite()
			c.expectEOF()
		}, "undelivered; ended: closed by the client"},
		{"granted when a line comes", func(t *testing.T, c *client, ws chan *waiting) {
			c.h.mkd = func(conn *control.Conn, _ string) control.Decision {
				return control.Wait(&waiting{h: c.h, c: conn, late: true})
			}
			c.play("> MKD a", "> QUIT", "< 257 ", "< 221 ")
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
		{"withdrawn by a line, which is handled itself", func(t *testing.T, c *client, ws chan *waiting) {
			c.send("MKD a\r\n")
			<-ws
			c.play("> XPWD", "< 550 withdrawn", "< 257 ", "> QUIT", "< 221 ")
		}, "withdrawn; ended: quit"},
		{"withdrawn by a pipelined line", func(t *testing.T, c *client, ws chan *waiting) {
			c.play(">> MKD a\r\nMKD b\r\nQUIT\r\n", "< 550 withdrawn", "< 550 withdrawn", "< 221 ")
		}, "withdrawn; withdrawn; ended: quit"},
		{"withdrawn by ABOR", func(t *testing.T, c *client, ws chan *waiting) {
			c.play("> MKD a", "> ABOR", "< 550 withdrawn", "< 226 ", "> QUIT", "< 221 ")
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
			c.expectEOF()
		}, "withdrawn; ended: closed by the client"},
		{"withdrawn by a reset", func(t *testing.T, c *client, ws chan *waiting) {
			c.send("MKD a\r\n")
			<-ws
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
		}, "withdrawn; ended: closed by the server"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{})
			c := s.login()
			tc.run(t, c, c.waits())
			select {
			case <-c.h.over:
			case <-time.After(patience):
				t.Fatal("it did not end")
			}
			if got := c.h.notes(); got != tc.notes {
				t.Errorf("got %q, want %q", got, tc.notes)
			}
		})
	}
}

// A grant that comes at the moment at which the client leaves is either told or undone.
func TestAGrantIsToldOrUndone(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	for range 50 {
		c := s.login()
		ws := c.waits()
		c.send("MKD a\r\n")
		w := <-ws
		go reset(c.tcp)
		w.grant()
		<-c.h.over
		w.mu.Lock()
		withdrawn := w.withdrawn
		w.mu.Unlock()
		if got := c.h.notes(); withdrawn == strings.Contains(got, "undelivered") {
			t.Fatalf("withdrawn: %v, %s", withdrawn, got)
		}
	}
}

func TestAThousandWaitersCostNoGoroutines(t *testing.T) {
	const n = 1000
	s := serve(t, "tcp4", control.Options{}, plain)
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = s.dial()
	}
	ch := make(chan *waiting, n)
	idle := runtime.NumGoroutine()
	for _, c := range clients {
		c.h.mkd = func(conn *control.Conn, _ string) control.Decision {
			w := &waiting{h: c.h, c: conn}
			ch <- w
			return control.Wait(w)
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
