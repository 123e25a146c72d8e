package control

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Ports are the passive ports of a server. A port belongs to the connection whose 227 or 229 named it; a data connection
// that comes to it from another address is closed, and does not disturb the transfer.
//
// The library asks for a port (FetchNext), listens on it and shows the listener (Wrap); neither call says for which
// client. So a port is claimed when the reply that names it passes by.
type Ports struct {
	options PortOptions

	mu   sync.Mutex
	open map[uint16]*Port
}

// PortOptions say which ports there are and how long each waits.
type PortOptions struct {
	// Range returns the first and the last port, at the moment; 0: the system chooses. nil: the same.
	Range func() (first, last uint16)
	// Timeout returns how long a data connection is waited for; nil: 20 s.
	Timeout func() time.Duration
}

// NewPorts returns ports of which none is open.
func NewPorts(o PortOptions) *Ports {
	if o.Range == nil {
		o.Range = func() (first, last uint16) { return 0, 0 }
	}
	if o.Timeout == nil {
		o.Timeout = func() time.Duration { return 20 * time.Second }
	}
	return &Ports{options: o, open: make(map[uint16]*Port)}
}

// FetchNext implements ftpserver.PasvPortGetter: a port at random that is not open for another session, if there is one.
func (p *Ports) FetchNext() (exposed, listened int, ok bool) {
	first, last := p.options.Range()
	if first == 0 {
		return 0, 0, true // the system chooses
	}
	count := int(last) - int(first) + 1
	start := rand.IntN(count)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range count {
		port := int(first) + (start+i)%count
		if _, taken := p.open[uint16(port)]; !taken {
			return port, port, true
		}
	}
	return 0, 0, false
}

// NumberAttempts implements ftpserver.PasvPortGetter. Other programs may use some ports of the range.
func (p *Ports) NumberAttempts() int { return 10 }

// Wrap implements ftpserver.MainDriverExtensionPassiveWrapper for a driver: it takes note of a port that was opened.
func (p *Ports) Wrap(l net.Listener) (net.Listener, error) {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("control: a passive port is a %T", l)
	}
	port := &Port{TCPListener: tcp, ports: p, number: tcp.Addr().(*net.TCPAddr).AddrPort().Port()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[port.number] = port
	return port, nil
}

// claim gives a port to the client at that address.
func (p *Ports) claim(number uint16, client netip.Addr) *Port {
	p.mu.Lock()
	port := p.open[number]
	p.mu.Unlock()
	if port != nil {
		port.mu.Lock()
		port.client = client
		port.mu.Unlock()
	}
	return port
}

// Port is an open passive port.
type Port struct {
	*net.TCPListener
	ports  *Ports
	number uint16

	mu      sync.Mutex
	client  netip.Addr // who may connect
	hurried bool       // its client has said QUIT: only a connection that has come already counts
}

// lateConnection is how long a client that has said QUIT may take to connect.
const lateConnection = 10 * time.Millisecond

// Accept returns the connection of the client that the port belongs to. It waits no longer than PortOptions.Timeout.
func (p *Port) Accept() (net.Conn, error) {
	if err := p.arm(); err != nil {
		return nil, err
	}
	for {
		conn, err := p.TCPListener.Accept()
		if err != nil {
			return nil, err
		}
		if ipOf(conn.RemoteAddr()) == p.owner() {
			return conn, nil
		}
		conn.Close() // a stranger's
	}
}

func (p *Port) owner() netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.client
}

func (p *Port) arm() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	timeout := p.ports.options.Timeout()
	if p.hurried {
		timeout = min(timeout, lateConnection)
	}
	return p.SetDeadline(time.Now().Add(timeout))
}

// hurry gives up a data connection that has not come yet.
func (p *Port) hurry() {
	p.mu.Lock()
	p.hurried = true
	p.mu.Unlock()
	_ = p.arm() // an error says that it is closed
}

// Close closes the port. It ends an Accept that waits.
func (p *Port) Close() error {
	p.ports.mu.Lock()
	if p.ports.open[p.number] == p {
		delete(p.ports.open, p.number)
	}
	p.ports.mu.Unlock()
	return p.TCPListener.Close()
}

// prepared notes what the next transfer will use.
func (c *Conn) prepared(data dataState, port *Port) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dialogue.data, c.dialogue.port = data, port
}

// unprepare closes the passive port, if there is one, and forgets what PORT said.
func (c *Conn) unprepare() {
	c.closePort()
	c.prepared(dataNone, nil)
}

func (c *Conn) passivePort() *Port {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dialogue.port
}

// closePort ends the waiting for a data connection. One that has been accepted lives on.
func (c *Conn) closePort() {
	if p := c.passivePort(); p != nil {
		_ = p.Close() // the library closes it again
	}
}

func (c *Conn) hurryPort() {
	if p := c.passivePort(); p != nil {
		p.hurry()
	}
}
