package journal

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// upkeep is the part of a Log that begins segments. A full segment is followed by the spare one, which is filled with zeros ahead of time. Then
// the holds that stand are written to it, a few at a time, so that older segments are only history.
type upkeep struct {
	keeping sync.Mutex // held for upkeep; taken before syncing
	spare   *segment   // nil: not made yet
	syncDue int64      // the end of the log at the last call of syncOlder; for run
}

// keepEvery is the interval of keep. It is the longest time for which a record without a waiting caller stays unwritten.
const keepEvery = 100 * time.Millisecond

// syncEvery is the interval of syncOlder.
const syncEvery = time.Second

// run calls keep and syncOlder until the log is closed.
func (l *Log) run() {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	logged := "" // the error of the last round
	for n := 1; ; n++ {
		text := ""
		if err := l.keep(false); err != nil && !isFull(err) && !errors.Is(err, lock.ErrClosed) && l.failure.get() == nil {
			if text = err.Error(); text != logged {
				l.o.Log.Error("the journal could not be extended", "err", err)
			}
		}
		logged = text
		if n%int(syncEvery/keepEvery) == 0 {
			l.syncOlder()
		}
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
	}
}

// syncOlder syncs the records that were there at the last call: no caller waits for a sync of the ends of holds.
func (l *Log) syncOlder() {
	l.mu.Lock()
	due := l.syncDue
	l.syncDue = int64(l.endAt)
	l.mu.Unlock()
	if l.o.Durable {
		_ = l.sync(due) // a full disk; other errors make the log fail
	}
}

// keep writes the records that no caller waits for, checks that the journal still exists, and prepares the spare segment. It begins that
// segment if the last one is full, or if early is set.
func (l *Log) keep(early bool) error {
	l.keeping.Lock()
	defer l.keeping.Unlock()
	l.mu.Lock()
	end := int64(l.endAt)
	l.mu.Unlock()
	if err := l.write(end); err != nil {
		return err
	}
	if err := l.tail.checkExists(); err != nil {
		return l.failure.set(err)
	}
	size, due := l.plan()
	if err := l.prepare(size); err != nil {
		return err
	}
	if !due && !early {
		return nil
	}
	if err := l.rotate(); err != nil {
		return err
	}
	return l.rewrite()
}

const (
	// growth is the number of times that a busy server doubles the size of its segments: a large segment is rarely full, and a start fills a small one.
	growth = 3
	// steps is the number of steps in which a spare segment grows by Size. A few locks more do not make it grow, which takes a sync.
	steps = 16
)

// plan returns the size of the next segment, and reports whether it is due.
func (l *Log) plan() (size int64, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	needed := l.needed(l.requestedToken)
	step := max(1, l.o.Size/steps)
	size = needed + l.holdSpace + max(l.nextSize, l.holdSpace)
	return (size + step - 1) / step * step, l.free() < needed+l.o.Size/4 || l.last+tokenBlock/2 > l.reserved
}

// prepare makes the spare segment, or makes it larger.
func (l *Log) prepare(size int64) (err error) {
	if l.spare == nil {
		if l.spare, err = l.openSpare(); err != nil {
			return err
		}
	}
	err = l.fill(l.spare, size)
	if !isFull(err) || !l.limitSize() {
		return err
	}
	if size, _ = l.plan(); l.spare.size <= size {
		return l.fill(l.spare, size)
	}
	if err := l.spare.Truncate(size); err != nil {
		return err
	}
	l.spare.size = size
	return nil
}

// limitSize has the next segment the usual size, because the disk is full. It returns false if it has that already.
func (l *Log) limitSize() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	larger := l.nextSize > l.o.Size
	l.nextSize = l.o.Size
	return larger
}

// rotate makes the spare segment the tail. Records that arrive meanwhile stay in memory, and their callers wait for one short sync.
func (l *Log) rotate() error {
	old := l.tail
	if err := l.assignNumber(l.spare, old.number+1); err != nil {
		return err
	}
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := l.syncLocked(); err != nil { // nearly all records, while other sessions write
		return err
	}
	if err := l.switchSegment(); err != nil {
		return err
	}
	l.syncedTo.Store(int64(l.target.base))
	if err := l.syncLocked(); err != nil { // its header, which allows the removal of older segments
		return err
	}
	l.headerSynced()
	if err := errors.Join(old.Truncate(int64(l.target.base-old.base)), old.Close()); err != nil {
		l.o.Log.Warn("an old file of the journal could not be cut", "err", err)
	}
	return nil
}

