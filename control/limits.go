package control

import (
	"net"
	"time"
)

// Limits are the options that can be changed while connections go on.
type Limits struct {
	MaxConnections int           // see Options
	MaxPerAddress  int           // see Options
	IdleTimeout    time.Duration // see Options; connections heed it at once
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
