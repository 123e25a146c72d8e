package journal

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

const (
	// retryAfter is the pause before a write to a full disk is repeated.
	retryAfter = 100 * time.Millisecond
	// waitTimeout is the longest time that a caller waits for space on a full disk.
	waitTimeout = 10 * time.Second
)

// commits is the part of a Log that writes and syncs the appended records. It has no goroutine: one of the waiting callers does the work
// for all of them.
type commits struct {
	waiting   atomic.Int32 // calls of Wait under way
	writtenTo atomic.Int64 // all records before this position are written
	syncedTo  atomic.Int64 // all records before this position are synced
	stuck     atomic.Bool  // the last write failed because the disk is full; it is repeated

	writing   sync.Mutex // held during a write, and during the last sync of a segment
	unwritten []byte     // the lines to write
	target    *segment   // the segment to write them to
	closed    bool       // the log is closed

	syncing  sync.Mutex // held for a sync; taken before writing
	markedTo int64      // the end of the last mark

	roundMu sync.Mutex
	round   *round // the next sync. Its first caller makes it when the current sync ends. nil: no caller waits for one
}

// round is a sync that several callers wait for.
type round struct {
	done chan struct{}
	err  error // after done
}

// Wait implements [lock.Log]. It returns when the disk answers, even if ctx has ended. ctx only ends the wait for space on a full disk,
// which takes ten seconds at most.
func (l *Log) Wait(ctx context.Context, end lock.Position, durable bool) error {
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	l.yield()
	for waited := time.Duration(0); ; waited += retryAfter {
		var err error
		if durable && l.o.Durable {
			err = l.sync(int64(end))
		} else {
			err = l.write(int64(end))
		}
		switch {
		case err == nil:
			return nil
		case !isFull(err):
			return uncertainError(err)
		case waited >= waitTimeout:
			return uncertainError(fmt.Errorf("%w: %w", lock.ErrFull, withoutPath(err)))
		}
		select {
		case <-ctx.Done():
			return uncertainError(ctx.Err())
		case <-l.failure.failed:
		case <-time.After(retryAfter):
		}
	}
}

// yield lets sessions that are ready to run append more, so that one write or sync serves all of them. With a single caller it does
// nothing: to yield wakes another thread, which costs 20 µs of CPU.
func (l *Log) yield() {
	if l.waiting.Load() > 1 {
		runtime.Gosched()
	}
}

// write returns when everything before end is written.
func (l *Log) write(end int64) error {
	if l.writtenTo.Load() >= end {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.writtenTo.Load() >= end {
		return nil
	}
	return l.writeLocked()
}

// writeLocked writes all appended records.
func (l *Log) writeLocked() error {
	for again := true; again; {
		if err := l.failure.get(); err != nil {
			return err
		}
		if l.closed {
			return lock.ErrClosed
		}
		if again = len(l.unwritten) > 0; !again { // otherwise the last write failed because the disk was full
			l.mu.Lock()
			l.unwritten, l.pending = l.pending, l.unwritten
			l.mu.Unlock()
		}
		at := l.writtenTo.Load()
		if _, err := l.target.WriteAt(l.unwritten, at-int64(l.target.base)); err != nil {
			if isFull(err) {
				l.stuck.Store(true)
				return err
			}
			return l.failure.set(err)
		}
		l.writtenTo.Store(at + int64(len(l.unwritten)))
		l.stuck.Store(false)
		l.unwritten = l.unwritten[:0]
	}
	return nil
}

// sync returns when everything before end is synced. The first caller that arrives during a sync makes the next one, for itself and for
// all callers that arrive until then.
func (l *Log) sync(end int64) error {
	l.roundMu.Lock()
	if l.syncedTo.Load() >= end {
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
	l.yield() // the sync before has just released its callers, and they append again
	l.roundMu.Lock()
	l.round = nil
	l.roundMu.Unlock()
	defer close(r.done)
	r.err = l.syncLocked()
	return r.err
}

// syncLocked writes and syncs all appended records.
func (l *Log) syncLocked() error {
	l.writing.Lock()
	err := l.writeLocked()
	s, end := l.target, l.writtenTo.Load()
	l.writing.Unlock()
	if err != nil {
		return err
	}
	if err := l.datasync(s); err != nil {
		return err
	}
	l.syncedTo.Store(end)
	if end > l.markedTo {
		l.mu.Lock()
		l.appendMark(mark{kind: syncedLine, number: uint64(end - int64(s.base))}) // the next write includes it
		l.markedTo = int64(l.endAt)
		l.mu.Unlock()
	}
	return nil
}

// datasync syncs a segment. An error makes the log fail, because the content of the disk is then unknown.
func (l *Log) datasync(s *segment) error {
	began := time.Now()
	err := s.Sync()
	l.o.Synced(time.Since(began))
	if err != nil {
		return l.failure.set(err)
	}
	return nil
}
