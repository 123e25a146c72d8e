package journal

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// retryAfter is how long a write waits that found the disk full.
const retryAfter = 100 * time.Millisecond

// commits is the part of a Log that writes and syncs what was appended. Its callers do the work: one for all that wait.
type commits struct {
	waiting atomic.Int32 // calls of Wait
	written atomic.Int64 // the position up to which records are written
	synced  atomic.Int64 // and synced
	stuck   atomic.Bool  // a write found the disk full, and is tried again

	writing sync.Mutex // held for writes, never for syncs but the last of a segment
	out     []byte     // what is being written
	target  *segment   // where out goes
	over    bool       // the log is closed

	syncing sync.Mutex // held for a sync; taken before writing
	marked  int64      // the end of the last mark

	roundMu sync.Mutex
	round   *round // the next sync, which its first caller makes when the one under way is over; nil: no caller waits for one
}

// round is a sync that several callers wait for.
type round struct {
	done chan struct{}
	err  error // after done
}

// Wait implements [lock.Log]. It returns when the disk answers, also if ctx ends before; ctx ends the waiting for a full disk only.
func (l *Log) Wait(ctx context.Context, end lock.Position, durable bool) error {
	if others := l.waiting.Add(1) > 1; others {
		runtime.Gosched() // sessions that can run may append more, so that one write is enough for all
	}
	defer l.waiting.Add(-1)
	for {
		var err error
		if durable && l.o.Durable {
			err = l.sync(int64(end))
		} else {
			err = l.write(int64(end))
		}
		switch {
		case err == nil:
			return nil
		case !full(err):
			return uncertain(err)
		}
		select {
		case <-ctx.Done():
			return uncertain(ctx.Err())
		case <-l.failure.over:
		case <-time.After(retryAfter):
		}
	}
}

// write returns when everything before end is written.
func (l *Log) write(end int64) error {
	if l.written.Load() >= end {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.written.Load() >= end {
		return nil
	}
	return l.writeLocked()
}

// writeLocked writes everything that was appended before.
func (l *Log) writeLocked() error {
	for again := true; again; {
		if err := l.failure.get(); err != nil {
			return err
		}
		if l.over {
			return lock.ErrClosed
		}
		if again = len(l.out) > 0; !again { // else the disk was full at the last time
			l.mu.Lock()
			l.out, l.coder.b = l.coder.b, l.out
			l.mu.Unlock()
		}
		at := l.written.Load()
		if _, err := l.target.WriteAt(l.out, at-int64(l.target.base)); err != nil {
			if full(err) {
				l.stuck.Store(true)
				return err
			}
			return l.failure.set(err)
		}
		l.written.Store(at + int64(len(l.out)))
		l.stuck.Store(false)
		l.out = l.out[:0]
	}
	return nil
}

// sync returns when everything before end is synced. The first caller that comes during a sync makes the next one, for all that come until then.
func (l *Log) sync(end int64) error {
	l.roundMu.Lock()
	if l.synced.Load() >= end {
		l.roundMu.Unlock()
		return nil
	}
	r := l.round
	if r != nil {
		l.roundMu.Unlock()
		<-r.done
		return r.err
	}
	r = &round{done: make(chan struct{})}
	l.round = r
	l.roundMu.Unlock()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.roundMu.Lock()
	l.round = nil
	l.roundMu.Unlock()
	defer close(r.done)
	r.err = l.syncLocked()
	return r.err
}

// syncLocked writes and syncs everything that was appended before.
func (l *Log) syncLocked() error {
	l.writing.Lock()
	err := l.writeLocked()
	s, end := l.target, l.written.Load()
	l.writing.Unlock()
	if err != nil {
		return err
	}
	if err := l.datasync(s); err != nil {
		return err
	}
	l.synced.Store(end)
	if end > l.marked {
		l.mu.Lock()
		l.append(&line{kind: synced, number: uint64(end - int64(s.base))}) // it is written with the next record
		l.marked = int64(l.endAt)
		l.mu.Unlock()
	}
	return nil
}

// datasync syncs a segment. After an error the content of the disk is unknown.
func (l *Log) datasync(s *segment) error {
	began := time.Now()
	err := s.Sync()
	l.o.Synced(time.Since(began))
	if err != nil {
		return l.failure.set(err)
	}
	return nil
}
