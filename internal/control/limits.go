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
	all       count
	addresses map[netip.Prefix]count
}

// count is how many connections there are.
type count struct {
	connected   int
	notLoggedIn int // of those
}

// refusal says why there cannot be another connection from there; the zero Reply: there can.
func (n *counts) refusal(from netip.Prefix, l Limits) Reply {
	here := n.addresses[from]
	text := ""
	switch {
	case l.MaxConnections > 0 && n.all.connected >= l.MaxConnections:
		text = "too many connections"
	case l.MaxConnections > 0 && n.all.notLoggedIn >= (l.MaxConnections+3)/4:
		text = "too many connections that are not logged in"
	case l.MaxPerAddress > 0 && here.connected >= l.MaxPerAddress:
		text = "too many connections from your address"
	case l.MaxPerAddress > 0 && here.notLoggedIn >= maxNotLoggedIn:
		text = "too many connections from your address that are not logged in"
	default:
		return Reply{}
	}
	return Reply{Code: 421, Text: text}
}

// add counts connections in, or out with negative numbers.
func (n *counts) add(from netip.Prefix, connected, notLoggedIn int) {
	if n.addresses == nil {
		n.addresses = make(map[netip.Prefix]count)
	}
	here := n.addresses[from]
	for _, c := range []*count{&n.all, &here} {
		c.connected += connected
		c.notLoggedIn += notLoggedIn
	}
	n.addresses[from] = here
	if here.connected == 0 {
		delete(n.addresses, from)
	}
}

// place is what is counted of a connection. Guarded by Server.mu.
type place struct {
	from     netip.Prefix
	loggedIn bool
}

// loggedIn counts the connection as one that is.
func (s *Server) loggedIn(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.conns[c]; ok && !p.loggedIn {
		p.loggedIn = true
		s.counts.add(p.from, 0, -1)
	}
}

// LoginDeadline returns when a client that has not logged in is sent away; false: never.
func (c *Conn) LoginDeadline() (time.Time, bool) {
	timeout := c.server.limits().LoginTimeout
	return c.since.Add(timeout), timeout > 0
}

// networkOf is what counts as one address: of IPv6 a /64, which is what one client has.
func networkOf(from netip.Addr) netip.Prefix {
	bits := from.BitLen()
	if from.Is6() {
		bits = 64
	}
	p, _ := from.Prefix(bits) // the zero Addr has the zero Prefix
	return p
}
