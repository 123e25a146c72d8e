// Package journal is the log of one machine: files of lines in a state directory.
//
// Its types: a [Log], opened with [Options]. [History] reads its history. [ReserveDir] takes a state directory for a server with another log.
//
// Guarantees: one server uses a state directory at a time. A record that Wait returned for survives the end of the process; with
// Options.Durable and durable it survives a loss of power. Tokens keep growing after either, even without Durable. A full disk refuses
// all records that end nothing, and no end of a hold: the log fills the space for the end of every hold with zeros in
// advance. A start writes the standing holds to a new segment and syncs it.
//
// Caveats: a release is not synced, so after a loss of power the lock may stand again until its age ends, which is safe.
// File systems that write to a new place each time (Btrfs, ZFS) may refuse to overwrite zeros on a full disk: the log tries again until
// there is space, and the release waits. After any other failed write, or a failed sync, the content of the disk is unknown: [Log.Run]
// returns [ErrFailed], and the process must end.
//
// The files are journal/NUMBER.log, called segments, and journal/spare, the next segment. Package record has the form of the lines, line.go that of
// the marks between them. Start reading at [Log.Append] and [Log.Wait].
package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// DefaultSize is the usual size in bytes of the first segment of a start.
const DefaultSize = 4 << 20

// Options are the arguments of Open.
type Options struct {
	Dir         string              // the state directory, a real path; made with mode 0700 if missing
	Clock       lock.Clock          // required
	BootID      string              // identifies this boot of the machine; "": each start counts as another boot
	Durable     bool                // Wait syncs if its caller requests it
	Log         *slog.Logger        // nil: silent
	Size        int64               // of the first segment of a start; the next ones are up to eight times as large, with many locks larger; 0: DefaultSize
	HistoryAge  time.Duration       // old segments go when their last line is older; 0: never
	HistorySize int64               // the oldest segments go when all old ones have more bytes; 0: any size
	Synced      func(time.Duration) // is called with the duration of each sync; may be nil

	wrap func(file) file // tests make the disk fail
}

// Log is a lock.Log in a state directory. Use Open. It is for use by several goroutines.
type Log struct {
	o         Options
	dir       stateDir
	exclusive *exclusive
	loaded    lock.Loaded
	failure   *failure
	stop      chan struct{} // closed by Close
	loops     sync.WaitGroup
	closeOnce func() error

	records // the records in memory
	commits // writes and syncs
	upkeep  // segments
}

var (
	_ lock.Log     = (*Log)(nil)
	_ lock.History = (*Log)(nil)
)

// Open opens the log of a state directory, and begins a new segment and a new start of the server. It returns an error if
// another server uses the directory, one that names file and line if the journal is damaged anywhere but behind the last mark of a sync,
// where a crash can tear lines, and one that matches ErrFailed if the disk refuses to sync.
func Open(o Options) (*Log, error) {
	if o.Clock == nil || o.Dir == "" {
		return nil, errors.New("journal: a state directory and a clock are needed")
	}
	o.setDefaults()
	l := &Log{o: o, dir: stateDir(o.Dir), stop: make(chan struct{})}
	l.failure = &failure{failed: make(chan struct{})}
	l.closeOnce = sync.OnceValue(l.shutDown)
	if err := l.dir.make(); err != nil {
		return nil, err
	}
	var err error
	if l.exclusive, err = l.dir.lock(); err != nil {
		return nil, err
	}
	if err := l.openSegments(); err != nil {
		return nil, errors.Join(err, l.exclusive.Close())
	}
	l.loops.Go(l.run)
	return l, nil
}

func (o *Options) setDefaults() {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Size <= 0 {
		o.Size = DefaultSize
	}
	if o.Synced == nil {
		o.Synced = func(time.Duration) {}
	}
	if o.wrap == nil {
		o.wrap = func(f file) file { return f }
	}
}

