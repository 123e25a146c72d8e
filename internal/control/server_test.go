package control

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for an event before it fails.
const patience = time.Minute

// server is a Server with stand-ins for the library and the driver.
type server struct {
	*Server
	t         *testing.T
	addr      string
	ports     *Ports
	libraries chan *library
	served    sync.WaitGroup
}

// setup has the settings of a test server.
type setup struct {
	Options
	listener    net.Listener
	implicit    *tls.Config
	first, last uint16 // of the passive ports; 0: any
	write, ack  time.Duration
	reset, late time.Duration
}

// serve starts a server. When the test ends, it stops the server and checks for leftovers.
func serve(t *testing.T, change ...func(*setup)) *server {
	t.Helper()
	o := setup{write: patience, ack: time.Second, reset: 100 * time.Millisecond, late: patience}
	o.Policy = func() Policy { return Policy{Active: true} }
	o.Logger = slog.New(slog.DiscardHandler)
	o.NewHandler = func(c *Conn) Handler { return &handler{c: c, over: make(chan Reason, 1)} }
	for _, f := range change {
		f(&o)
	}
	if o.listener == nil {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o.listener = l
	}
	s := &server{t: t, addr: o.listener.Addr().String(), libraries: make(chan *library, 1000)}
	s.ports = NewPorts(PortOptions{
		Range:   func() (uint16, uint16) { return o.first, o.last },
		Timeout: func() time.Duration { return patience },
	})
	o.Ports = s.ports
	s.Server = NewServer(o.Options)
	s.writeTimeout, s.ackTimeout, s.resetTimeout, s.lateTimeout = o.write, o.ack, o.reset, o.late
	l := s.Listen(o.listener, o.implicit)
	s.served.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			c := nc.(*Conn)
			lib := &library{s: s, conn: c, uploads: make(chan error, 10)}
			s.libraries <- lib
			s.served.Go(lib.run)
		}
	})
	t.Cleanup(s.stop)
	return s
}

func limited(l Limits) func(*setup)            { return func(o *setup) { o.Limits = l } }
func withTLS(o *setup)                         { o.TLS = certificate() }
func timeouts(w, a time.Duration) func(*setup) { return func(o *setup) { o.write, o.ack = w, a } }

func (s *server) stop() {
	_ = s.Shutdown(Reply{Code: 421, Text: "server stops"})
	for c := range s.Conns() {
		c.Kick(Reply{Code: 421, Text: "kicked"})
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Wait(ctx); err != nil {
		s.t.Errorf("connections are left: %v", err)
	}
	s.served.Wait()
	if len(s.ports.open) != 0 || len(s.ports.shares) != 0 {
		s.t.Errorf("passive ports are left: %v, %v", s.ports.open, s.ports.shares)
	}
}

// handler follows one connection, as the driver does.
type handler struct {
	c       *Conn
	over    chan Reason
	idleFor func() time.Duration
	onBegin func(*Command)

	mu       sync.Mutex
	commands []string // lines of Begin
	log      []string
	begun    int // Begin without its End
}

func (h *handler) Begin(cmd *Command) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commands = append(h.commands, cmd.Line)
	if h.begun++; h.begun != 1 {
		h.log = append(h.log, "began before the end of another: "+cmd.Line)
	}
	if h.onBegin != nil {
		h.onBegin(cmd)
	}
}

func (h *handler) End(cmd *Command) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begun--; h.begun != 0 {
		h.log = append(h.log, "ended without beginning: "+cmd.Line)
	}
}

func (h *handler) Ended(why Reason) {
	h.note("ended: " + string(why))
	h.over <- why // a second call would block the test
}

func (h *handler) IdleFor() time.Duration {
	if h.idleFor == nil {
		return 0
	}
	return h.idleFor()
}

func (h *handler) Status() []string { return []string{" 211 not the end", "211 nor this"} }
func (h *handler) Replied([]byte)   {}

func (h *handler) note(s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, s)
}

func (h *handler) notes() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.log, "; ")
}

func (h *handler) executed() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.commands, "; ")
}

func (h *handler) endedWith(t *testing.T, want Reason) {
	t.Helper()
	select {
	case why := <-h.over:
		if why != want {
			t.Errorf("the connection ended: %v, want: %v", why, want)
		}
	case <-time.After(patience):
		t.Fatal("the connection did not end")
	}
}

func certificate() *tls.Config {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates}
}

// freePort returns a port without a listener, outside the range of the system.
func freePort(t *testing.T) uint16 {
	for range 1000 {
		port := 20400 + mathrand.IntN(8000)
		if l, err := net.Listen("tcp", fmt.Sprint(":", port)); err == nil {
			_ = l.Close()
			return uint16(port)
		}
	}
	t.Fatal("no port is free")
	return 0
}
