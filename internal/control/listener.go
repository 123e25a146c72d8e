package control

import (
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Server makes a [Conn] of each connection that its listeners accept, and ends them.
type Server struct {
	opts         Options
	verbs        map[string]*verb
	clientPorts  [2]uint16     // the range that this system gives to clients
	writeTimeout time.Duration // how long a client may leave a reply unread that does not fit into the socket's buffers
	ackTimeout   time.Duration // how long the end of a connection waits for the acknowledgement of a reply, see Command.Lost

	limits atomic.Pointer[Limits]

	mu        sync.Mutex
	listeners []net.Listener
	lastID    uint64
	counts    counts
	farewell  Reply         // if there are to be no more connections
	empty     chan struct{} // gets a value when the last connection is gone
}

// NewServer returns a Server without listeners.
func NewServer(opts Options) *Server {
	s := &Server{
		opts:         opts,
		verbs:        commands(),
		writeTimeout: 30 * time.Second,
		ackTimeout:   time.Second,
		counts:       newCounts(),
		empty:        make(chan struct{}, 1),
	}
	s.limits.Store(&opts.Limits)
	s.clientPorts[0], s.clientPorts[1] = clientPorts()
	return s
}

// Listen makes l one of the server's listeners. The library accepts from the one that it returns (Settings.Listener). With
// implicit TLS the handshake comes before the greeting.
func (s *Server) Listen(l net.Listener, implicit *tls.Config) net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, l)
	return &listener{l, s, implicit}
}

// listener is one of them.
type listener struct {
	net.Listener
	server   *Server
	implicit *tls.Config
}

// Accept returns the next connection that is let in, a *[Conn]. The library tries again after an error.
func (l *listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.server.opts.Logger.Warn("accept failed", "address", l.Addr().String(), "err", err)
			}
			return nil, err
		}
		if t, ok := nc.(*net.TCPConn); ok {
			tune(t, l.server.opts.UserTimeout)
		}
		c, refusal := l.server.admit(nc, l.implicit)
		if c != nil {
			c.arm()
			return c, nil
		}
		w := newWire(nc, lastTimeout)
		if l.implicit == nil { // a TLS client would not understand a word
			_, _ = w.Write(refusal.AppendTo(nil))
		}
		_ = w.Close()
	}
}

// admit counts the connection in, or says why not.
func (s *Server) admit(nc net.Conn, implicit *tls.Config) (*Conn, Reply) {
	from := NetworkOf(ipOf(nc.RemoteAddr()))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.farewell.Code != 0 {
		return nil, s.farewell
	}
	if r := s.counts.refusal(from, *s.limits.Load()); r.Code != 0 {
		return nil, r
	}
	s.lastID++
	c := newConn(s, nc, s.lastID, implicit)
	s.counts.enter(c, from)
	return c, Reply{}
}

// settle counts the connection as one that is logged in.
func (s *Server) settle(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.settle(c)
}

// dismiss counts the connection out. It reports false if it was not in.
func (s *Server) dismiss(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.counts.leave(c) {
		return false
	}
	if len(s.counts.conns) == 0 {
		select {
		case s.empty <- struct{}{}:
		default:
		}
	}
	return true
}

// Shutdown stops accepting and ends all connections with the reply (421): idle ones and
// those that wait at once, those with a transfer when it is over. It does not wait for
// them; see Wait. It may be called again.
func (s *Server) Shutdown(r Reply) error {
	s.mu.Lock()
	s.farewell = r
	var errs []error
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	s.listeners = nil
	s.mu.Unlock()
	for c := range s.Conns() {
		c.shutdown(r)
	}
	return errors.Join(errs...)
}

// Wait returns when the library has closed all connections, or with ctx's error. One goroutine may wait at a time.
func (s *Server) Wait(ctx context.Context) error {
	for s.connected() > 0 {
		select {
		case <-s.empty:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *Server) connected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.counts.conns)
}

// SetLimits takes other limits. Connections above a lower bound live on; the idle time counts at once.
func (s *Server) SetLimits(l Limits) {
	s.limits.Store(&l)
	for c := range s.Conns() {
		c.Wake()
	}
}

// Conns yields the connections of the moment, in no order.
func (s *Server) Conns() iter.Seq[*Conn] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Values(slices.Collect(maps.Keys(s.counts.conns)))
}

// ipOf returns the IP address without port and zone; the zero Addr if it is none.
func ipOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}
