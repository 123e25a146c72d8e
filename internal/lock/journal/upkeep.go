package journal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// upkeep is the part of a Log that prepares tokens, space and segments before they are needed.
type upkeep struct {
	wanted   chan struct{} // wakes keepUp
	rewrites chan struct{}

	attemptMu sync.Mutex
	attempt   *round // the next attempt

	keeping sync.Mutex // held for an attempt and a sweep
	spare   *segment   // the next one; nil: not made yet
	due     bool       // a new segment is due, also if the last one is not full

	// Guarded by records.mu:
	from      uint64        // all holds that stand are in the segments from this one on; synced
	asked     uint64        // a rewrite is under way, which began with this segment; 0: none
	rewritten lock.Position // the end of a rewrite that is not synced yet; 0: none
}

// ahead is how much more space than needed is filled at a time.
func (l *Log) ahead() int64 { return l.o.MaxSize / 16 }

// MakeRoom implements [lock.Log].
func (l *Log) MakeRoom(ctx context.Context, token lock.Token) error {
	for !l.Room(token) {
		if l.failure.get() != nil {
			return l.failure.err
		}
		l.attemptMu.Lock()
		r := l.attempt
		l.attemptMu.Unlock()
		signal(l.wanted)
		select {
		case <-r.done:
		case <-l.stop:
			return lock.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
		if r.err != nil && !l.Room(token) {
			if full(r.err) {
				return fmt.Errorf("%w: %w", lock.ErrFull, bare(r.err))
			}
			return r.err
		}
	}
	return nil
}

func (l *Log) keepUp() {
	for {
		select {
		case <-l.stop:
			return
		case <-l.wanted:
		}
		l.attemptMu.Lock()
		r := l.attempt
		l.attempt = newRound()
		l.attemptMu.Unlock()
		err := l.keep()
		if err != nil && !full(err) && l.failure.get() == nil {
			l.o.Log.Error("the journal could not be extended", "err", err)
		}
		r.end(err)
	}
}

// keep reserves tokens, fills space, and begins a segment if the last one is full.
func (l *Log) keep() error {
	l.keeping.Lock()
	defer l.keeping.Unlock()
	err := l.write() // tried again, if the disk was full
	if err == nil {
		err = l.reserve()
	}
	if err == nil {
		err = l.finishRewrite()
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	size, limit := int64(l.endAt-l.tail.base), max(l.o.MaxSize, 2*l.standing)
	want := size + l.needed(l.awaited) + l.ahead()
	begin := max(l.o.MaxSize, l.standing+l.needed(l.awaited)+l.ahead()) // of a segment: it is rewritten there, and grants go on
	due := l.due || size >= limit
	l.mu.Unlock()
	err = l.fill(l.tail, want)
	if err == nil && (due || size >= limit/2) {
		err = l.prepare(begin)
	}
	if err == nil && due && l.spare.filled.Load() >= begin {
		err = l.rotate()
		l.due = false
		l.prune()
	}
	if err == nil && l.spare != nil && l.spare.filled.Load() < begin {
		signal(l.wanted)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	size = int64(l.endAt - l.tail.base)
	switch l.keepAt = math.MaxInt64; {
	case size < limit/2:
		l.keepAt = l.tail.base + lock.Position(limit/2)
	case size < limit:
		l.keepAt = l.tail.base + lock.Position(limit)
	case err != nil:
		l.keepAt = l.endAt + lock.Position(l.ahead()) // and try again
	default:
		signal(l.wanted)
	}
	return err
}

// reserve makes the next tokens valid before those run out that are reserved.
func (l *Log) reserve() error {
	l.mu.Lock()
	if l.last+tokenBlock/2 < l.reserved {
		l.mu.Unlock()
		return nil
	}
	upTo := l.last + tokenBlock
	l.appendOwn(tokens, uint64(upTo))
	end := l.endAt
	l.mu.Unlock()
	if err := l.sync(context.Background(), int64(end)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved = upTo
	return nil
}

// prepare makes the next segment, a step further with each call: callers of MakeRoom wait for the end of a step.
func (l *Log) prepare(size int64) (err error) {
	if l.spare == nil {
		number := l.tail.number + 1
		if l.spare, err = l.openSegment(l.dir.segment(number), number); err != nil {
			return err
		}
		if err := syncDir(l.dir.segments()); err != nil {
			return l.failure.set(err)
		}
	}
	return l.fill(l.spare, min(size, l.spare.filled.Load()+max(l.ahead(), piece*batch)))
}

// rotate goes on in the spare segment. Records that come meanwhile are in memory; their callers wait for one short sync.
func (l *Log) rotate() error {
	l.takeSyncs()
	defer l.handOver()
	if err := l.syncOnce(); err != nil { // nearly all of it, while others write
		return err
	}
	old := l.target
	if err := l.change(); err != nil {
		return err
	}
	l.synced.Store(int64(l.target.base))
	if err := l.syncOnce(); err != nil { // its header: older segments may go by what that says
		return err
	}
	length := int64(l.target.base - old.base)
	if err := errors.Join(old.Truncate(length), old.Close()); err != nil {
		l.o.Log.Warn("an old file of the journal could not be cut", "err", err)
	}
	return nil
}

// change lets appends go to the spare segment, and syncs the old one before anything is written to the new one.
func (l *Log) change() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	for changed := false; !changed; {
		if err := l.writeLocked(); err != nil {
			return err
		}
		changed = l.changeTail()
	}
	if err := l.datasync(l.target); err != nil {
		return err
	}
	if err := l.target.gone(); err != nil {
		return l.failure.set(err)
	}
	l.target, l.spare = l.spare, nil
	return nil
}

// changeTail begins the spare segment, unless records were appended that belong to the old one.
func (l *Log) changeTail() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.coder.b) > 0 {
		return false
	}
	s := l.spare
	s.base = l.endAt
	s.header = header{
		Version: version, Start: l.loaded.Start, Boot: l.o.BootID, At: l.o.Clock.Now(), Last: l.last, Reserved: l.reserved,
		From: l.from, Length: uint64(l.endAt - l.tail.base),
	}
	l.coder.append(&line{kind: head, number: s.number, header: s.header})
	l.endAt += lock.Position(len(l.coder.b))
	l.tail, l.events = s, false
	if l.asked == 0 {
		l.asked = s.number
		signal(l.rewrites)
	}
	return true
}

// Rewrite implements [lock.Rewriter]: when a new segment was begun. The table is to wait for each batch, with durable, before it appends
// the next one: so the writes and syncs of others stay short.
func (l *Log) Rewrite() <-chan struct{} { return l.rewrites }

// Rewritten implements [lock.Rewriter].
func (l *Log) Rewritten() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked > 0 {
		l.rewritten = l.endAt
		signal(l.wanted)
	}
}

