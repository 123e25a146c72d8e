package files

import (
	"errors"
	"io"
	"net"
	"os"
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

// steps paces what is read from a connection: a deadline rolls ahead of it, one Step at a time. A read
// that ends at a deadline with something read, or before Timeout, is simply tried again;
// neither splice nor crypto/tls loses a byte over it.
type steps struct {
	pace Pace
	conn interface{ SetReadDeadline(time.Time) error } // nil: no connection
	last time.Time                                     // when bytes moved
}

func newSteps(r io.Reader, p Pace) *steps {
	s := &steps{pace: p, last: time.Now()}
	if p.step() > 0 {
		s.conn, _ = r.(interface{ SetReadDeadline(time.Time) error })
	}
	return s
}

// next is called before each read.
func (s *steps) next() {
	if s.conn != nil {
		s.conn.SetReadDeadline(time.Now().Add(s.pace.step())) // an error shows at the read
	}
}

// done takes the outcome of a read, and returns the error if it ends the transfer.
func (s *steps) done(n int64, err error) error {
	if n > 0 {
		s.last = time.Now()
		s.pace.told(n)
	}
	if s.conn == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if s.pace.Timeout > 0 && time.Since(s.last) >= s.pace.Timeout {
		return err
	}
	return nil
}

// stop takes the deadline off again.
func (s *steps) stop() {
	if s.conn != nil {
		s.conn.SetReadDeadline(time.Time{})
	}
}

// watch paces what is written to a connection. It does not use a rolling deadline: crypto/tls is broken by a
// write that times out, and a write says nothing of what the client takes in of some megabytes that wait in the
// kernel. It looks once a Step at what was written and at the length of that queue, and ends the transfer by a
// deadline in the past.
type watch struct {
	pace  Pace
	conn  interface{ SetWriteDeadline(time.Time) error }
	queue func() (bytes int, ok bool) // what is on its way and not acknowledged
	moved atomic.Int64                // bytes written; the writer adds to it

	mu      sync.Mutex
	timer   *time.Timer // nil: nothing is watched
	stopped bool
	seen    int64 // of moved, told
	queued  int
	last    time.Time
}

func newWatch(w io.Writer, p Pace) *watch {
	s := &watch{pace: p, queue: func() (int, bool) { return 0, false }}
	conn, ok := w.(interface{ SetWriteDeadline(time.Time) error })
	if !ok || p.step() <= 0 {
		return s
	}
	s.conn = conn
	if rc := rawConn(w); rc != nil {
		s.queue = func() (int, bool) { return unacknowledged(rc) }
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
	s.queued, _ = s.queue()
	s.timer = time.AfterFunc(p.step(), s.look)
	return s
}

// look runs once a Step.
func (s *watch) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	moved := s.moved.Load() - s.seen
	queued, ok := s.queue()
	if moved > 0 || ok && queued < s.queued {
		s.last = time.Now()
		s.pace.told(moved)
	}
	s.seen += moved
	s.queued = queued
	if s.pace.Timeout > 0 && time.Since(s.last) >= s.pace.Timeout {
		s.conn.SetWriteDeadline(time.Unix(1, 0))
		return
	}
	s.timer.Reset(s.pace.step())
}

// stop ends the watch, waits for a look under way, and tells what was not told yet.
func (s *watch) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
	if n := s.moved.Load() - s.seen; n > 0 {
		s.seen += n
		s.pace.told(n)
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
