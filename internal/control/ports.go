package control

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Ports are the passive ports of a server. A port belongs to the connection whose 227 or 229 contains it. A data connection from
// another address is closed, and the transfer continues to wait.
//
// The library fetches a port (FetchNext), listens on it and passes the listener to Wrap. Neither call names the client, so the
// session claims the port when the reply with its number passes by.
type Ports struct {
	options PortOptions

	mu     sync.Mutex
	open   map[uint16]*Port
	shares map[string]int // the number of ports of each account
}

// PortOptions are the settings of Ports. Both are required.
type PortOptions struct {
	// Range returns the first and the last port; 0: the system chooses. It may change.
	Range func() (first, last uint16)
	// Timeout returns how long a port stays open without a data connection.
	Timeout func() time.Duration
}

// NewPorts returns Ports without an open port.
func NewPorts(o PortOptions) *Ports {
	return &Ports{options: o, open: make(map[uint16]*Port), shares: make(map[string]int)}
}

// span returns the range of ports: n of them from first on. n is 0 if the system chooses.
func (p *Ports) span() (first, n int) {
	from, to := p.options.Range()
	if from == 0 {
		return 0, 0
	}
	return int(from), int(to) - int(from) + 1
}

// FetchNext implements ftpserver.PasvPortGetter. It returns a random port that is not open for another session.
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

// Wrap implements ftpserver.MainDriverExtensionPassiveWrapper for a driver. It records an open port.
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

// reserve counts a port for an account. It returns false if the account has half of the range already. The claimed port takes the count over.
func (p *Ports) reserve(account string) bool {
	_, n := p.span()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > 0 && p.shares[account] >= max(1, n/2) {
		return false
	}
	p.shares[account]++
	return true
}

func (p *Ports) unreserveLocked(account string) {
	if p.shares[account]--; p.shares[account] == 0 {
		delete(p.shares, account)
	}
}

// claim gives a port to the client at that address until it times out. The port takes over the count of reserve.
func (p *Ports) claim(number uint16, client netip.Addr, account string) *Port {
	p.mu.Lock()
	defer p.mu.Unlock()
	port := p.open[number]
	if port == nil {
		p.unreserveLocked(account)
		return nil
	}
	port.client, port.account, port.wait = client, account, p.options.Timeout()
	port.timer = time.AfterFunc(port.wait, port.close)
	return port
}

// Port is an open passive port.
type Port struct {
	*net.TCPListener
	ports  *Ports
	number uint16

	// claim sets these fields once, with ports.mu held and before a transfer begins.
	client  netip.Addr    // that may connect
	account string        // that the port counts for
	wait    time.Duration // how long the port is open without a data connection
	timer   *time.Timer   // closes the port unless a transfer begins; nil: it is not claimed yet
}

// Accept returns the connection of the port's client. The port stays open until the transfer has ended, so that Conn.Contested detects
// other connections. The connection's RemoteAddr has no zone: the library cannot parse one (transfer_pasv.go:287).
func (p *Port) Accept() (net.Conn, error) {
	_ = p.SetDeadline(time.Now().Add(p.wait)) // in place of the library's
	for {
		conn, err := p.AcceptTCP()
		if err != nil {
			return nil, err
		}
		if from := conn.RemoteAddr().(*net.TCPAddr); ipOf(from) == p.client {
			if from.Zone == "" {
				return conn, nil
			}
			return zoneless{conn, &net.TCPAddr{IP: from.IP, Port: from.Port}}, nil
		}
		conn.Close() // of another client
	}
}

// zoneless is a connection from a link-local address.
type zoneless struct {
	*net.TCPConn
	from *net.TCPAddr
}

func (z zoneless) RemoteAddr() net.Addr { return z.from }

// Contested reports whether a second connection from the client's address came to the transfer's passive port. Then one of the two
// belongs to another program on that machine or behind that router, and the server cannot tell which. Only the transfer's goroutine
// may call it. It needs Linux.
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

// Close closes the port, and ends an Accept that waits. An accepted connection stays open.
func (p *Port) Close() error {
	err := p.TCPListener.Close() // first, so that no other client gets its number too early
	p.ports.mu.Lock()
	defer p.ports.mu.Unlock()
	if p.ports.open[p.number] == p {
		delete(p.ports.open, p.number)
		if p.timer != nil {
			p.timer.Stop()
			p.ports.unreserveLocked(p.account)
		}
	}
	return err
}

// The following methods do nothing if p is nil, because the client has no passive port.

// close is Close without its error: the library closes the port again.
func (p *Port) close() {
	if p != nil {
		_ = p.Close()
	}
}

// keep stops the timeout, because a transfer begins: APPE copies its file first, which may take long, and the data connection may
// already have come.
func (p *Port) keep() {
	if p != nil {
		p.timer.Stop()
	}
}

// resume restarts the timeout after a transfer was refused. The client's connection may wait in the port: a close would reset it, and
// some clients then do not read the refusal.
func (p *Port) resume() {
	if p != nil {
		p.timer.Reset(p.wait)
	}
}

// reservePort closes the port of the client, and counts another one for its account.
func (c *Conn) reservePort() Reply {
	c.unprepare()
	if !c.server.opts.Ports.reserve(c.account) {
		return Reply{Code: 425, Text: "your account has half of all ports for data connections already"}
	}
	return Reply{}
}

// unprepare closes the passive port, if there is one, and forgets the PORT.
func (c *Conn) unprepare() {
	c.port.close()
	c.port, c.prepared = nil, false
}

var afterEpsvAll = Reply{Code: 501, Text: "only EPSV is allowed after EPSV ALL"}

// preparePasv refuses PASV over IPv6: the library would reply 421 and leak a listener (transfer_pasv.go:252). It closes the
// session's previous port first, which may be the only one in the range.
func preparePasv(c *Conn, cmd *Command) Reply {
	switch {
	case c.epsvAll:
		return afterEpsvAll
	case !c.local.Is4():
		return Reply{Code: 425, Text: "PASV is for IPv4 only: use EPSV"}
	}
	cmd.forLibrary = cmd.Verb
	return c.reservePort()
}

// prepareEpsv checks EPSV (RFC 2428 section 3).
func prepareEpsv(c *Conn, cmd *Command) Reply {
	family := familyOf(c.local)
	switch strings.ToUpper(cmd.trimmed()) {
	case "ALL":
		c.epsvAll = true
		return Reply{Code: 200, Text: "only EPSV is allowed from now on"}
	case "", family:
		cmd.forLibrary = "EPSV"
		return c.reservePort()
	}
	return Reply{Code: 522, Text: "use the family of the control connection (" + family + ")"}
}

// afterPassive claims the port that the reply contains: "227 ... (h1,h2,h3,h4,p1,p2)." or "229 ... (|||port|)". If no port is free, the
// library replies 421, which would mean the end of the connection.
func afterPassive(c *Conn, _ *Command, r Reply) Reply {
	numbers := strings.FieldsFunc(r.Text, func(r rune) bool { return r < '0' || r > '9' })
	var port int
	switch n := len(numbers); {
	case r.Code == 229 && n > 0:
		port, _ = strconv.Atoi(numbers[n-1])
	case r.Code == 227 && n > 1:
		high, _ := strconv.Atoi(numbers[n-2])
		low, _ := strconv.Atoi(numbers[n-1])
		port = high<<8 | low
	}
	c.port = c.server.opts.Ports.claim(uint16(port), c.client, c.account)
	c.prepared = c.port != nil
	if r.Code == 421 {
		return Reply{Code: 425, Text: "no port is free for a data connection"}
	}
	return r
}
