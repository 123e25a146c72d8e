package control_test

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/control"
)

// pipes is a listener of one in-memory connection, so that synctest owns the time.
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

// inBubble runs f with a client of a server whose library answers every passed line "250 done". RETR begins a transfer,
// which ends when a value comes over transfer.
func inBubble(t *testing.T, opts control.Options, f func(t *testing.T, h *handler, c net.Conn, r *bufio.Reader, transfer chan bool)) {
	synctest.Test(t, func(t *testing.T) {
		var h *handler
		opts.NewHandler = func(c *control.Conn) control.Handler { h = newHandler(nil, c); return h }
		p := pipes{make(chan net.Conn), make(chan struct{})}
		l := control.NewListener(opts, control.Source{Listener: p})
		ours, theirs := net.Pipe()
		p.conns <- theirs
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		h.listener = l
		transfer := make(chan bool)
		h.any = func(c *control.Conn, cmd control.Command) (control.Decision, bool) {
			return control.Run(func() control.Reply {
				c.Say(control.Reply{Code: 150, Text: "begins"})
				<-transfer
				return control.Reply{Code: 226, Text: "over"}
			}), cmd.Verb == "RETR"
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			defer conn.Close()
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				_, _ = io.WriteString(conn, "250 done\r\n")
			}
		}()
		f(t, h, ours, bufio.NewReader(ours), transfer)
		_ = ours.Close()
		<-over
		_ = l.Close()
	})
}

func say(t *testing.T, c net.Conn, r *bufio.Reader, line string, want ...string) {
	t.Helper()
	if _, err := io.WriteString(c, line+"\r\n"); err != nil {
		t.Fatal(err)
	}
	hear(t, r, want...)
}

func hear(t *testing.T, r *bufio.Reader, want ...string) {
	t.Helper()
	for _, w := range want {
		if got, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(got, w) {
			t.Fatalf("got %q, %v; want %q", got, err, w)
		}
	}
}

func TestIdleTimeout(t *testing.T) {
	opts := control.Options{IdleTimeout: 5 * time.Minute}
	t.Run("is counted from the last command", func(t *testing.T) {
		inBubble(t, opts, func(t *testing.T, h *handler, c net.Conn, r *bufio.Reader, _ chan bool) {
			for range 3 {
				time.Sleep(4 * time.Minute)
				say(t, c, r, "NOOP", "200 ")
			}
			last := time.Now()
			hear(t, r, "421 idle timeout")
			if d := time.Since(last); d != 5*time.Minute {
				t.Errorf("after %v", d)
			}
			h.endedWith(t, control.ReasonIdle)
		})
	})
	t.Run("half a line is no command", func(t *testing.T) {
		inBubble(t, opts, func(t *testing.T, h *handler, c net.Conn, r *bufio.Reader, _ chan bool) {
			start := time.Now()
			time.Sleep(4 * time.Minute)
			_, _ = io.WriteString(c, "MKD ")
			hear(t, r, "421 ")
			if d := time.Since(start); d != 5*time.Minute || h.executed() != "" {
				t.Errorf("after %v, %s", d, h.executed())
			}
		})
	})
	t.Run("the handler extends it", func(t *testing.T) {
		inBubble(t, opts, func(t *testing.T, h *handler, c net.Conn, r *bufio.Reader, _ chan bool) {
			more := []time.Duration{time.Minute, 20 * time.Second}
			h.idleFor = func() time.Duration {
				if len(more) == 0 {
					return 0
				}
				d := more[0]
				more = more[1:]
				return d
			}
			say(t, c, r, "NOOP", "200 ") // hands idleFor over
			start := time.Now()
			hear(t, r, "421 ")
			if d := time.Since(start); d != 6*time.Minute+20*time.Second {
				t.Errorf("after %v", d)
			}
		})
	})
	t.Run("a wake-up does not shorten an extension", func(t *testing.T) {
		inBubble(t, opts, func(t *testing.T, h *handler, c net.Conn, r *bufio.Reader, _ chan bool) {
			asked := 0
			h.idleFor = func() time.Duration { asked++; return time.Hour }
			say(t, c, r, "NOOP", "200 ") // hands idleFor over
			for range 50 {
				time.Sleep(time.Minute)
				h.c.Wake()
			}
			synctest.Wait()
			if asked != 1 {
				t.Errorf("asked %d times", asked)
			}
		})
	})
	t.Run("a transfer extends it", func(t *testing.T) {
		inBubble(t, opts, func(t *testing.T, h *handler, c net.Conn, r *bufio.Reader, transfer chan bool) {
			say(t, c, r, "RETR x", "150 ")
			time.Sleep(time.Hour)
			transfer <- true
			hear(t, r, "226 ")
			over := time.Now()
			hear(t, r, "421 ")
			if d := time.Since(over); d < 5*time.Minute || d > 10*time.Minute {
				t.Errorf("after %v", d)
			}
		})
	})
	t.Run("a waiting command extends it", func(t *testing.T) {
		inBubble(t, opts, func(t *testing.T, h *handler, c net.Conn, r *bufio.Reader, _ chan bool) {
			w := &waiting{h: h, c: h.c}
			h.mkd = func(*control.Conn, string) control.Decision { return control.Wait(w) }
			say(t, c, r, "MKD a")
			time.Sleep(time.Hour)
			w.grant()
			hear(t, r, "257 ")
			say(t, c, r, "NOOP", "200 ")
		})
	})
	t.Run("may be changed", func(t *testing.T) {
		for _, from := range []time.Duration{0, time.Hour} {
			inBubble(t, control.Options{IdleTimeout: from}, func(t *testing.T, h *handler, c net.Conn, r *bufio.Reader, _ chan bool) {
				start := time.Now()
				time.Sleep(time.Minute)
				h.listener.SetLimits(control.Limits{IdleTimeout: 2 * time.Minute})
				hear(t, r, "421 ")
				if d := time.Since(start); d != 2*time.Minute {
					t.Errorf("after %v", d)
				}
			})
		}
	})
	t.Run("none", func(t *testing.T) {
		inBubble(t, control.Options{}, func(t *testing.T, h *handler, c net.Conn, r *bufio.Reader, _ chan bool) {
			time.Sleep(1000 * time.Hour)
			say(t, c, r, "NOOP", "200 ")
		})
	})
}

func TestAReplyThatIsNotReadEndsTheConnectionAfterTheWriteTimeout(t *testing.T) {
	inBubble(t, control.Options{}, func(t *testing.T, h *handler, c net.Conn, _ *bufio.Reader, _ chan bool) {
		start := time.Now()
		_, _ = io.WriteString(c, "NOOP\r\n")
		if why := <-h.over; why != control.ReasonSlow {
			t.Error(why)
		}
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("after %v", d)
		}
	})
}
