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
	raw     syscall.RawConn // nil: the connection has no socket
	since   time.Time       // when it began
	timeout time.Duration   // of a write
	ending  atomic.Bool     // writes have lastTimeout only
	got     atomic.Uint64   // how many bytes were read
	sent    atomic.Uint64   // how many bytes were written
	wrote   atomic.Int64    // when the last write began, in nanoseconds since then

	mu       sync.Mutex    // one write at a time: each is a whole reply or TLS record
	deadline time.Duration // of writes, after since
	failed   error         // of a write; later writes return it
}

func newWire(nc net.Conn, timeout time.Duration) *wire {
	w := &wire{Conn: nc, timeout: timeout, since: time.Now()}
	if s, ok := nc.(syscall.Conn); ok {
		w.raw, _ = s.SyscallConn()
	}
	return w
}

// Read counts the bytes that it reads.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.got.Add(uint64(max(n, 0)))
	return n, err
}

// lastReply returns when the last write began, or when the connection began.
func (w *wire) lastReply() time.Time { return w.since.Add(time.Duration(w.wrote.Load())) }

// Write has a deadline, because a client that does not read makes it wait. The deadline may be a second early, so that a busy connection
// sets one per second at most.
func (w *wire) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return 0, w.failed
	}
	now := time.Since(w.since)
	w.wrote.Store(int64(now))
	timeout, early := w.timeout, min(w.timeout/2, time.Second)
	if w.ending.Load() {
		timeout, early = min(timeout, lastTimeout), 0
	}
	if by := now + timeout; by-w.deadline > early || early == 0 {
		_ = w.Conn.SetWriteDeadline(w.since.Add(by)) // a failure makes the write fail, too
		w.deadline = by
	}
	n, w.failed = w.Conn.Write(p)
	w.sent.Add(uint64(max(n, 0)))
	return n, w.failed
}

// lastTimeout is the deadline for the last writes: the final 421, the close_notify of TLS.
const lastTimeout = time.Second

// end limits writes, also one under way, to lastTimeout.
func (w *wire) end() {
	w.ending.Store(true)
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
