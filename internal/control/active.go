package control

import (
	"fmt"
	"net"
	"net/netip"
	"os"
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
	if _, err := fmt.Sscan(string(text), &first, &last); err != nil {
		return firstLinuxPort, lastLinuxPort
	}
	return first, last
}

// mayConnect returns the refusal of an active data connection to a port of the client's address, or the zero Reply. Without it a
// client on this machine, or behind a relay on it, could make the server connect to itself or to services that trust this machine.
func (c *Conn) mayConnect(port uint16) Reply {
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