// switchSegment directs appends to the spare segment, and syncs the old one before it writes to the new one.
func (l *Log) switchSegment() error {
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
	l.target, l.spare = l.spare, nil
	return nil
}

// changeTail begins the spare segment, unless records were appended that belong to the old one.
func (l *Log) changeTail() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) > 0 {
		return false
	}
	length := uint64(l.endAt - l.tail.base)
	l.tail, l.events, l.rewriteSpace = l.spare, false, l.holdSpace
	l.nextSize = min(2*l.nextSize, l.o.Size<<growth)
	l.tail.base = l.endAt
	l.appendHeader(l.firstNeeded, length)
	return true
}

// appendHeader appends the first line of the tail.
func (l *Log) appendHeader(from, length uint64) {
	l.tail.header = header{
		Number: l.tail.number, Version: version, Start: l.loaded.Start, Boot: l.o.BootID, At: l.o.Clock.Now(),
		Last: l.last, Reserved: l.last + tokenBlock, FirstNeeded: from, Length: length,
	}
	l.appendMark(mark{kind: segmentLine, header: l.tail.header})
}

// headerSynced allows grants of the tokens that the header of the tail reserves.
func (l *Log) headerSynced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved = l.tail.header.Reserved
}

// rewriteBatch is the number of holds that rewrite copies between two syncs.
const rewriteBatch = 256

// rewrite copies the standing holds to the tail. It syncs a few at a time, so that the writes and syncs of sessions stay short.
func (l *Log) rewrite() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, s := range l.standing { // holds that come and go meanwhile do no harm
		l.appendCopy(&s.hold)
		if n++; n%rewriteBatch == 0 {
			if err := l.syncTail(); err != nil {
				return err
			}
		}
	}
	l.firstNeeded, l.rewriteSpace = l.tail.number, 0 // the next header has it, after a sync of the copies
	return nil
}

// syncTail syncs all appended records, unless the log is being closed. It unlocks mu during the sync.
func (l *Log) syncTail() error {
	end := int64(l.endAt)
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-l.stop:
		return lock.ErrClosed
	default:
		return l.sync(end)
	}
}

// rotateAfter is the age after which Sweep ends a segment with entries of the history, so that it can remove them when they are old.
const rotateAfter = 24 * time.Hour

// Sweep removes the segments of the history that are older or larger than Options allow. It begins a new segment if the tail has entries of
// the history and is older than rotateAfter, or if it can remove old segments afterwards. It returns an error of the disk.
func (l *Log) Sweep(context.Context) error {
	if l.failure.get() != nil {
		return nil // Run returns it
	}
	l.keeping.Lock()
	rotationNeeded := l.prune()
	l.mu.Lock()
	early := rotationNeeded || l.events && l.o.Clock.Now().Boot-l.tail.header.At.Boot > rotateAfter
	l.mu.Unlock()
	l.keeping.Unlock()
	if !early {
		return nil
	}
	if err := l.keep(true); err != nil {
		return err
	}
	l.keeping.Lock()
	defer l.keeping.Unlock()
	l.prune()
	return nil
}

// prune removes the segments of the history that are too old, and the oldest ones of too many bytes. It keeps those that a start may read. It
// reports whether a new segment would make further segments removable that are too old.
func (l *Log) prune() (rotationNeeded bool) {
	l.mu.Lock()
	from := l.firstNeeded
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
		rotationNeeded = rotationNeeded || old && numbers[i] < from && numbers[i] >= l.tail.header.FirstNeeded
		if numbers[i] < l.tail.header.FirstNeeded && (old || l.o.HistorySize > 0 && total > l.o.HistorySize) {
			if err = os.Remove(path); err != nil {
				break
			}
			l.o.Log.Info("an old file of the history was removed, see history_days and history_size", "file", path, "bytes", info.Size())
		}
	}
	if err != nil {
		l.o.Log.Error("old files of the history could not be removed", "err", err)
	}
	return rotationNeeded
}
