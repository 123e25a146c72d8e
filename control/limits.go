package control

import (
	"net"
	"time"
)

// Limits are the options that can be changed while connections go on.
type Limits struct {
	MaxConnections int           // see Options
	MaxPerAddress  int           // see Options
	IdleTimeout    time.Duration // see Options; connections heed it the next time that they look at the clock
}

// SetLimits takes other limits. Connections above a lower bound live on.
func (l *Listener) SetLimits(n Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opts.MaxConnections, l.opts.MaxPerAddress = n.MaxConnections, n.MaxPerAddress
}

// Addrs returns the addresses of all sources.
func (l *Listener) Addrs() []net.Addr {
	addrs := make([]net.Addr, len(l.sources))
	for i, s := range l.sources {
		addrs[i] = s.Addr()
	}
	return addrs
}
