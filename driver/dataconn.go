package driver

import (
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/files"
)

// dataConn is a data connection, below TLS if that is put over it. The runtime's poller learns of its socket only when
// something has to be waited for: for the transfer of a small file that is more work than the transfer, and often needless.
//
// One goroutine transfers; Close may come from any.
type dataConn struct {
	local, remote net.Addr
	hurry         *haste // for the goroutine that transfers: if set, what would have to wait longer fails with files.ErrWouldWait
	ended         bool   // likewise: it was read to its end

	mu         sync.Mutex
	fd         int      // -1: closed, or polled has it
	polled     pollable // once something had to be waited for
	readUntil  time.Time
	writeUntil time.Time
	closed     bool
}

// pollable is a connection that the runtime polls: an *os.File or a *net.TCPConn.
type pollable interface {
	io.ReadWriteCloser
	syscall.Conn
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

var (
	_ net.Conn     = (*dataConn)(nil)
	_ syscall.Conn = (*dataConn)(nil)
)

// try runs f on the socket while that is not polled, again after each wait for what it wants. It returns what to use instead,
// if f did not do it or is not to.
func (c *dataConn) try(wants int16, f func(fd int) bool) (pollable, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, net.ErrClosed
	case c.polled != nil:
		return c.polled, nil
	}
	for !f(c.fd) {
		if c.hurry == nil {
			return c.pollLocked()
		}
		if !c.hurry.wait(c.fd, wants) {
			return nil, files.ErrWouldWait
		}
	}
	return nil, nil
}

// haste is how those wait who will not wait for long: in the kernel, with their thread, which costs less than to be put aside and
// woken by the runtime, but only while few do so.
type haste struct {
	until time.Time
	waits chan struct{} // has one for each thread that waits, and no room for more
}

// wait reports whether the socket may have what is wanted.
func (h *haste) wait(fd int, wants int16) bool {
	select {
	case h.waits <- struct{}{}:
		defer func() { <-h.waits }()
	default:
		return false
	}
	left := time.Until(h.until)
	if left <= 0 {
		return false
	}
	timeout := unix.NsecToTimespec(left.Nanoseconds())
	n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: wants}}, &timeout, nil)
	return n > 0 || err == unix.EINTR
}

func (c *dataConn) pollLocked() (pollable, error) {
	c.polled = os.NewFile(uintptr(c.fd), "data connection")
	c.fd = -1
	return c.polled, errors.Join(c.polled.SetReadDeadline(c.readUntil), c.polled.SetWriteDeadline(c.writeUntil))
}

// cork has what does not fill a segment wait for more, or for Close: the last bytes and the end come together then, and wake the client
// once. See tcp(7).
func (c *dataConn) cork() {
	_ = dataSocket{c}.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, 1) // without it they come one after the other
	})
}

// handOver sends the end, and waits until the other side ends the connection, too, or says anything, for that time at most. A hurry that is over
// is files.ErrWouldWait; how the connection ends is of no interest.
func (c *dataConn) handOver(within time.Duration) error {
	_ = dataSocket{c}.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
	waited := false
	polled, err := c.try(unix.POLLIN, func(int) bool { // it would be early for a first look
		done := waited
		waited = true
		return done
	})
	if err == files.ErrWouldWait {
		return err
	}
	if polled != nil && polled.SetReadDeadline(time.Now().Add(within)) == nil {
		_, _ = polled.Read(make([]byte, 1))
	}
	return nil
}

// Read implements net.Conn.
func (c *dataConn) Read(p []byte) (n int, err error) {
	polled, terr := c.try(unix.POLLIN, func(fd int) bool {
		n, err = uninterrupted(unix.Read, fd, p)
		return err != unix.EAGAIN
	})
	switch {
	case terr != nil:
		return 0, c.failed("read", terr)
	case polled != nil:
		n, err = polled.Read(p)
	case err == nil && n == 0 && len(p) > 0:
		err = io.EOF
	}
	if err == io.EOF {
		c.ended = true
		return n, err
	}
	return max(n, 0), c.failed("read", err)
}

