package journal

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// retryAfter is how long a write waits that found the disk full.
const retryAfter = 100 * time.Millisecond

// Wait implements [lock.Log]. One caller writes, or syncs, for all that wait: that one returns when the disk answers, also if its ctx ended.
func (l *Log) Wait(ctx context.Context, end lock.Position, durable bool) error {
	reached := &l.written
	work := l.write
	if durable && l.o.Durable {
		reached = &l.synced
		work = func() error { return l.sync(ctx, int64(end)) }
	}
	if reached.Load() < int64(end) {
		runtime.Gosched() // others that can run may append more, so that one write or sync is enough for all
	}
	for reached.Load() < int64(end) {
		err := work()
		if err != nil && !full(err) {
			return uncertain(err)
		}
		if err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return uncertain(ctx.Err())
		case <-l.failure.over:
		case <-time.After(retryAfter):
		}
	}
	return nil
}

// write writes all records that were appended before.
func (l *Log) write() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.writeLocked()
}

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
		offset := at - int64(l.target.base)
		if _, err := l.target.WriteAt(l.out, offset); err != nil {
			if full(err) {
				l.stuck.Store(true)
				return err
			}
			return l.failure.set(err)
		}
		l.target.zeroed = max(l.target.zeroed, offset+int64(len(l.out)))
		l.written.Store(at + int64(len(l.out)))
		l.stuck.Store(false)
		l.out = l.out[:0]
	}
	return nil
}

// round is one sync, or one attempt of the upkeep, that several callers wait for.
type round struct {
	done chan struct{}
	err  error
}

func newRound() *round { return &round{done: make(chan struct{})} }

func (r *round) end(err error) {
	r.err = err
	close(r.done)
}

// rounds orders syncs: one at a time. The callers that come during one share the next.
type rounds struct {
	roundMu sync.Mutex
	syncing bool
	closed  bool
	next    *round
	marked  int64 // the end of the last mark; owned by the sync under way
	syncers sync.WaitGroup
}

// sync returns when everything before end is synced.
func (l *Log) sync(ctx context.Context, end int64) error {
	l.roundMu.Lock()
	if l.synced.Load() >= end {
		l.roundMu.Unlock()
		return nil
	}
	if r := l.join(); r != nil {
		select {
		case <-r.done:
			return r.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := l.syncOnce()
	l.handOver()
	return err
}

// join makes the caller the one who syncs, or returns the round that it must wait for. It unlocks roundMu.
func (r *rounds) join() *round {
	defer r.roundMu.Unlock()
	if !r.syncing {
		r.syncing = true
		return nil
	}
	if r.closed {
		ended := newRound()
		ended.end(lock.ErrClosed)
		return ended
	}
	if r.next == nil {
		r.next = newRound()
	}
	return r.next
}

// handOver ends the turn of the caller. If others wait, another goroutine syncs for them, and for those that come meanwhile.
func (l *Log) handOver() {
	if r := l.nextRound(); r != nil {
		l.syncers.Go(func() {
			for ; r != nil; r = l.nextRound() {
				r.end(l.syncOnce())
			}
		})
	}
}

func (r *rounds) nextRound() *round {
	r.roundMu.Lock()
	defer r.roundMu.Unlock()
	next := r.next
	r.next, r.syncing = nil, next != nil
	return next
}

// takeSyncs returns when no sync is under way, and the caller may sync. It calls handOver or endSyncs afterwards.
func (l *Log) takeSyncs() {
	for {
		l.roundMu.Lock()
		r := l.join()
		if r == nil {
			return
		}
		<-r.done
	}
}

// endSyncs refuses all further syncs.
func (r *rounds) endSyncs() {
	r.roundMu.Lock()
	defer r.roundMu.Unlock()
	r.closed = true
	if r.next != nil {
		r.next.end(lock.ErrClosed)
	}
}

// syncOnce writes and syncs everything that was appended before. Only the caller whose turn it is may call it.
func (l *Log) syncOnce() error {
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
	if err := s.gone(); err != nil {
		return l.failure.set(err)
	}
	l.synced.Store(end)
	if end > l.marked {
		l.mu.Lock()
		l.appendOwn(synced, uint64(end-int64(s.base)))
		l.marked = int64(l.endAt)
		l.mu.Unlock()
	}
	return nil
}

// datasync syncs a segment. After an error nobody knows what is on the disk.
func (l *Log) datasync(s *segment) error {
	began := time.Now()
	err := s.Sync()
	l.o.Synced(time.Since(began))
	if err != nil {
		return l.failure.set(err)
	}
	return nil
}