// openSegments reads the segments and writes the standing holds to a new one. It syncs the new segment before it gives it its number. If it
// fails earlier, the next start finds the old segments unchanged.
func (l *Log) openSegments() error {
	if err := l.dir.checkNotElsewhere(); err != nil {
		return err
	}
	found, err := l.dir.read(l.o.Clock.Exact(), l.o.BootID)
	if err == nil && found.number > 0 {
		err = l.syncPrevious(found)
	}
	if err != nil {
		return err
	}
	l.loaded = found.loaded()
	l.loaded.Start++
	l.last, l.standing, l.firstNeeded = l.loaded.Last, make(map[lock.Token]standingHold), found.number+1
	s, err := l.openSpare()
	if err != nil {
		return err
	}
	s.number = l.firstNeeded
	l.target, l.tail = s, s
	if err = l.writeFirstSegment(found); err != nil {
		err = errors.Join(err, s.Close())
	}
	if isFull(err) {
		return fmt.Errorf("%s: no space for a new journal: free some space and start again; nothing is lost: %w", l.dir, withoutPath(err))
	}
	if err != nil {
		return err
	}
	if old := l.dir.segment(found.number); found.number > 0 && !found.events {
		_ = os.Remove(old)
	} else if found.number > 0 {
		_ = os.Truncate(old, found.length) // history reads it as well with zeros at its end
	}
	l.prune()
	return nil
}

// syncPrevious syncs the last segment of the previous start, because the history contains it.
func (l *Log) syncPrevious(found *content) error {
	if found.torn {
		l.o.Log.Warn("the last lines of the journal were torn by a crash and are dropped", "file", l.dir.segment(found.number), "offset", found.length)
	}
	f, err := os.OpenFile(l.dir.segment(found.number), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := l.o.wrap(diskFile{f}).Sync(); err != nil {
		return l.failure.set(err)
	}
	return nil
}

// writeFirstSegment writes the header and the standing holds to the first segment of a start, and gives it its number.
func (l *Log) writeFirstSegment(found *content) error {
	l.appendHeader(l.firstNeeded, uint64(found.length))
	for _, hold := range l.loaded.Holds {
		size := l.appendCopy(&hold) + endRoom
		l.standing[hold.Token] = standingHold{hold, size}
		l.holdSpace += size
	}
	l.appendMark(mark{kind: syncedLine, number: uint64(l.endAt)}) // as soon as the segment has its number
	l.nextSize = l.o.Size
	size, _ := l.plan()
	l.nextSize *= 2
	err := l.fill(l.tail, size)
	if isFull(err) {
		l.o.Log.Warn("the disk is full: there is little or no space for grants", "path", l.dir)
		err = nil
	}
	for err == nil && len(l.pending) > 0 { // in pieces, see fill
		n := min(piece, len(l.pending))
		_, err = l.tail.WriteAt(l.pending[:n], l.writtenTo.Add(int64(n))-int64(n))
		l.pending = l.pending[n:]
	}
	if err == nil {
		err = l.datasync(l.tail)
	}
	if err == nil {
		err = l.assignNumber(l.tail, l.firstNeeded)
	}
	l.syncedTo.Store(l.writtenTo.Load())
	l.reserved = l.tail.header.Reserved
	return err
}

// Load implements [lock.Log].
func (l *Log) Load(ctx context.Context) (lock.Loaded, error) { return l.loaded, ctx.Err() }

// Run returns nil when ctx ends. When the log fails, it returns an error that matches ErrFailed, and the process must end.
func (l *Log) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.failure.failed:
		return fmt.Errorf("%s: %w", l.dir.segments(), l.failure.err)
	}
}

// Close writes and syncs all records, closes the log and unlocks the state directory. Further calls return the same error.
func (l *Log) Close() error { return l.closeOnce() }

func (l *Log) shutDown() error {
	close(l.stop)
	l.loops.Wait()
	l.keeping.Lock()
	defer l.keeping.Unlock()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	l.appendMark(mark{kind: closedLine, number: uint64(l.last)})
	l.mu.Unlock()
	err := l.syncLocked()
	l.writing.Lock()
	defer l.writing.Unlock()
	l.closed = true
	if l.spare != nil {
		err = errors.Join(err, l.spare.Close())
	}
	return errors.Join(err, l.target.Close(), l.exclusive.Close())
}

// Ready returns nil if the log can record a grant now: it has space, and a sync of it succeeds. Ready syncs the journal, and returns when
// the disk answers.
func (l *Log) Ready() error {
	if err := l.failure.get(); err != nil {
		return err
	}
	l.mu.Lock()
	next := l.last + 1
	l.mu.Unlock()
	if err := l.MakeRoom(context.Background(), next); err != nil {
		return err
	}
	return l.sync(l.syncedTo.Load() + 1)
}

// Size returns the size of the journal in bytes, with its history and the spare space. It leaves out files that it cannot read.
func (l *Log) Size() (bytes int64) {
	entries, _ := os.ReadDir(l.dir.segments())
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}
