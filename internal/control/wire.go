package control

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// wire is the connection below TLS: writes that only a client who does not read can make
// slow, reads that can be woken, and what the socket knows of the other side.
type wire struct {
	net.Conn
	raw     syscall.RawConn // nil if there is no socket
	timeout time.Duration
	closing atomic.Bool   // lastTimeout is for writes, and Close is gentle
	got     atomic.Uint64 // bytes that were read

	mu      sync.Mutex // one write at a time: what is written are whole replies, or TLS records
	buf     []byte     // what try writes
	written int        // how much of it try wrote
	try     func(fd uintptr) bool
}

func newWire(nc net.Conn, timeout time.Duration) *wire {
	w := &wire{Conn: nc, timeout: timeout}
	if s, ok := nc.(syscall.Conn); ok {
		w.raw, _ = s.SyscallConn()
	}
	w.try = func(fd uintptr) bool {
		n, err := syscall.Write(int(fd), w.buf)
		if err == nil {
			w.written = n
		}
		return true
	}
	return w
}

// Read counts what it reads.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.got.Add(uint64(max(n, 0)))
	return n, err
}

// Write writes without a deadline, which would cost two timer changes for each reply,
// what the socket's buffer takes at once, and the rest, or what failed, with one.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := 0
	if w.raw != nil {
		w.buf, w.written = p, 0
		err := w.raw.Write(w.try)
		w.buf = nil
		if done = w.written; err != nil || done == len(p) {
			return done, err
		}
	}
	timeout := w.timeout
	if w.closing.Load() {
		timeout = lastTimeout
	}
	if err := w.Conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return done, err
	}
	n, err := w.Conn.Write(p[done:])
	if err != nil {
		return done + n, err
	}
	return done + n, w.Conn.SetWriteDeadline(time.Time{})
}

// SetDeadline keeps tls.Conn from setting write deadlines of its own.
func (w *wire) SetDeadline(t time.Time) error { return w.SetReadDeadline(t) }

// SetWriteDeadline does nothing: Write has its own.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// wakeReader makes the present Read, or the next one, fail at once with a timeout.
func (w *wire) wakeReader() { _ = w.Conn.SetReadDeadline(time.Unix(1, 0)) }

// lastTimeout is for what is written at the very end: a goodbye, TLS's close_notify.
const lastTimeout = time.Second

// finish makes a following Close gentle: what is written from now on has lastTimeout, and
// Close sends the end and throws away what came unread. A close with unread
// data would reset the connection, and a reset may cost the client the last reply (RFC
// 2525 section 2.17).
func (w *wire) finish() { w.closing.Store(true) }

// Close closes the socket. It does not wait for a write that is under way, but ends it.
func (w *wire) Close() error {
	if w.closing.Load() && w.raw != nil {
		w.shutWrite()
		drain(w.raw)
	}
	return w.Conn.Close()
}

// shutWrite sends the end, so that the client need not wait for the library's close.
func (w *wire) shutWrite() {
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// waitHangUp waits without reading until the client hangs up, or the read deadline passes.
func (w *wire) waitHangUp(what hang) error {
	if w.raw == nil {
		return errors.ErrUnsupported
	}
	return w.raw.Read(func(fd uintptr) bool { return pollHangUp(fd, what) })
}

// hungUp asks the socket whether the client has hung up.
func (w *wire) hungUp(what hang) bool {
	if w.raw == nil {
		return false
	}
	gone := true // a closed socket
	_ = w.raw.Control(func(fd uintptr) { gone = pollHangUp(fd, what) })
	return gone
}

// unacked asks the socket whether anything written is unacknowledged.
func (w *wire) unacked() bool {
	if w.raw == nil {
		return false
	}
	var un bool
	_ = w.raw.Control(func(fd uintptr) { un = outQueue(fd) > 0 })
	return un
}

// received asks the socket how many bytes have come in all, read or not. A FIN counts as one.
func (w *wire) received() (n uint64, ok bool) {
	if w.raw == nil {
		return 0, false
	}
	_ = w.raw.Control(func(fd uintptr) { n, ok = bytesReceived(fd) })
	return n, ok
}

// hang is what to look for.
type hang int

const (
	hangAny   hang = iota // FIN or RST
	hangReset             // RST, or given up by TCP
)
