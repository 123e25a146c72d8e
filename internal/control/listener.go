package control

import (
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Listener is the one listener that ftpserverlib accepts from (Settings.Listener). It
// gathers the connections of one or several sources and makes a [Conn] of each.
type Listener struct {
	opts     Options
	verbs    map[string]*verb
	sources  []Source
	accepted chan *Conn
	done     chan struct{} // closed by Close
	closing  sync.Once
	accepts  sync.WaitGroup

	mu        sync.Mutex
	lastID    uint64
	conns     map[*Conn]netip.Addr
	addresses map[netip.Addr]int
	stopping  bool
	farewell  Reply         // if stopping
	empty     chan struct{} // closed when the last connection is gone; nil if nobody waits
}

var _ net.Listener = (*Listener)(nil)

// NewListener begins to accept from the sources, of which there must be at least one. It
// panics if there is none, or if opts has no NewHandler. Close it to end the goroutines.
func NewListener(opts Options, sources ...Source) *Listener {
	if len(sources) == 0 {
		panic("control: no source to listen on")
	}
	l := &Listener{
		opts:      opts.withDefaults(),
		verbs:     commands(),
		sources:   sources,
		accepted:  make(chan *Conn),
		done:      make(chan struct{}),
		conns:     make(map[*Conn]netip.Addr),
		addresses: make(map[netip.Addr]int),
	}
	for _, s := range sources {
		l.accepts.Go(func() { l.accept(s) })
	}
	return l
}

// Accept returns the next connection, a *[Conn]. After Close it returns an error that the
// library takes for a clean stop, and so does net: net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		c.start(l.opts.NewHandler(c))
		return c, nil
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Addr returns the address of the first source.
func (l *Listener) Addr() net.Addr { return l.sources[0].Addr() }

// Close stops accepting and returns when no goroutine of the listener is left.
// Connections that the library has got live on. It may be called several times.
func (l *Listener) Close() error {
	var err error
	l.closing.Do(func() {
		close(l.done)
		for _, s := range l.sources {
			if e := s.Close(); e != nil && !errors.Is(e, net.ErrClosed) {
				err = errors.Join(err, e)
			}
		}
	})
	l.accepts.Wait()
	return err
}

// Shutdown stops accepting and ends all connections with the reply (421): idle ones and
// those that wait at once, those with a transfer when it is over. It does not wait for
// them; see Wait.
func (l *Listener) Shutdown(r Reply) error {
	l.mu.Lock()
	l.stopping, l.farewell = true, r
	l.mu.Unlock()
	err := l.Close()
	for c := range l.Conns() {
		c.shutdown(r)
	}
	return err
}

// Wait returns when the library has closed all connections, or with ctx's error.
func (l *Listener) Wait(ctx context.Context) error {
	l.mu.Lock()
	if len(l.conns) == 0 {
		l.mu.Unlock()
		return nil
	}
	if l.empty == nil {
		l.empty = make(chan struct{})
	}
	empty := l.empty
	l.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SetLimits takes other limits. Connections above a lower bound live on.
func (l *Listener) SetLimits(n Limits) {
	l.mu.Lock()
	l.opts.MaxConnections, l.opts.MaxPerAddress = n.MaxConnections, n.MaxPerAddress
	l.opts.IdleTimeout = n.IdleTimeout // of connections to come; each has its own
	l.mu.Unlock()
	for c := range l.Conns() {
		c.setIdleTimeout(n.IdleTimeout)
	}
}

// Addrs returns the addresses of all sources.
func (l *Listener) Addrs() []net.Addr {
	addrs := make([]net.Addr, len(l.sources))
	for i, s := range l.sources {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Conns yields the connections of the moment, in no order.
func (l *Listener) Conns() iter.Seq[*Conn] {
	return func(yield func(*Conn) bool) {
		l.mu.Lock()
		conns := make([]*Conn, 0, len(l.conns))
		for c := range l.conns {
			conns = append(conns, c)
		}
		l.mu.Unlock()
		for _, c := range conns {
			if !yield(c) {
				return
			}
		}
	}
}

// accept takes connections from one source until that is closed. Nothing else ends it: a
// process that is out of descriptors will have some again.
func (l *Listener) accept(s Source) {
	var pause time.Duration
	for {
		nc, err := s.Accept()
		if err == nil {
			pause = 0
			l.admit(nc, s.TLS)
			continue
		}
		if l.isClosed() || errors.Is(err, net.ErrClosed) {
			return
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		l.opts.Logger.Warn("accept failed", "address", s.Addr().String(), "err", err, "retry_in", pause)
		select {
		case <-time.After(pause):
		case <-l.done:
			return
		}
	}
}

func (l *Listener) isClosed() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// admit hands a connection to Accept, or turns it away.
func (l *Listener) admit(nc net.Conn, implicit *tls.Config) {
	if t, ok := nc.(*net.TCPConn); ok {
		tune(t, l.opts.UserTimeout)
	}
	c, refusal := l.enrol(nc, implicit)
	if c == nil {
		refuse(nc, refusal, implicit != nil)
		return
	}
	select {
	case l.accepted <- c:
	case <-l.done:
		l.dismiss(c)
		refuse(nc, l.farewellReply(), implicit != nil)
	}
}

// enrol counts the connection in, or says why not.
func (l *Listener) enrol(nc net.Conn, implicit *tls.Config) (*Conn, Reply) {
	address := ipOf(nc.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopping {
		return nil, l.farewell
	}
	if m := l.opts.MaxConnections; m > 0 && len(l.conns) >= m {
		return nil, l.opts.Refusal
	}
	if m := l.opts.MaxPerAddress; m > 0 && l.addresses[address] >= m {
		return nil, l.opts.Refusal
	}
	l.lastID++
	c := newConn(l, nc, l.lastID, implicit)
	l.conns[c] = address
	l.addresses[address]++
	return c, Reply{}
}

func (l *Listener) farewellReply() Reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopping {
		return l.farewell
	}
	return Reply{Code: 421, Text: "server stops"}
}

// dismiss counts the connection out.
func (l *Listener) dismiss(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	address, ok := l.conns[c]
	if !ok {
		return
	}
	delete(l.conns, c)
	if l.addresses[address]--; l.addresses[address] == 0 {
		delete(l.addresses, address)
	}
	if len(l.conns) == 0 && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
}

// refuse says no and closes the connection, without waiting for the client.
func refuse(nc net.Conn, r Reply, secure bool) {
	w := newWire(nc, lastTimeout)
	w.finish()
	if !secure {
		_, _ = w.Write(r.AppendTo(nil))
	}
	_ = w.Close()
}

// ipOf returns the IP address without port and zone; the zero Addr if it is none.
func ipOf(a net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}
