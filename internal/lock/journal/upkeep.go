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
}

// keepEvery is the interval of keep. It is the longest time for which a record without a waiting caller stays unwritten.
const keepEvery = 100 * time.Millisecond

// run calls keep until the log is closed.
func (l *Log) run() {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		if err := l.keep(false); err != nil && !full(err) && !errors.Is(err, lock.ErrClosed) && l.failure.get() == nil {
			l.o.Log.Error("the journal could not be extended", "err", err)
		}
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
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
	if err := l.tail.gone(); err != nil {
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
	l.prune()
	return l.rewrite()
}

// plan returns the size of the next segment, and reports whether it is due.
func (l *Log) plan() (size int64, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	needed := l.needed(l.awaited)
	return needed + l.standing + max(l.o.MaxSize, l.standing), l.free() < needed+l.o.MaxSize/4 || l.last+tokenBlock/2 > l.reserved
}

// prepare makes the spare segment, or makes it larger.
func (l *Log) prepare(size int64) (err error) {
	if l.spare == nil {
		if l.spare, err = l.openSpare(); err != nil {
			return err
		}
	}
	return l.fill(l.spare, size)
}

// rotate makes the spare segment the tail. Records that arrive meanwhile stay in memory, and their callers wait for one short sync.
func (l *Log) rotate() error {
	old := l.tail
	if err := l.name(l.spare, old.number+1); err != nil {
		return err
	}
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := l.syncLocked(); err != nil { // nearly all records, while other sessions write
		return err
	}
	if err := l.change(); err != nil {
		return err
	}
	l.synced.Store(int64(l.target.base))
	if err := l.syncLocked(); err != nil { // its header, which allows the removal of older segments
		return err
	}
	l.headerSynced()
	if err := errors.Join(old.Truncate(int64(l.target.base-old.base)), old.Close()); err != nil {
		l.o.Log.Warn("an old file of the journal could not be cut", "err", err)
	}
	return nil
}

// change directs appends to the spare segment, and syncs the old one before it writes to the new one.
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
	length := uint64(l.endAt - l.tail.base)
	l.tail, l.events, l.copying = l.spare, false, l.standing
	l.tail.base = l.endAt
	l.appendHeader(l.from, length)
	return true
}

// appendHeader appends the first line of the tail.
func (l *Log) appendHeader(from, length uint64) {
	l.tail.header = header{
		Version: version, Start: l.loaded.Start, Boot: l.o.BootID, At: l.o.Clock.Now(),
		Last: l.last, Reserved: l.last + tokenBlock, From: from, Length: length,
	}
	l.append(&line{kind: head, number: l.tail.number, header: l.tail.header})
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
	for _, s := range l.stands { // holds that come and go meanwhile do no harm
		l.repeat(s.hold)
		if n++; n%rewriteBatch == 0 {
			if err := l.syncTail(); err != nil {
				return err
			}
		}
	}
	l.from, l.copying = l.tail.number, 0 // the next header has it, after a sync of the copies
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

// rotateAfter is the age at which a segment with entries of the history ends, so that Sweep can remove them when they are old.
const rotateAfter = 24 * time.Hour

// Sweep begins a new segment each day, and removes from the history what is older or larger than Options allow.
func (l *Log) Sweep(context.Context) error {
	if l.failure.get() != nil {
		return nil // Run returns it
	}
	l.keeping.Lock()
	freed := l.prune()
	l.mu.Lock()
	early := freed || l.events && l.o.Clock.Now().Boot-l.tail.header.At.Boot > rotateAfter
	l.mu.Unlock()
	l.keeping.Unlock()
	if !early {
		return nil
	}
	return l.keep(true)
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
