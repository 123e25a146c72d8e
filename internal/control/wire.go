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
	raw     syscall.RawConn // nil if there is no socket
	since   time.Time       // when it began
	timeout time.Duration   // of a write
	ending  atomic.Bool     // lastTimeout is for writes
	got     atomic.Uint64   // how many bytes were read
	sent    atomic.Uint64   // how many bytes were written
	wrote   atomic.Int64    // when the last write began, in nanoseconds behind since

	mu       sync.Mutex    // one write at a time: what is written are whole replies, or TLS records
	deadline time.Duration // of writes, behind since
	failed   error         // what a write returned; no other one is tried
}

func newWire(nc net.Conn, timeout time.Duration) *wire {
	w := &wire{Conn: nc, timeout: timeout, since: time.Now()}
	if s, ok := nc.(syscall.Conn); ok {
		w.raw, _ = s.SyscallConn()
	}
	return w
}

// Read counts what it reads.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.got.Add(uint64(max(n, 0)))
	return n, err
}

// lastReply returns when the last write began; without one, when the connection did.
func (w *wire) lastReply() time.Time { return w.since.Add(time.Duration(w.wrote.Load())) }

// Write has a deadline of its own: only a client that does not read can make it slow. The deadline is up to a second early, so that a busy
// connection sets few.
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
		_ = w.Conn.SetWriteDeadline(w.since.Add(by)) // an error comes again
		w.deadline = by
	}
	n, w.failed = w.Conn.Write(p)
	w.sent.Add(uint64(max(n, 0)))
	return n, w.failed
}

// wakeReader makes the present Read, or the next one, fail at once with a timeout.
func (w *wire) wakeReader() { _ = w.Conn.SetReadDeadline(time.Unix(1, 0)) }

// lastTimeout is for what is written at the very end: a goodbye, TLS's close_notify.
const lastTimeout = time.Second

// end notes that the connection is about to be closed: a write that waits for the client waits no longer than lastTimeout.
func (w *wire) end() {
	w.ending.Store(true)
	_ = w.Conn.SetWriteDeadline(time.Now().Add(lastTimeout))
}

// Close sends the end and throws away what came unread: a close with unread data would reset the connection, and a reset
// may cost the client the last reply (RFC 2525 section 2.17).
func (w *wire) Close() error {
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok && w.raw != nil {
		_ = half.CloseWrite()
		drain(w.raw)
	}
	return w.Conn.Close()
}
