package control

import (
	"net/netip"
	"time"
)

// Limits can be changed while the server runs.
type Limits struct {
	// MaxConnections limits the connections at a time. At most a quarter of it, rounded up, are not logged in. 0: no limit.
	MaxConnections int
	// MaxPerAddress limits the connections of one IPv4 address or one IPv6 network (/64), and those of them that are not
	// logged in to 100. 0: no limit.
	MaxPerAddress int
	// IdleTimeout is how long a client may send no command. 0: no limit. See Handler.IdleFor.
	IdleTimeout time.Duration
	// LoginTimeout is how long a client may take to log in. 0: no limit.
	LoginTimeout time.Duration
	// UserTimeout is how long TCP waits for acknowledgements, also of keepalive probes, before it gives the client of a new connection up
	// (TCP_USER_TIMEOUT, RFC 5482). 0: the default of the system.
	UserTimeout time.Duration
}

// maxNotLoggedIn limits the connections of one address that are not logged in.
const maxNotLoggedIn = 100

// counts has the numbers of connections of one IPv4 address or IPv6 network.
type counts struct{ connected, notLoggedIn int }

// countLocked adds to the counts of a network, and of the server.
func (s *Server) countLocked(from netip.Prefix, connected, notLoggedIn int) {
	n := s.networks[from]
	n.connected += connected
	n.notLoggedIn += notLoggedIn
	s.notLoggedIn += notLoggedIn
	if s.networks[from] = n; n.connected == 0 {
		delete(s.networks, from)
	}
}

// refusalLocked returns why the server refuses another connection from there, or the zero Reply.
func (s *Server) refusalLocked(from netip.Prefix, l Limits) Reply {
	n, text := s.networks[from], ""
	switch {
	case l.MaxConnections > 0 && len(s.conns) >= l.MaxConnections:
		text = "too many connections"
	case l.MaxPerAddress > 0 && n.connected >= l.MaxPerAddress:
		text = "too many connections from your address"
	case l.MaxPerAddress > 0 && n.notLoggedIn >= maxNotLoggedIn:
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
	return c.started.Add(timeout), timeout > 0
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
