package control_test

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
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

// bubble is a client of a stand-in for the library, in a bubble of synctest. The stand-in answers a line "250 done", an EPSV
// with a port that does not exist. A RETR begins a transfer, which ends when a value comes over transfer. A MKD waits. The
// client is logged in, unless a login has a time-out.
type bubble struct {
	t        *testing.T
	h        *handler
	listener *control.Server
	conn     net.Conn
	r        *bufio.Reader
	transfer chan bool
	granted  atomic.Bool
}

func inBubble(t *testing.T, opts control.Options, f func(t *testing.T, b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t, transfer: make(chan bool)}
		opts.NewHandler = func(c *control.Conn) control.Handler { b.h = newHandler(nil, c); return b.h }
		p := pipes{make(chan net.Conn), make(chan struct{})}
		opts.Policy = func() control.Policy { return control.Policy{} }
		opts.Ports = control.NewPorts(control.PortOptions{
			Range:   func() (uint16, uint16) { return 0, 0 },
			Timeout: func() time.Duration { return patience },
		})
		opts.Logger = slog.New(slog.DiscardHandler)
		b.listener = control.NewServer(opts)
		l := b.listener.Listen(p, nil)
		ours, theirs := net.Pipe()
		b.conn, b.r = ours, bufio.NewReader(ours)
		go func() { p.conns <- theirs }()
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if opts.Limits.LoginTimeout == 0 {
			b.h.c.LogIn("user")
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			defer conn.Close()
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				b.execute(conn, lines.Text())
			}
		}()
		f(t, b)
		_ = ours.Close()
		<-over
		_ = b.listener.Shutdown(control.Reply{Code: 421})
	})
}

func (b *bubble) execute(conn net.Conn, line string) {
	verb, _, _ := strings.Cut(line, " ")
	reply := "250 done"
	switch verb {
	case "EPSV":
		reply = "229 (|||4000|)"
	case "RETR":
		go func() {
			_, _ = io.WriteString(conn, "150 begins\r\n")
			<-b.transfer
			_, _ = io.WriteString(conn, "226 over\r\n")
		}()
		return
	case "MKD":
		if b.h.c.Command().Wait(func() bool { return b.granted.Load() }) != nil {
			reply = "550 withdrawn"
		}
	}
	_, _ = io.WriteString(conn, reply+"\r\n")
}

func (b *bubble) send(raw string) {
	b.t.Helper()
	if _, err := io.WriteString(b.conn, raw); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bubble) say(line string, want ...string) {
	b.t.Helper()
	b.send(line + "\r\n")
	b.hear(want...)
}

func (b *bubble) hear(want ...string) {
	b.t.Helper()
	for _, w := range want {
		if got, err := b.r.ReadString('\n'); err != nil || !strings.HasPrefix(got, w) {
			b.t.Fatalf("got %q, %v; want %q", got, err, w)
		}
	}
}

func TestIdleTimeout(t *testing.T) {
	opts := control.Options{Limits: control.Limits{IdleTimeout: 5 * time.Minute}}
	t.Run("is counted from the last command", func(t *testing.T) {
		inBubble(t, opts, func(t *testing.T, b *bubble) {
			for _, line := range []string{"NOOP", "STRU F", "nonsense"} {
				time.Sleep(4 * time.Minute)
				b.say(line, "")
			}
			last := time.Now()
			b.hear("421 idle timeout")
			if d := time.Since(last); d != 5*time.Minute {
				t.Errorf("after %v", d)
			}
			b.h.endedWith(t, control.ReasonIdle)
		})
	})
	t.Run("half a line is no command", func(t *testing.T) {
		inBubble(t, opts, func(t *testing.T, b *bubble) {
			start := time.Now()
			time.Sleep(4 * time.Minute)
			b.send("MKD ")
			b.hear("421 ")
			if d := time.Since(start); d != 5*time.Minute || b.h.executed() != "" {
				t.Errorf("after %v, %s", d, b.h.executed())
			}
		})
	})
	t.Run("the handler extends it", func(t *testing.T) {
		inBubble(t, opts, func(t *testing.T, b *bubble) {
			more := []time.Duration{time.Minute, 20 * time.Second}
			b.h.idleFor = func() time.Duration {
				if len(more) == 0 {
					return 0
				}
				d := more[0]
				more = more[1:]
				return d
			}
			b.say("NOOP", "250 ")
			start := time.Now()
			b.hear("421 ")
			if d := time.Since(start); d != 6*time.Minute+20*time.Second {
				t.Errorf("after %v", d)
			}
		})
	})
	t.Run("a transfer extends it", func(t *testing.T) {
		inBubble(t, opts, func(t *testing.T, b *bubble) {
			b.say("EPSV", "229 ")
			b.say("RETR x", "150 ")
			time.Sleep(time.Hour)
			b.transfer <- true
			b.hear("226 ")
			over := time.Now()
			b.hear("421 ")
			if d := time.Since(over); d < 5*time.Minute || d > 10*time.Minute {
				t.Errorf("after %v", d)
			}
		})
	})
	t.Run("a waiting command extends it", func(t *testing.T) {
		inBubble(t, opts, func(t *testing.T, b *bubble) {
			b.say("MKD a")
			time.Sleep(time.Hour)
			b.granted.Store(true)
			b.h.c.Wake()
			b.hear("250 ")
			granted := time.Now()
			b.hear("421 ")
			if d := time.Since(granted); d < 5*time.Minute || d > 10*time.Minute {
				t.Errorf("after %v", d)
			}
		})
	})
	t.Run("may be changed", func(t *testing.T) {
		for _, from := range []time.Duration{0, time.Hour} {
			inBubble(t, control.Options{Limits: control.Limits{IdleTimeout: from}}, func(t *testing.T, b *bubble) {
				start := time.Now()
				time.Sleep(time.Minute)
				b.listener.SetLimits(control.Limits{IdleTimeout: 2 * time.Minute})
				b.hear("421 ")
				if d := time.Since(start); d != 2*time.Minute {
					t.Errorf("after %v", d)
				}
			})
		}
	})
	t.Run("may be switched off", func(t *testing.T) {
		inBubble(t, opts, func(t *testing.T, b *bubble) {
			time.Sleep(time.Minute)
			b.listener.SetLimits(control.Limits{})
			time.Sleep(1000 * time.Hour)
			b.say("NOOP", "250 ")
		})
	})
	t.Run("none", func(t *testing.T) {
		inBubble(t, control.Options{}, func(t *testing.T, b *bubble) {
			time.Sleep(1000 * time.Hour)
			b.say("NOOP", "250 ")
		})
	})
}

func TestAReplyThatIsNotReadEndsTheConnectionAfterTheWriteTimeout(t *testing.T) {
	inBubble(t, control.Options{}, func(t *testing.T, b *bubble) {
		start := time.Now()
		b.send("NOOP\r\n")
		if why := <-b.h.over; why != control.ReasonSlow {
			t.Error(why)
		}
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("after %v", d)
		}
	})
}
