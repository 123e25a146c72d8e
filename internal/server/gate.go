package server

import (
	"context"
	"errors"
	"net"
	"sync"
)

// gate is a listener that can be shut and opened again. While it is shut, the system refuses connections, so clients try the
// next address, and Accept waits.
type gate struct {
	address net.Addr

	mu      sync.Mutex
	open    net.Listener  // nil: it is shut
	changed chan struct{} // closed at the next change of these
	closed  bool
}

func newGate(l net.Listener) *gate {
	return &gate{address: l.Addr(), open: l, changed: make(chan struct{})}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		g.mu.Lock()
		l, changed, closed := g.open, g.changed, g.closed
		g.mu.Unlock()
		switch {
		case closed:
			return nil, net.ErrClosed
		case l == nil:
			<-changed
			continue
		}
		if conn, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			return conn, err
		}
	}
}

// Addr implements net.Listener.
func (g *gate) Addr() net.Addr { return g.address }

// Close implements net.Listener. The gate stays closed.
func (g *gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return net.ErrClosed
	}
	g.closed = true
	return g.setLocked(nil)
}

// shut closes the address. The system resets connections that it has not handed over yet.
func (g *gate) shut() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.setLocked(nil)
}

// reopen opens the address again, unless it is open or Close was called.
func (g *gate) reopen(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.open != nil {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", g.address.String())
	if err != nil {
		return err
	}
	return g.setLocked(l)
}

func (g *gate) setLocked(l net.Listener) (err error) {
	if g.open != nil {
		err = g.open.Close()
	}
	g.open = l
	close(g.changed)
	g.changed = make(chan struct{})
	return err
}
