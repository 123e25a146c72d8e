package control

import (
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Server makes a [Conn] of each connection that its listeners accept.
type Server struct {
	opts         Options
	verbs        map[string]*verb
	clientPorts  [2]uint16     // the first and last port that this system gives to clients
	writeTimeout time.Duration // how long a client may leave a reply unread once the socket's buffers are full
	ackTimeout   time.Duration // how long the end of a connection waits for an acknowledgement, see Command.Lost
	resetTimeout time.Duration // how long it waits for a reset after a FIN: a client calls shutdown, then close
	lateTimeout  time.Duration // how long a client may take to connect to its passive port, see Command.recordQuit

	limits atomic.Pointer[Limits]

	mu            sync.Mutex
	listeners     []net.Listener
	lastID        uint64
	conns         map[*Conn]bool // true: logged in
	networks      map[netip.Prefix]counts
	notLoggedIn   int           // connections
	shutdownReply Reply         // after Shutdown: refuses connections
	empty         chan struct{} // gets a value when the last connection is closed
}

// NewServer returns a Server without listeners.
func NewServer(opts Options) *Server {
	s := &Server{
		opts:         opts,
		verbs:        commands(),
		writeTimeout: 30 * time.Second,
		ackTimeout:   time.Second,
		resetTimeout: 100 * time.Millisecond,
		lateTimeout:  5 * time.Second,
		conns:        make(map[*Conn]bool),
		networks:     make(map[netip.Prefix]counts),
		empty:        make(chan struct{}, 1),
	}
	s.limits.Store(&opts.Limits)
	s.clientPorts[0], s.clientPorts[1] = clientPorts()
	return s
}

// Listen adds a listener. The library accepts from the result (Settings.Listener). With implicit TLS the handshake comes before the
// greeting.
func (s *Server) Listen(l net.Listener, implicit *tls.Config) net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, l)
	return &listener{Retrying(l, s.opts.Logger), s, implicit}
}

// listener is a listener of a Server.
type listener struct {
	net.Listener
	server   *Server
	implicit *tls.Config
}

// Accept returns the next connection that is not refused, a *[Conn], or net.ErrClosed.
func (l *listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if t, ok := nc.(*net.TCPConn); ok {
			tune(t, l.server.limits.Load().UserTimeout)
		}
		c, refusal := l.server.admit(nc, l.implicit)
		if c != nil {
			c.arm()
			return c, nil
		}
		w := newWire(nc, lastTimeout)
		if l.implicit == nil { // a TLS client could not read it
			_, _ = w.Write(refusal.AppendTo(nil))
		}
		_ = w.Close()
	}
}

// Retrying returns a listener whose Accept returns a connection or net.ErrClosed. It logs any other error, and tries again after a pause of
// at most a second: ftpserverlib and net/http would stop to serve after ENOBUFS, for example, or after an error of a client's connection.
func Retrying(l net.Listener, log *slog.Logger) net.Listener { return &retrying{l, log} }

type retrying struct {
	net.Listener
	log *slog.Logger
}

// Accept implements net.Listener.
func (r *retrying) Accept() (net.Conn, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		conn, err := r.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		r.log.Warn("accept failed", "address", r.Addr().String(), "err", err)
		time.Sleep(pause)
	}
}

// admit returns a Conn, or the reply that refuses the connection.
func (s *Server) admit(nc net.Conn, implicit *tls.Config) (*Conn, Reply) {
	from := NetworkOf(ipOf(nc.RemoteAddr()))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shutdownReply.Code != 0 {
		return nil, s.shutdownReply
	}
	if r := s.refusalLocked(from, *s.limits.Load()); r.Code != 0 {
		return nil, r
	}
	s.lastID++
	c := newConn(s, nc, s.lastID, implicit)
	s.conns[c] = false
	s.countLocked(from, 1, 1)
	return c, Reply{}
}

// countLogin counts the connection as logged in.
func (s *Server) countLogin(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if loggedIn, ok := s.conns[c]; ok && !loggedIn {
		s.conns[c] = true
		s.countLocked(NetworkOf(c.client), 0, -1)
	}
}

// removeConn removes a connection from the counts. It returns false if it was removed before.
func (s *Server) removeConn(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	loggedIn, ok := s.conns[c]
	switch {
	case !ok:
		return false
	case loggedIn:
		s.countLocked(NetworkOf(c.client), -1, 0)
	default:
		s.countLocked(NetworkOf(c.client), -1, -1)
	}
	if delete(s.conns, c); len(s.conns) == 0 {
		select {
		case s.empty <- struct{}{}:
		default:
		}
	}
	return true
}

// Shutdown closes the listeners and ends all connections with the reply (421). A connection with a transfer ends after it. Shutdown
// does not wait for them; see Wait. It may be called again.
func (s *Server) Shutdown(r Reply) error {
	s.mu.Lock()
	s.shutdownReply = r
	var errs []error
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	s.listeners = nil
	s.mu.Unlock()
	for c := range s.Conns() {
		c.requestEnd(endRequest{why: ReasonShutdown, reply: r})
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
	return len(s.conns)
}

// SetLimits changes the limits. Connections above a lower limit stay; the idle time applies at once.
func (s *Server) SetLimits(l Limits) {
	s.limits.Store(&l)
	for c := range s.Conns() {
		c.Wake()
	}
}

// Conns returns the present connections, in no order.
func (s *Server) Conns() iter.Seq[*Conn] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Values(slices.Collect(maps.Keys(s.conns)))
}

// ipOf returns the IP address without port and zone, or the zero Addr.
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

// keepAlive makes TCP probe a silent peer and give it up after about d; 0: the default of the system.
func keepAlive(t *net.TCPConn, d time.Duration) {
	if d <= 0 {
		return
	}
	const probes = 3
	interval := max(d/(probes+1), time.Second)
	_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: interval, Interval: interval, Count: probes})
}
