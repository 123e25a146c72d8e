package control

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of in-memory connections, so that synctest owns the time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { close(p.done); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// inBubble runs f with a client that has logged in, in a bubble of synctest.
func inBubble(t *testing.T, l Limits, f func(t *testing.T, s *server, c *client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := pipes{make(chan net.Conn), make(chan struct{})}
		s := serve(t, limited(l), func(o *setup) { o.listener = p })
		ours, theirs := net.Pipe()
		p.conns <- theirs
		c := s.client(ours)
		c.logIn()
		f(t, s, c)
	})
}

func TestIdleTimeout(t *testing.T) {
	const limit = 5 * time.Minute
	var granted atomic.Bool
	for _, tc := range []struct {
		name string
		from time.Duration // the limit at first
		run  func(s *server, c *client)
		want time.Duration // after run
	}{
		{"is counted from the last command", limit, func(s *server, c *client) {
			for _, line := range []string{"NOOP", "STRU F", "nonsense"} {
				time.Sleep(4 * time.Minute)
				c.play("> " + line + "; < ")
			}
		}, limit},
		{"half a line is no command", limit, func(s *server, c *client) { time.Sleep(4 * time.Minute); c.send("MKD ") }, time.Minute},
		{"the handler extends it", limit, func(s *server, c *client) {
			more := []time.Duration{time.Minute, 20 * time.Second, 0}
			c.h.idleFor = func() (d time.Duration) { d, more = more[0], more[1:]; return d }
			c.play("> NOOP; < 250")
		}, limit + 80*time.Second},
		{"a transfer extends it", limit, func(s *server, c *client) {
			c.lib.move = func() { time.Sleep(time.Hour) }
			c.play("> RETR x; < 150; < 226")
		}, limit},
		{"a waiting command extends it", limit, func(s *server, c *client) {
			c.lib.mkd = func(cmd *Command) { _ = cmd.Wait(func() bool { return granted.Load() }) }
			c.send("MKD a\r\n")
			time.Sleep(time.Hour)
			granted.Store(true)
			c.lib.conn.Wake()
			c.expect("250 ")
		}, limit},
		{"may begin", 0, func(s *server, c *client) { time.Sleep(time.Minute); s.SetLimits(Limits{IdleTimeout: limit}) }, limit - time.Minute},
		{"may be shortened", time.Hour, func(s *server, c *client) { s.SetLimits(Limits{IdleTimeout: limit}) }, limit},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, Limits{IdleTimeout: tc.from}, func(t *testing.T, s *server, c *client) {
				tc.run(s, c)
				start := time.Now()
				c.expect("421 idle timeout")
				if d := time.Since(start); d != tc.want {
					t.Errorf("after %v", d)
				}
				c.h.endedWith(t, ReasonIdle)
			})
		})
	}
	t.Run("may be switched off", func(t *testing.T) {
		inBubble(t, Limits{IdleTimeout: limit}, func(t *testing.T, s *server, c *client) {
			s.SetLimits(Limits{})
			time.Sleep(1000 * time.Hour)
			c.play("> NOOP; < 250")
		})
	})
}
