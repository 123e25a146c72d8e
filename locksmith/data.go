package locksmith

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// dataConn is the data connection of one transfer, in passive or active mode, with TLS or without. A read or write that
// moves nothing within the timeout fails.
type dataConn struct {
	open    func() (net.Conn, error) // the connection, when the first byte is wanted
	tls     *tls.Config
	timeout time.Duration

	mu      sync.Mutex
	raw     net.Conn // nil: not open yet
	conn    net.Conn // raw, or TLS on it
	aborted error    // not nil: it ends as something that was broken off
	failed  error    // to open
	closing func()   // what ends open early; nil: nothing
}

var _ net.Conn = (*dataConn)(nil)

// ready opens the connection if need be, and begins the deadline.
func (d *dataConn) ready() (net.Conn, error) {
	d.mu.Lock()
	opened, err := d.conn != nil, errors.Join(d.aborted, d.failed)
	d.mu.Unlock()
	if err == nil && !opened {
		var raw net.Conn
		raw, err = d.open() // not under the mutex: abort ends it
		d.set(raw, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.aborted != nil {
		return nil, d.aborted
	}
	if err != nil {
		return nil, err
	}
	_ = d.conn.SetDeadline(time.Now().Add(d.timeout)) // as in arm
	return d.conn, nil
}

func (d *dataConn) set(raw net.Conn, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.failed = err
		return
	}
	d.raw, d.conn = raw, raw
	if d.tls != nil {
		d.conn = tls.Client(raw, d.tls)
	}
}

// abort ends the transfer for a reason: what is under way fails, and Close resets the connection.
func (d *dataConn) abort(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.aborted == nil {
		d.aborted = why
	}
	if d.raw != nil {
		_ = d.raw.SetDeadline(time.Unix(1, 0))
	}
	if d.closing != nil {
		d.closing()
	}
}

// Read implements net.Conn.
func (d *dataConn) Read(p []byte) (int, error) {
	c, err := d.ready()
	if err != nil {
		return 0, err
	}
	return c.Read(p)
}

// Write implements net.Conn.
func (d *dataConn) Write(p []byte) (int, error) {
	c, err := d.ready()
	if err != nil {
		return 0, err
	}
	return c.Write(p)
}

// Handshake opens the connection of a transfer without bytes; the library asks for that.
func (d *dataConn) Handshake() error {
	c, err := d.ready()
	if err != nil {
		return err
	}
	if secure, ok := c.(*tls.Conn); ok {
		return secure.Handshake()
	}
	return nil
}

// Close implements net.Conn. One that was aborted is reset, without a close_notify: the end of a data connection is the only
// sign of the end of a file (RFC 959 section 3.4.1), and what was broken off must not look like one.
func (d *dataConn) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing != nil {
		d.closing()
	}
	switch {
	case d.raw == nil:
		return nil
	case d.aborted == nil:
		_ = d.conn.SetDeadline(time.Now().Add(min(d.timeout, patience)))
		d.sayEnd()
		return d.conn.Close()
	}
	if secure, ok := d.conn.(*tls.Conn); ok && !secure.ConnectionState().HandshakeComplete {
		_ = d.raw.SetDeadline(time.Now().Add(min(d.timeout, patience)))
		_ = secure.Handshake() // see secureData
	}
	if c, ok := d.raw.(interface{ SetLinger(int) error }); ok {
		_ = c.SetLinger(0)
	}
	return d.raw.Close()
}

// sayEnd ends what we send under TLS, and reads what the server has to say until it closes as well. It sends session tickets, which
// nobody reads during an upload, and a connection closed with something unread is reset: vsftpd takes that for a failure.
func (d *dataConn) sayEnd() {
	secure, ok := d.conn.(*tls.Conn)
	if !ok || secure.CloseWrite() != nil {
		return
	}
	if half, ok := d.raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, secure)
}

// LocalAddr implements net.Conn.
func (d *dataConn) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements net.Conn.
func (d *dataConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// SetDeadline does nothing, nor do the other two: each read and write has a deadline already.
func (d *dataConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (d *dataConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (d *dataConn) SetWriteDeadline(time.Time) error { return nil }

// passive connects to where the server waits (PASV, EPSV).
func (e *endpoint) passive(network, address string) (*dataConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), e.Timeout)
	defer cancel()
	raw, err := e.dial(ctx, network, address)
	if err != nil {
		return nil, &gone{"opening the data connection", err}
	}
	d := &dataConn{tls: e.tls, timeout: e.Timeout}
	d.set(raw, nil)
	return d, nil
}

// active waits for the server to connect (PORT, EPRT). The library has no active mode: what it asks for with EPSV is
// asked of the server as EPRT, and where it wants to connect to the server the connection is one to be accepted.
type active struct {
	w        *wire
	listener *net.TCPListener
}

var _ interceptor = (*active)(nil).answer

// answer is the interceptor of a wire.
func (a *active) answer(command string) (string, bool) {
	switch command {
	case "EPSV":
		port, err := a.listen()
		if err != nil {
			return "425 " + plain(err), true
		}
		return fmt.Sprintf("229 (|||%d|)", port), true
	case "PASV":
		return "425 no active data connection", true
	}
	return "", false
}

// listen opens a port on the address of the control connection and tells the server of it.
func (a *active) listen() (int, error) {
	a.close()
	local, ok := a.w.LocalAddr().(*net.TCPAddr)
	if !ok {
		return 0, errors.New("active mode needs TCP")
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: local.IP, Zone: local.Zone})
	if err != nil {
		return 0, err
	}
	a.listener = l
	port := l.Addr().(*net.TCPAddr).Port
	if err := a.announce(local.IP, port); err != nil {
		a.close()
		return 0, err
	}
	return port, nil
}

// announce says EPRT (RFC 2428), and PORT to a server that does not know it.
func (a *active) announce(ip net.IP, port int) error {
	family := 1
	v4 := ip.To4()
	if v4 == nil {
		family = 2
	}
	r, err := a.w.ask(context.Background(), fmt.Sprintf("EPRT |%d|%s|%d|", family, ip, port))
	if err == nil && !r.good() && v4 != nil {
		host := strings.ReplaceAll(v4.String(), ".", ",")
		r, err = a.w.ask(context.Background(), fmt.Sprintf("PORT %s,%d,%d", host, port>>8, port&0xff))
	}
	if err == nil && !r.good() {
		err = errors.New(r.String())
	}
	return err
}

func (a *active) close() {
	if a.listener != nil {
		_ = a.listener.Close()
		a.listener = nil
	}
}

// accept takes the listener over. Only the server's own host is let in: others are hung up on.
func (a *active) accept(e *endpoint) (*dataConn, error) {
	l := a.listener
	if l == nil {
		return nil, errors.New("no active data connection was announced")
	}
	a.listener = nil
	from := a.w.RemoteAddr().(*net.TCPAddr).IP
	d := &dataConn{tls: e.tls, timeout: e.Timeout, closing: func() { _ = l.Close() }}
	d.open = func() (net.Conn, error) {
		defer l.Close()
		_ = l.SetDeadline(time.Now().Add(e.Timeout))
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return nil, &gone{"waiting for the data connection", err}
			}
			if c.RemoteAddr().(*net.TCPAddr).IP.Equal(from) {
				return c, nil
			}
			_ = c.Close()
		}
	}
	return d, nil
}

// portOf is the port of an address that the library has put together.
func portOf(address string) string {
	_, port, err := net.SplitHostPort(address)
	if n, nerr := strconv.Atoi(port); err != nil || nerr != nil || n < 1 || n > 65535 {
		return "0"
	}
	return port
}
