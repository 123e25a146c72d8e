package control

import (
	"net/netip"
	"time"
)

// Limits can be changed while connections go on.
type Limits struct {
	// MaxConnections bounds the connections at a time, a quarter of it (rounded up) those that are not logged in. 0: no bound.
	MaxConnections int
	// MaxPerAddress bounds those of one IPv4 address, or one IPv6 network (/64); of them 100 may be not logged in. 0: no
	// bound.
	MaxPerAddress int
	// IdleTimeout is how long a client may send no command. 0: for ever. See Handler.IdleFor.
	IdleTimeout time.Duration
	// LoginTimeout is how long it may take to log in, whatever it says meanwhile. 0: for ever.
	LoginTimeout time.Duration
}

// maxNotLoggedIn bounds the connections of one address that are not logged in.
const maxNotLoggedIn = 100

// counts are the connections of the moment, as Limits has them. Guarded by Server.mu.
type counts struct {
	conns       map[*Conn]*address
	addresses   map[netip.Prefix]*address
	notLoggedIn int
}

// address is what is counted of one.
type address struct {
	network     netip.Prefix
	connected   int
	notLoggedIn int
}

func newCounts() counts {
	return counts{conns: make(map[*Conn]*address), addresses: make(map[netip.Prefix]*address)}
}

// enter counts a connection in.
func (n *counts) enter(c *Conn, from netip.Prefix) {
	a := n.addresses[from]
	if a == nil {
		a = &address{network: from}
		n.addresses[from] = a
	}
	n.conns[c] = a
	n.notLoggedIn++
	a.connected++
	a.notLoggedIn++
}

// settle counts a connection as one that is logged in.
func (n *counts) settle(c *Conn) {
	if a := n.conns[c]; a != nil && !c.settled {
		c.settled = true
		a.notLoggedIn--
		n.notLoggedIn--
	}
}

// leave counts a connection out. It reports false if it was not in.
func (n *counts) leave(c *Conn) bool {
	a, ok := n.conns[c]
	if !ok {
		return false
	}
	n.settle(c)
	delete(n.conns, c)
	if a.connected--; a.connected == 0 {
		delete(n.addresses, a.network)
	}
	return true
}

// refusal returns why there cannot be another connection from there; the zero Reply: there can.
func (n *counts) refusal(from netip.Prefix, l Limits) Reply {
	a := n.addresses[from]
	if a == nil {
		a = &address{}
	}
	text := ""
	switch {
	case l.MaxConnections > 0 && len(n.conns) >= l.MaxConnections:
		text = "too many connections"
	case l.MaxPerAddress > 0 && a.connected >= l.MaxPerAddress:
		text = "too many connections from your address"
	case l.MaxPerAddress > 0 && a.notLoggedIn >= maxNotLoggedIn:
		text = "too many connections from your address that are not logged in"
	case l.MaxConnections > 0 && n.notLoggedIn >= (l.MaxConnections+3)/4:
		text = "too many connections that are not logged in"
	default:
		return Reply{}
	}
	return Reply{Code: 421, Text: text}
}

// LoginDeadline returns when a client that has not logged in is sent away; false: never.
func (c *Conn) LoginDeadline() (time.Time, bool) {
	timeout := c.server.limits.Load().LoginTimeout
	return c.since.Add(timeout), timeout > 0
}

// NetworkOf is what counts as one address: of IPv6 a /64, which is what one client has.
func NetworkOf(from netip.Addr) netip.Prefix {
	from = from.Unmap().WithZone("")
	bits := from.BitLen()
	if from.Is6() {
		bits = 64
	}
	p, _ := from.Prefix(bits) // the zero Addr has the zero Prefix
	return p
}
