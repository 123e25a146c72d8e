package control

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// wire is the connection below TLS.
type wire struct {
	net.Conn
	raw          syscall.RawConn // nil: the connection has no socket
	started      time.Time       // when it began
	timeout      atomic.Int64    // of a write, a time.Duration
	bytesRead    atomic.Uint64   // how many bytes were read
	bytesWritten atomic.Uint64   // how many bytes were written
	lastWrite    atomic.Int64    // when the last write began, in nanoseconds after started

	mu       sync.Mutex    // one write at a time: each is a whole reply or TLS record
	deadline time.Duration // of writes, after started
	failed   error         // of a write; later writes return it
}

func newWire(nc net.Conn, timeout time.Duration) *wire {
	w := &wire{Conn: nc, started: time.Now()}
	w.timeout.Store(int64(timeout))
	if s, ok := nc.(syscall.Conn); ok {
		w.raw, _ = s.SyscallConn()
	}
	return w
}

// Read counts the bytes that it reads.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.bytesRead.Add(uint64(max(n, 0)))
	return n, err
}

// lastReply returns when the last write began, or when the connection began.
func (w *wire) lastReply() time.Time { return w.started.Add(time.Duration(w.lastWrite.Load())) }

// Write has a deadline, because a client that does not read makes it wait. The deadline may be a second early, so that a busy
// connection sets one per second at most.
func (w *wire) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return 0, w.failed
	}
	now, timeout := time.Since(w.started), time.Duration(w.timeout.Load())
	w.lastWrite.Store(int64(now))
	if late := now + timeout - w.deadline; late < 0 || late > min(timeout/2, time.Second) {
		w.deadline = now + timeout
		_ = w.Conn.SetWriteDeadline(w.started.Add(w.deadline)) // a failure makes the write fail, too
	}
	n, w.failed = w.Conn.Write(p)
	w.bytesWritten.Add(uint64(max(n, 0)))
	return n, w.failed
}

// lastTimeout is the deadline for the last writes: the final 421, the close_notify of TLS.
const lastTimeout = time.Second

// limitWrites limits writes, also one under way, to lastTimeout.
func (w *wire) limitWrites() {
	w.timeout.Store(min(w.timeout.Load(), int64(lastTimeout)))
	_ = w.Conn.SetWriteDeadline(time.Now().Add(lastTimeout))
}

// Close sends a FIN and discards unread input before it closes the socket. A close with unread input would reset the connection, and
// the client might lose the last reply (RFC 2525 section 2.17).
func (w *wire) Close() error {
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok && w.raw != nil {
		_ = half.CloseWrite()
		drain(w.raw)
	}
	return w.Conn.Close()
}
