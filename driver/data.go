package driver

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
)

// dataConnection is what PASV, EPSV, PORT or EPRT prepared for the next transfer. The session
// owns it; listener is also closed from outside to end a wait for the client.
type dataConnection struct {
	state    dataState
	listener *dataListener
}

type dataState uint8

const (
	dataNone     dataState = iota
	dataPrepared           // PASV or PORT was answered
	dataUsed               // a transfer has it
)

func (d *dataConnection) ready() bool { return d.state == dataPrepared }
func (d *dataConnection) use()        { d.state = dataUsed }

// stopWaiting ends a wait for the client's data connection.
func (d dataConnection) stopWaiting() {
	if d.listener != nil {
		d.listener.Close()
	}
}

// close cuts the data connection.
func (d dataConnection) close() {
	if d.listener != nil {
		d.listener.closeAll()
	}
}

// dataListener is a passive port. It keeps the connection that it accepted, so that the session can
// cut it: ftpserverlib v0.32.3 holds a mutex for as long as it waits in Accept, and its own Close waits for that.
//
// An active data connection is one, too, which "accepts" by connecting to the client (see activeTo): ftpserverlib has no
// hook for those that it makes itself.
type dataListener struct {
	net.Listener
	owner *dataPorts

	connect func() (net.Conn, error) // of an active one
	cancel  func()                   // ends connect

	mu     sync.Mutex
	secure bool       // TLS will be put over what is accepted
	client netip.Addr // who may connect
	conn   net.Conn
	closed bool
}

// tcpBelowTLS remembers that it was read to its end. crypto/tls takes the end of the connection for
// that of the stream, as if the client had sent close_notify, but after a close_notify it does not read on.
type tcpBelowTLS struct {
	*net.TCPConn
	ended bool // for the one goroutine that reads
}

func (c *tcpBelowTLS) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if errors.Is(err, io.EOF) {
		c.ended = true
	}
	return n, err
}

// closeNotify says how a data connection under TLS ended: meant, with a close_notify, or as if
// anybody on the way had cut it (RFC 8446 section 6.1). Of one in the clear it cannot tell.
func closeNotify(conn any) (told, meant bool) {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return false, false
	}
	below, ok := secure.NetConn().(*tcpBelowTLS)
	return ok, ok && !below.ended
}

// Accept waits for the client. Connections from other addresses are closed, and the transfer
// is none the worse for them.
func (l *dataListener) Accept() (net.Conn, error) {
	if l.connect != nil {
		c, err := l.connect()
		if err != nil {
			return nil, err
		}
		return l.admit(c)
	}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c, err := l.admit(c); c != nil || err != nil {
			return c, err
		}
	}
}

// admit returns neither a connection nor an error for a stranger.
func (l *dataListener) admit(c net.Conn) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Close()
		return nil, net.ErrClosed
	}
	if from, err := netip.ParseAddr(address(c.RemoteAddr())); err != nil || from.Unmap() != l.client {
		c.Close()
		return nil, nil
	}
	l.conn = c
	if tcp, ok := c.(*net.TCPConn); ok && l.secure {
		return &tcpBelowTLS{TCPConn: tcp}, nil
	}
	return c, nil
}

// Close stops listening. What was accepted goes on.
func (l *dataListener) Close() error {
	if l.cancel != nil {
		l.cancel()
	}
	l.owner.remove(l)
	return l.Listener.Close()
}

// closeAll stops listening and cuts what was accepted.
func (l *dataListener) closeAll() {
	l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.conn != nil {
		l.conn.Close()
	}
}

// dataPorts finds the listener that a session's PASV made: ftpserverlib tells the driver
// of the listener without saying whose it is, and the client of its port.
type dataPorts struct {
	mu     sync.Mutex
	byPort map[int]*dataListener
}

func (p *dataPorts) add(l net.Listener) *dataListener {
	d := &dataListener{Listener: l, owner: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byPort[port(l)] = d
	return d
}

func (p *dataPorts) remove(l *dataListener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byPort[port(l.Listener)] == l {
		delete(p.byPort, port(l.Listener))
	}
}

func (p *dataPorts) find(n int) *dataListener {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byPort[n]
}

func port(l net.Listener) int {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// prepared notes that a data connection was settled.
func (s *session) prepared(l *dataListener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = dataConnection{state: dataPrepared, listener: l}
}

// unprepare forgets a data connection that no transfer has used, and stops listening for it.
func (s *session) unprepare() {
	s.mu.Lock()
	data := s.data
	if data.ready() {
		s.data = dataConnection{}
	}
	s.mu.Unlock()
	if data.ready() {
		data.stopWaiting()
	}
}

// stopListening closes the port of a transfer that is over: the library keeps it after a refusal.
func (s *session) stopListening() {
	s.mu.Lock()
	data := s.data
	s.mu.Unlock()
	data.stopWaiting()
}

// claim takes the listener whose port the library tells the client.
func (s *session) claim(code int, line []byte) {
	l := s.server.ports.find(toldPort(code, string(line)))
	if l != nil {
		client, _ := netip.ParseAddr(address(s.conn.RemoteAddr()))
		l.mu.Lock()
		l.secure, l.client = s.private, client.Unmap()
		l.mu.Unlock()
	}
	s.prepared(l)
}

// claimActive takes the listener that the library made when it was asked for a passive port, and has it connect to the client
// instead. Nobody else is told of the port, and who finds it is never accepted.
func (s *session) claimActive(line []byte, to netip.AddrPort) {
	l := s.server.ports.find(toldPort(229, string(line)))
	if l != nil {
		ctx, cancel := context.WithCancel(s.server.context)
		from, _ := netip.ParseAddr(address(s.conn.LocalAddr()))
		dialer := net.Dialer{
			Timeout:   s.server.delays.dataConnection,
			LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from.Unmap(), 0)), // what the client knows the server by
		}
		l.connect = func() (net.Conn, error) { return dialer.DialContext(ctx, "tcp", to.String()) }
		l.cancel = cancel
		l.mu.Lock()
		l.secure, l.client = s.private, to.Addr()
		l.mu.Unlock()
	}
	s.prepared(l)
}

// toldPort reads the port from a reply to PASV (RFC 959) or EPSV (RFC 2428); 0 if there is none.
func toldPort(code int, line string) int {
	_, inside, _ := strings.Cut(line, "(")
	inside, _, _ = strings.Cut(inside, ")")
	if code == 229 {
		n, _ := strconv.Atoi(strings.Trim(inside, "|"))
		return n
	}
	parts := strings.Split(inside, ",")
	if len(parts) != 6 {
		return 0
	}
	high, _ := strconv.Atoi(parts[4])
	low, _ := strconv.Atoi(parts[5])
	return high<<8 | low
}
