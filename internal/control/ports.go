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

	mu     sync.Mutex
	open   map[uint16]*Port
	shares map[string]int // how many ports each account has, or has asked for
}

// PortOptions say which ports there are and how long each waits. Both are required.
type PortOptions struct {
	// Range returns the first and the last port, at the moment; 0: the system chooses.
	Range func() (first, last uint16)
	// Timeout returns how long a port is open without a data connection.
	Timeout func() time.Duration
}

// NewPorts returns ports of which none is open.
func NewPorts(o PortOptions) *Ports {
	return &Ports{options: o, open: make(map[uint16]*Port), shares: make(map[string]int)}
}

// span is the range of ports: n of them from first on. n is 0 if the system chooses.
func (p *Ports) span() (first, n int) {
	from, to := p.options.Range()
	if from == 0 {
		return 0, 0
	}
	return int(from), int(to) - int(from) + 1
}

// FetchNext implements ftpserver.PasvPortGetter: a port at random that is not open for another session, if there is one.
func (p *Ports) FetchNext() (exposed, listened int, ok bool) {
	first, n := p.span()
	if n == 0 {
		return 0, 0, true // the system chooses
	}
	start := rand.IntN(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range n {
		port := first + (start+i)%n
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

// take counts a port for an account that wants one. It reports false if the account has half of the range already. The share
// belongs to the port once that is claimed.
func (p *Ports) take(account string) bool {
	_, n := p.span()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > 0 && p.shares[account] >= max(1, n/2) {
		return false
	}
	p.shares[account]++
	return true
}

func (p *Ports) giveBackLocked(account string) {
	if p.shares[account]--; p.shares[account] == 0 {
		delete(p.shares, account)
	}
}

// claim gives a port to the client at that address, for a while. The share that its account took goes with it.
func (p *Ports) claim(number uint16, client netip.Addr, account string) *Port {
	p.mu.Lock()
	defer p.mu.Unlock()
	port := p.open[number]
	if port == nil {
		p.giveBackLocked(account)
		return nil
	}
	port.client, port.account, port.wait = client, account, p.options.Timeout()
	port.timer = time.AfterFunc(port.wait, func() { _ = port.Close() })
	return port
}

// Port is an open passive port.
type Port struct {
	*net.TCPListener
	ports  *Ports
	number uint16

	// Set once by claim, with ports.mu held and before a transfer begins.
	client  netip.Addr    // that may connect
	account string        // whose share it is
	wait    time.Duration // how long it is open without a data connection
	timer   *time.Timer   // closes it unless a transfer begins; nil: not claimed yet
}

// Accept returns the connection of the client that the port belongs to. The port stays open until the transfer is over, so
// that Conn.Contested sees other connections.
func (p *Port) Accept() (net.Conn, error) {
	_ = p.SetDeadline(time.Now().Add(p.wait)) // in place of the library's
	for {
		conn, err := p.TCPListener.Accept()
		if err != nil {
			return nil, err
		}
		if ipOf(conn.RemoteAddr()) == p.client {
			return conn, nil
		}
		conn.Close() // a stranger's
	}
}

// Contested reports whether a second connection from the client's address has come to the passive port of the transfer under
// way: one of the two is somebody else's, on the same machine or behind the same router, and the server cannot tell which. Connections
// from elsewhere are closed. It is for the goroutine that transfers, and needs Linux.
func (c *Conn) Contested() bool {
	if c.port == nil {
		return false
	}
	for {
		from, ok := dismissNext(c.port.TCPListener)
		if !ok || from == c.port.client {
			return ok
		}
	}
}

// Close closes the port. It ends an Accept that waits.
func (p *Port) Close() error {
	p.ports.mu.Lock()
	if p.ports.open[p.number] == p {
		delete(p.ports.open, p.number)
		if p.timer != nil {
			p.timer.Stop()
			p.ports.giveBackLocked(p.account)
		}
	}
	p.ports.mu.Unlock()
	return p.TCPListener.Close()
}

// close ends the waiting for a data connection, if there is a port. A connection that was accepted lives on.
func (p *Port) close() {
	if p != nil {
		_ = p.Close() // the library closes it again
	}
}

// keep leaves the port, if there is one, open until the transfer that begins accepts its data connection: that has come by then, perhaps, and
// the copy that APPE begins with takes as long as it takes.
func (p *Port) keep() {
	if p != nil {
		p.timer.Stop()
	}
}

// resume leaves the port, if there is one, open behind a transfer that was refused, for the next one, or until it has waited again. The
// client's connection may wait in it: a close would reset that, and some clients then do not read the refusal.
func (p *Port) resume() {
	if p != nil {
		p.timer.Reset(p.wait)
	}
}

// askForPort closes the port that the client has, and counts another one for its account.
func (c *Conn) askForPort() Reply {
	c.unprepare()
	if !c.server.opts.Ports.take(c.user) {
		return Reply{Code: 425, Text: "your account has half of all ports for data connections already"}
	}
	return Reply{}
}

// unprepare closes the passive port, if there is one, and forgets what PORT said.
func (c *Conn) unprepare() {
	c.port.close()
	c.port, c.prepared = nil, false
}
