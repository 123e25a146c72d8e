package control

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// lowestPort protects services on the client's address: active data connections go to this port or above.
const lowestPort = 1024

// The ports that systems give to clients: from dynamicPorts on (RFC 6335 section 6); Linux has a range of its own.
const (
	dynamicPorts   = 49152
	firstLinuxPort = 32768
	lastLinuxPort  = 60999
)

// clientPorts returns the range of ports that this system gives to clients, besides those from dynamicPorts on.
func clientPorts() (first, last uint16) {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	return portRange(string(text))
}

// portRange returns the range in the text of that file. If the system has no such file, it returns the usual range of Linux.
func portRange(text string) (first, last uint16) {
	if _, err := fmt.Sscan(text, &first, &last); err != nil {
		return firstLinuxPort, lastLinuxPort
	}
	return first, last
}

// refusePort returns the refusal of an active data connection to a port of the client's address, or the zero Reply. Without it a
// client on this machine, or behind a relay on it, could make the server connect to itself or to services that trust this machine.
func (c *Conn) refusePort(port uint16) Reply {
	first, last := c.server.clientPorts[0], c.server.clientPorts[1]
	isLocal := c.client.IsLoopback() || c.client == c.local
	switch {
	case port < lowestPort:
		return Reply{Code: 501, Text: "data connections to ports below 1024 are refused"}
	case isLocal && c.server.uses(netip.AddrPortFrom(c.client, port)):
		return Reply{Code: 501, Text: "this server uses that port itself"}
	case isLocal && port < dynamicPorts && (port < first || port > last):
		return Reply{Code: 501, Text: fmt.Sprintf("on this machine data connections go to ports %d to %d, or above %d", first, last, dynamicPorts-1)}
	}
	return Reply{}
}

// uses reports whether the server listens there, or may listen there for data connections: passive ports listen on all addresses.
func (s *Server) uses(there netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		tcp, ok := l.Addr().(*net.TCPAddr)
		if !ok || tcp.Port != int(there.Port()) {
			continue
		}
		if at := tcp.AddrPort().Addr().Unmap(); at.IsUnspecified() || at == there.Addr().Unmap() {
			return true
		}
	}
	return s.opts.Ports.uses(there.Port())
}

// uses reports whether a port is in the range, or open.
func (p *Ports) uses(port uint16) bool {
	first, n := p.span()
	p.mu.Lock()
	defer p.mu.Unlock()
	_, open := p.open[port]
	return open || first <= int(port) && int(port) < first+n
}

// familyOf returns the number of an address family (RFC 2428 section 2).
func familyOf(a netip.Addr) string {
	if a.Is4() {
		return "1"
	}
	return "2"
}

// preparePort checks PORT (RFC 959 section 4.1.2).
func preparePort(c *Conn, cmd *Command) Reply {
	if !c.client.Is4() {
		return Reply{Code: 501, Text: "PORT is for IPv4 only: use EPRT"}
	}
	var n [6]byte
	parts := strings.Split(cmd.trimmed(), ",")
	for i, part := range parts {
		v, err := strconv.ParseUint(strings.Trim(part, " "), 10, 8) // some clients send a space after each comma
		if err != nil || len(parts) != len(n) {
			return Reply{Code: 501, Text: "PORT needs h1,h2,h3,h4,p1,p2"}
		}
		n[i] = byte(v)
	}
	return c.prepareActive(cmd, netip.AddrPortFrom(netip.AddrFrom4([4]byte(n[:4])), uint16(n[4])<<8|uint16(n[5])))
}

// prepareEprt checks EPRT (RFC 2428 section 2).
func prepareEprt(c *Conn, cmd *Command) Reply {
	malformed := Reply{Code: 501, Text: "EPRT needs |family|address|port|"}
	param := cmd.trimmed()
	parts := strings.Split(param, param[:1])
	if len(parts) != 5 {
		return malformed
	}
	if parts[1] != "1" && parts[1] != "2" {
		return Reply{Code: 522, Text: "use (1,2)"}
	}
	if family := familyOf(c.client); parts[1] != family { // the data connection is of the family of the control connection
		return Reply{Code: 522, Text: "use (" + family + ")"}
	}
	addr, err := netip.ParseAddr(parts[2])
	port, perr := strconv.ParseUint(parts[3], 10, 16)
	if err != nil || perr != nil || addr.Is4() != (parts[1] == "1") {
		return malformed
	}
	return c.prepareActive(cmd, netip.AddrPortFrom(addr, uint16(port)))
}

// prepareActive checks the target of an active data connection, which must be the client's own address. lftp sends :: over IPv6 for its
// own address.
func (c *Conn) prepareActive(cmd *Command, to netip.AddrPort) Reply {
	switch {
	case c.epsvAll:
		return afterEpsvAll
	case !c.server.opts.Policy().Active:
		return Reply{Code: 502, Text: "active data connections are off: use PASV or EPSV"}
	case c.client.Is6() && c.client.IsLinkLocalUnicast(): // the library accepts no zone (transfer_active.go:198)
		return Reply{Code: 502, Text: "active data connections to link-local addresses are not possible: use EPSV"}
	case !to.Addr().IsUnspecified() && to.Addr().Unmap() != c.client:
		return Reply{Code: 501, Text: "the address must be the one of the control connection"}
	}
	if r := c.refusePort(to.Port()); r.Code != 0 {
		return r
	}
	c.unprepare() // the library would leak the passive port (transfer_active.go:61)
	c.prepared = true
	cmd.forLibrary = fmt.Sprintf("EPRT |%s|%s|%d|", familyOf(c.client), c.client, to.Port())
	if cmd.Verb == "PORT" {
		cmd.forLibrary = fmt.Sprintf("PORT %s,%d,%d", strings.ReplaceAll(c.client.String(), ".", ","), to.Port()>>8, to.Port()&0xff)
	}
	return Reply{}
}
