package files

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Pace says how long a transfer may stand still, and who is told that it does not. The
// zero value neither ends nor tells anything.
//
// It works on connections, that is on what has deadlines; a transfer from or to anything else is as
// slow as it likes. A transfer sets the deadlines of its connection: to abort it, close the connection.
type Pace struct {
	// Timeout ends a transfer that stood still for so long, or up to a Step longer: os.ErrDeadlineExceeded.
	// One that is slow goes on. 0: never.
	Timeout time.Duration
	// Step is how often it is looked at; 0: a quarter of Timeout, at most 5s.
	Step time.Duration
	// Progress is told that n bytes moved since the last call, at least once in each Step in which any did. n is 0
	// if only the client took in what was on its way already. It may come from another goroutine, but never two at
	// once and never after the transfer; it must not block.
	Progress func(n int64)
}

func (p Pace) step() time.Duration {
	if p.Step > 0 || p.Timeout <= 0 {
		return p.Step
	}
	return max(min(p.Timeout/4, 5*time.Second), time.Millisecond)
}

func (p Pace) told(n int64) {
	if p.Progress != nil {
		p.Progress(n)
	}
}

// watch paces one transfer. It does not use a deadline that rolls ahead: crypto/tls is broken by a write that times out,
// a write says nothing of what the client takes in of some megabytes that wait in the kernel, and to move a deadline for
// each read costs more than a small file does. It looks once a Step at what was moved and at the length of that queue, and
// ends the transfer by a deadline in the past.
type watch struct {
	pace  Pace
	beat  *beat                       // nil: nothing is watched
	end   func()                      // ends the transfer
	queue func() (bytes int, ok bool) // what was written and is not acknowledged
	moved atomic.Int64                // bytes; the transfer adds to it

	mu      sync.Mutex
	stopped bool
	seen    int64 // of moved, told
	queued  int   // when it was last looked at; 0 at first, whatever there is: that counts as no progress
	last    time.Time
}

func noQueue() (int, bool) { return 0, false }

// watchRead paces what is read from r, if it is a connection.
func (b *beats) watchRead(r io.Reader, p Pace) *watch {
	w := &watch{pace: p, queue: noQueue}
	if conn, ok := r.(interface{ SetReadDeadline(time.Time) error }); ok {
		w.start(b, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	}
	return w
}

// watchWrite paces what is written to w, if it is a connection.
func (b *beats) watchWrite(to io.Writer, p Pace) *watch {
	w := &watch{pace: p, queue: noQueue}
	conn, ok := to.(interface{ SetWriteDeadline(time.Time) error })
	if !ok {
		return w
	}
	if rc := rawConn(to); rc != nil {
		w.queue = func() (int, bool) { return unacknowledged(rc) }
	}
	w.start(b, func() { conn.SetWriteDeadline(time.Unix(1, 0)) })
	return w
}

func (w *watch) start(b *beats, end func()) {
	if w.pace.step() <= 0 {
		return
	}
	w.end, w.last = end, time.Now()
	w.beat = b.join(w.pace.step(), w)
}

// look runs once a Step.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	moved := w.moved.Load() - w.seen
	queued, ok := w.queue()
	if moved > 0 || ok && queued < w.queued {
		w.last = time.Now()
		w.pace.told(moved)
	}
	w.seen += moved
	w.queued = queued
	if w.pace.Timeout > 0 && time.Since(w.last) >= w.pace.Timeout {
		w.end()
	}
}

// stop ends the watch, waits for a look under way, and tells what was not told yet.
func (w *watch) stop() {
	if w.beat != nil {
		w.beat.leave(w)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if n := w.moved.Load() - w.seen; n > 0 {
		w.seen += n
		w.pace.told(n)
	}
}

// rawConn returns the socket below a connection, also below TLS; nil if there is none.
func rawConn(c any) syscall.RawConn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	return plainConn(c)
}

// plainConn returns the socket of a connection without TLS; nil if there is none.
func plainConn(c any) syscall.RawConn {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return rc
}
