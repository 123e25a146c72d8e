package server

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// maxUnwritten limits the bytes that wait to be written, without the last write.
const maxUnwritten = 4 << 20

// unblocked writes to another writer in the background, so no part of the server waits for the reader of its log. When more than
// maxUnwritten bytes wait, or a write fails, it drops lines, and reports their number when it can write again. Call close to end it.
type unblocked struct {
	w    io.Writer
	lost func(lines int) // reports to the other writer that lines were lost
	done chan struct{}

	mu      sync.Mutex
	more    sync.Cond
	waiting []byte
	dropped int // lines that are not reported yet
	total   uint64
	closed  bool
}

func newUnblocked(w io.Writer, lost func(lines int)) *unblocked {
	u := &unblocked{w: w, lost: lost, done: make(chan struct{})}
	u.more.L = &u.mu
	go u.run()
	return u
}

// Write implements io.Writer. It never fails.
func (u *unblocked) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.waiting) >= maxUnwritten {
		u.dropLocked(p)
		return len(p), nil
	}
	u.waiting = append(u.waiting, p...)
	u.more.Signal()
	return len(p), nil
}

// dropLocked counts lines that are lost.
func (u *unblocked) dropLocked(p []byte) {
	lines := bytes.Count(p, []byte{'\n'})
	u.dropped += lines
	u.total += uint64(lines)
}

// Dropped returns how many lines were lost.
func (u *unblocked) Dropped() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.total
}

// close waits until all is written, up to a time limit.
func (u *unblocked) close(within time.Duration) {
	u.mu.Lock()
	u.closed = true
	u.more.Signal()
	u.mu.Unlock()
	select {
	case <-u.done:
	case <-time.After(within):
	}
}

func (u *unblocked) run() {
	defer close(u.done)
	var text []byte
	for dropped := 0; ; {
		if text, dropped = u.next(text[:0]); len(text) == 0 && dropped == 0 {
			return
		}
		if n, err := u.w.Write(text); err != nil {
			u.mu.Lock()
			u.dropLocked(text[n:])
			u.dropped += dropped
			u.mu.Unlock()
		} else if dropped > 0 {
			u.lost(dropped)
		}
	}
}

// next waits for bytes to write, takes all of them, and leaves an empty slice. It returns none after close.
func (u *unblocked) next(empty []byte) (text []byte, dropped int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.waiting) == 0 && !u.closed {
		u.more.Wait()
	}
	text, u.waiting = u.waiting, empty
	dropped, u.dropped = u.dropped, 0
	return text, dropped
}
