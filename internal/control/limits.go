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
	notLoggedIn map[*Conn]struct{}
}

func newCounts() counts {
	return counts{conns: make(map[*Conn]*address), addresses: make(map[netip.Prefix]*address)}
}

// enter counts a connection in.
func (n *counts) enter(c *Conn, from netip.Prefix) {
	a := n.addresses[from]
	if a == nil {
		a = &address{network: from, notLoggedIn: make(map[*Conn]struct{})}
		n.addresses[from] = a
	}
	n.conns[c] = a
	n.notLoggedIn++
	a.connected++
	a.notLoggedIn[c] = struct{}{}
}

// settle says that a connection is none of those that are not logged in any more: it is, or it was sent away.
func (n *counts) settle(c *Conn) {
	a := n.conns[c]
	if a == nil {
		return
	}
	if _, ok := a.notLoggedIn[c]; ok {
		delete(a.notLoggedIn, c)
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

var tooManyNotLoggedIn = Reply{Code: 421, Text: "too many connections that are not logged in"}

// refusal says why there cannot be another connection from there; the zero Reply: there can. If there are too many that
// are not logged in, another address with more of them has to give up one, which is to be sent away: an attacker from
// some addresses does not keep out clients from elsewhere.
func (n *counts) refusal(from netip.Prefix, l Limits) (r Reply, instead *Conn) {
	a := n.addresses[from]
	if a == nil {
		a = &address{}
	}
	switch {
	case l.MaxConnections > 0 && len(n.conns) >= l.MaxConnections:
		return Reply{Code: 421, Text: "too many connections"}, nil
	case l.MaxPerAddress > 0 && a.connected >= l.MaxPerAddress:
		return Reply{Code: 421, Text: "too many connections from your address"}, nil
	case l.MaxPerAddress > 0 && len(a.notLoggedIn) >= maxNotLoggedIn:
		return Reply{Code: 421, Text: "too many connections from your address that are not logged in"}, nil
	case l.MaxConnections > 0 && n.notLoggedIn >= (l.MaxConnections+3)/4:
		if instead = n.surplus(len(a.notLoggedIn) + 1); instead == nil {
			return tooManyNotLoggedIn, nil
		}
	}
	return Reply{}, instead
}

// surplus takes one of the connections that are not logged in from the address that has most of them, if these are more
// than that.
func (n *counts) surplus(than int) *Conn {
	var most *address
	for _, a := range n.addresses {
		if len(a.notLoggedIn) > than {
			most, than = a, len(a.notLoggedIn)
		}
	}
	if most == nil {
		return nil
	}
	for c := range most.notLoggedIn {
		n.settle(c)
		return c
	}
	return nil
}

// LoginDeadline returns when a client that has not logged in is sent away; false: never.
func (c *Conn) LoginDeadline() (time.Time, bool) {
	timeout := c.server.limits().LoginTimeout
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