// finishRewrite lets older segments be history as soon as the rewrite is synced.
func (l *Log) finishRewrite() error {
	l.mu.Lock()
	end := l.rewritten
	l.mu.Unlock()
	if end == 0 {
		return nil
	}
	if err := l.sync(context.Background(), int64(end)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from, l.asked, l.rewritten = l.asked, 0, 0
	return nil
}

// rotateAfter is how long one segment goes on, if it has entries for the history, so that these can go when they are old.
const rotateAfter = 24 * time.Hour

// Sweep begins a new segment each day, and removes from the history what is older or larger than Options allow.
func (l *Log) Sweep(context.Context) error {
	if l.failure.get() != nil {
		return nil // Run returns it
	}
	due, err := l.sweep()
	for due && err == nil {
		err = l.keep()
		l.keeping.Lock()
		due = l.due
		l.keeping.Unlock()
	}
	return err
}

func (l *Log) sweep() (due bool, err error) {
	l.keeping.Lock()
	defer l.keeping.Unlock()
	if err := l.tail.gone(); err != nil {
		return false, l.failure.set(err)
	}
	l.mu.Lock()
	due = l.events && l.o.Clock.Now().Boot-l.tail.header.At.Boot > rotateAfter
	l.mu.Unlock()
	l.due = l.prune() || due
	return l.due, nil
}

// prune removes the segments of the history that are too old, and the oldest ones of too many bytes. It keeps those that a start may read. It
// reports whether some are too old that a start would not read if there were a new segment.
func (l *Log) prune() (freed bool) {
	l.mu.Lock()
	from := l.from
	l.mu.Unlock()
	numbers, err := l.dir.numbers()
	var total int64
	oldest := l.o.Clock.Now().Wall.Add(-l.o.HistoryAge)
	for i := len(numbers) - 1; i >= 0 && err == nil; i-- {
		path := l.dir.segment(numbers[i])
		if numbers[i] >= l.tail.number {
			continue
		}
		var info os.FileInfo
		if info, err = os.Stat(path); err != nil {
			break
		}
		total += info.Size()
		old := l.o.HistoryAge > 0 && info.ModTime().Before(oldest)
		freed = freed || old && numbers[i] < from && numbers[i] >= l.tail.header.From
		if numbers[i] < l.tail.header.From && (old || l.o.HistorySize > 0 && total > l.o.HistorySize) {
			err = os.Remove(path)
			l.o.Log.Info("an old file of the history was removed, see history_days and history_size", "file", path, "bytes", info.Size())
		}
	}
	if err != nil {
		l.o.Log.Error("old files of the history could not be removed", "err", err)
	}
	return freed
}
