package control

import (
	"net/netip"
	"time"
)

// Limits can be changed while the server runs.
type Limits struct {
	// MaxConnections limits the connections at a time, and those that are not logged in to a quarter of it (rounded up). 0: no limit.
	MaxConnections int
	// MaxPerAddress limits the connections of one IPv4 address or one IPv6 network (/64), and those of them that are not
	// logged in to 100. 0: no limit.
	MaxPerAddress int
	// IdleTimeout is how long a client may send no command. 0: no limit. See Handler.IdleFor.
	IdleTimeout time.Duration
	// LoginTimeout is how long a client may take to log in. 0: no limit.
	LoginTimeout time.Duration
}

// maxNotLoggedIn limits the connections of one address that are not logged in.
const maxNotLoggedIn = 100

// address counts the connections of one IPv4 address or IPv6 network. Server.mu guards it.
type address struct {
	network     netip.Prefix
	connected   int
	notLoggedIn int
}

// enterLocked counts a new connection.
func (s *Server) enterLocked(c *Conn, from netip.Prefix) {
	c.counted = s.addresses[from]
	if c.counted == nil {
		c.counted = &address{network: from}
		s.addresses[from] = c.counted
	}
	s.conns[c] = struct{}{}
	s.notLoggedIn++
	c.counted.connected++
	c.counted.notLoggedIn++
}

// settleLocked counts a connection as logged in.
func (s *Server) settleLocked(c *Conn) {
	if c.counted != nil && !c.settled {
		c.settled = true
		c.counted.notLoggedIn--
		s.notLoggedIn--
	}
}

// leaveLocked ends the counting of a connection. It returns false if that was done before.
func (s *Server) leaveLocked(c *Conn) bool {
	if c.counted == nil {
		return false
	}
	s.settleLocked(c)
	delete(s.conns, c)
	if c.counted.connected--; c.counted.connected == 0 {
		delete(s.addresses, c.counted.network)
	}
	c.counted = nil
	return true
}

// refusalLocked returns why the server refuses another connection from there, or the zero Reply.
func (s *Server) refusalLocked(from netip.Prefix, l Limits) Reply {
	var a address
	if counted := s.addresses[from]; counted != nil {
		a = *counted
	}
	text := ""
	switch {
	case l.MaxConnections > 0 && len(s.conns) >= l.MaxConnections:
		text = "too many connections"
	case l.MaxPerAddress > 0 && a.connected >= l.MaxPerAddress:
		text = "too many connections from your address"
	case l.MaxPerAddress > 0 && a.notLoggedIn >= maxNotLoggedIn:
		text = "too many connections from your address that are not logged in"
	case l.MaxConnections > 0 && s.notLoggedIn >= (l.MaxConnections+3)/4:
		text = "too many connections that are not logged in"
	default:
		return Reply{}
	}
	return Reply{Code: 421, Text: text}
}

// LoginDeadline returns when the server ends the connection unless the client has logged in; false: never.
func (c *Conn) LoginDeadline() (time.Time, bool) {
	timeout := c.server.limits.Load().LoginTimeout
	return c.since.Add(timeout), timeout > 0
}

// NetworkOf returns the network that counts as one address: an IPv4 address, or an IPv6 /64, which one client has.
func NetworkOf(from netip.Addr) netip.Prefix {
	from = from.Unmap().WithZone("")
	bits := from.BitLen()
	if from.Is6() {
		bits = 64
	}
	p, _ := from.Prefix(bits) // the zero Addr has the zero Prefix
	return p
}
