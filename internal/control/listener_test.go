package control_test

import (
	"bufio"
	"bytes"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/internal/control"
)

func TestLimits(t *testing.T) {
	for name, opts := range map[string]control.Options{
		"connections": {Limits: control.Limits{MaxConnections: 2}},
		"per address": {Limits: control.Limits{MaxPerAddress: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "tcp4", opts, plain)
			first, _ := s.login(), s.login()
			for range 3 {
				nc, err := net.Dial("tcp", s.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				refused := &client{t: t, s: s, conn: nc, r: bufio.NewReader(nc)}
				refused.expect("421 too many connections")
				refused.expectEOF()
			}
			if len(s.handlers) != 0 {
				t.Error("a refused connection reached the library")
			}
			first.play("> QUIT", "< 221 ")
			first.expectEOF()
			s.dial().play("> NOOP", "< 200 ")
		})
	}
}

// scriptedListener gives errors, then connections, then nothing until it is closed.
type scriptedListener struct {
	net.Listener
	mu   sync.Mutex
	errs []error
}

func (l *scriptedListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		l.mu.Unlock()
		return nil, &net.OpError{Op: "accept", Err: err}
	}
	l.mu.Unlock()
	return l.Listener.Accept()
}

func TestFailingAcceptsAreSurvived(t *testing.T) {
	inner, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var logged bytes.Buffer
	s := control.NewServer(control.Options{
		NewHandler: func(c *control.Conn) control.Handler { return newHandler(nil, c) },
		Logger:     slog.New(slog.NewTextHandler(lockedWriter{&mu, &logged}, nil)),
	})
	failing := []error{syscall.EMFILE, syscall.ENFILE, errors.New("odd")}
	l := s.Listen(&scriptedListener{Listener: inner, errs: slices.Clone(failing)}, nil)
	nc, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, want := range failing { // the library tries again
		if _, err := l.Accept(); !errors.Is(err, want) {
			t.Error(err)
		}
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if conn, ok := control.FromAddr(c.RemoteAddr()); !ok || conn != c || conn.ID() != 1 || conn.Handler() == nil {
		t.Error("the address does not lead back")
	}
	if c.RemoteAddr().String() != nc.LocalAddr().String() {
		t.Errorf("address %s", c.RemoteAddr())
	}
	_ = c.Close()
	if err := s.Shutdown(control.Reply{Code: 421}); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Count(logged.String(), "accept failed"); got != 3 {
		t.Errorf("%d errors were logged:\n%s", got, logged.String())
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func TestGone(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.login()
	if c.h.c.Gone() {
		t.Error("gone too early")
	}
	// While a command is executed nobody reads; with unread commands before the end, too.
	work := make(chan bool)
	c.h.mkd = func(*control.Command, string) error {
		work <- true
		c.untilGone()
		work <- c.h.c.Gone()
		return nil
	}
	c.send("MKD a\r\n")
	<-work
	c.send("NOOP\r\nNOOP\r\n")
	_ = c.tcp.Close()
	if !<-work {
		t.Error("not gone")
	}
	// From many goroutines, while it ends.
	c = s.dial()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for !c.h.c.Gone() {
				c.h.c.Command()
				c.h.c.ASCII()
			}
		})
	}
	c.play("> NOOP", "< 200 ")
	_ = c.tcp.Close()
	wg.Wait()
}