// Write implements net.Conn.
func (c *dataConn) Write(p []byte) (int, error) {
	written := 0
	var err error
	polled, terr := c.try(unix.POLLOUT, func(fd int) bool {
		for err = nil; written < len(p) && err == nil; {
			var n int
			n, err = uninterrupted(unix.Write, fd, p[written:])
			written += max(n, 0)
		}
		return err != unix.EAGAIN
	})
	if terr != nil {
		return written, c.failed("write", terr)
	}
	if polled != nil {
		var n int
		n, err = polled.Write(p[written:])
		written += n
	}
	return written, c.failed("write", err)
}

func uninterrupted(call func(int, []byte) (int, error), fd int, p []byte) (n int, err error) {
	for {
		if n, err = call(fd, p); err != unix.EINTR {
			return n, err
		}
	}
}

// failed makes the error of an operation look like one of package net, whatever did it.
func (c *dataConn) failed(op string, err error) error {
	var file *fs.PathError
	if errors.As(err, &file) {
		err = file.Err
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	switch {
	case err == nil || err == files.ErrWouldWait:
		return err
	case closed:
		err = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: "tcp", Addr: c.remote, Err: err}
}

// SyscallConn implements syscall.Conn.
func (c *dataConn) SyscallConn() (syscall.RawConn, error) { return dataSocket{c}, nil }

// dataSocket is the socket of a dataConn.
type dataSocket struct{ conn *dataConn }

// Control implements syscall.RawConn.
func (s dataSocket) Control(f func(fd uintptr)) error {
	polled, err := s.conn.try(0, func(fd int) bool { f(uintptr(fd)); return true })
	if polled == nil || err != nil {
		return err
	}
	raw, err := polled.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(f)
}

// Read implements syscall.RawConn.
func (s dataSocket) Read(f func(fd uintptr) bool) error {
	return s.wait("read", unix.POLLIN, f, syscall.RawConn.Read)
}

// Write implements syscall.RawConn.
func (s dataSocket) Write(f func(fd uintptr) bool) error {
	return s.wait("write", unix.POLLOUT, f, syscall.RawConn.Write)
}

func (s dataSocket) wait(op string, wants int16, f func(fd uintptr) bool, wait func(syscall.RawConn, func(uintptr) bool) error) error {
	polled, err := s.conn.try(wants, func(fd int) bool { return f(uintptr(fd)) })
	if polled == nil || err != nil {
		return s.conn.failed(op, err)
	}
	raw, err := polled.SyscallConn()
	if err == nil {
		err = wait(raw, f)
	}
	return s.conn.failed(op, err)
}

// Close implements net.Conn. It ends a Read or Write under way.
func (c *dataConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &net.OpError{Op: "close", Net: "tcp", Addr: c.remote, Err: net.ErrClosed}
	}
	c.closed = true
	if c.polled != nil {
		return c.polled.Close()
	}
	return unix.Close(c.fd)
}

// SetDeadline implements net.Conn.
func (c *dataConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn. What needs not wait has no deadline.
func (c *dataConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readUntil = t
	if c.polled == nil {
		return nil
	}
	return c.polled.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn, likewise.
func (c *dataConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeUntil = t
	if c.polled == nil {
		return nil
	}
	return c.polled.SetWriteDeadline(t)
}

// LocalAddr implements net.Conn.
func (c *dataConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *dataConn) RemoteAddr() net.Addr { return c.remote }

// closeNotify says how a data connection under TLS ended: meant, with a close_notify, or as if
// anybody on the way had cut it (RFC 8446 section 6.1). crypto/tls takes the end of the connection for
// that of the stream, too, but after a close_notify it does not read on. Of one in the clear it cannot tell.
func closeNotify(conn net.Conn) (told, meant bool) {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return false, false
	}
	below, ok := secure.NetConn().(*dataConn)
	return ok, ok && !below.ended
}
