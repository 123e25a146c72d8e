// Package journal is the log of one machine: files of JSON lines in a state directory.
//
// Its types: a [Log], opened with [Options]; its history is read by [History]; a [Stopped] one is moved to another log, or from there.
//
// It guarantees: one server uses a state directory at a time. A record that Wait returned for survives the end of the process; with
// Options.Durable and durable it survives a loss of power. Tokens grow over both, also without Durable. A full disk refuses
// grants and nothing else: the space for the end of every hold is filled with zeros before. A start writes what stands to a new segment and syncs it.
//
// It does not guarantee: a release is not synced, so after a loss of power the lock may stand again until its age ends, which is safe.
// File systems that write to a new place each time (Btrfs, ZFS) may refuse to overwrite zeros on a full disk: the log tries again until
// there is space, and the release waits. After any other failed write, or a failed sync, nobody can say what is on the disk: [Log.Run]
// returns [ErrFailed], and the process must end.
//
// The files are journal/NUMBER.jsonl, called segments. Start reading at [Log.Append] and [Log.Wait]; line.go is the format.
package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// DefaultMaxSize is the size in bytes at which a segment is full.
const DefaultMaxSize = 16 << 20

// Options are what a Log is opened with.
type Options struct {
	Dir         string              // the state directory, a real path; made with mode 0700 if missing
	Clock       lock.Clock          // required
	BootID      string              // identifies this boot of the machine; "": each start counts as another boot
	Durable     bool                // Wait syncs if its caller asks for that
	Log         *slog.Logger        // nil: silent
	MaxSize     int64               // a segment is full at so many bytes; 0: DefaultMaxSize
	HistoryAge  time.Duration       // old segments go when their last line is older; 0: never
	HistorySize int64               // the oldest segments go when all old ones have more bytes; 0: any size
	Synced      func(time.Duration) // is called with the duration of each sync; may be nil

	wrap func(file) file // tests make the disk fail
}

// Log is a lock.Log in a state directory. Use Open. It is for use by several goroutines.
type Log struct {
	o         Options
	dir       stateDir
	exclusive *os.File
	loaded    lock.Loaded
	failure   *failure
	stop      chan struct{} // closed by Close
	loops     sync.WaitGroup
	close     func() error

	records // what is in memory

	written atomic.Int64 // the position up to which records are written
	synced  atomic.Int64 // and synced
	stuck   atomic.Bool  // a write found the disk full, and is tried again

	writing sync.Mutex // held for writes, never for syncs but the last of a segment
	out     []byte     // what is being written
	target  *segment   // where out goes
	over    bool       // the log is closed

	rounds  // syncs
	upkeep  // space, tokens and segments
	flushes chan struct{}
}

var (
	_ lock.Log      = (*Log)(nil)
	_ lock.Rewriter = (*Log)(nil)
	_ lock.History  = (*Log)(nil)
)

// Open opens the log of a state directory, and begins a new segment and a new start of the server. It returns an error if
// another server uses the directory, one that names file and line if the journal is damaged anywhere but at its end, where a crash can
// tear a line, and one that matches ErrFailed if the disk refuses to sync.
func Open(o Options) (*Log, error) {
	if o.Clock == nil || o.Dir == "" {
		return nil, errors.New("journal: a state directory and a clock are needed")
	}
	o.setDefaults()
	l := &Log{o: o, dir: stateDir(o.Dir), stop: make(chan struct{}), flushes: make(chan struct{}, 1)}
	l.failure = &failure{over: make(chan struct{}), mark: l.dir.distrust()}
	l.wanted, l.rewrites, l.attempt = make(chan struct{}, 1), make(chan struct{}, 1), newRound()
	l.close = sync.OnceValue(l.end)
	if err := l.dir.make(); err != nil {
		return nil, err
	}
	var err error
	if l.exclusive, err = exclusive(l.dir.path("lock")); err != nil {
		return nil, err
	}
	if err := l.start(); err != nil {
		return nil, errors.Join(err, l.exclusive.Close())
	}
	l.loops.Go(l.flush)
	l.loops.Go(l.keepUp)
	signal(l.wanted)
	return l, nil
}

func (o *Options) setDefaults() {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxSize <= 0 {
		o.MaxSize = DefaultMaxSize
	}
	if o.Synced == nil {
		o.Synced = func(time.Duration) {}
	}
	if o.wrap == nil {
		o.wrap = func(f file) file { return f }
	}
}

// start reads what there is, and writes the holds that stand to a new segment. All of it is synced before the segment gets its number,
// so until then the next start finds everything as it was.
func (l *Log) start() error {
	if err := l.dir.checkHere(); err != nil {
		return err
	}
	found, err := l.dir.read(l.o.Clock.Exact(), l.o.BootID)
	if err == nil && found.number > 0 {
		err = l.settle(found)
	}
	if err != nil {
		return err
	}
	l.loaded = found.loaded()
	l.loaded.Start++
	s, err := l.begin(found)
	if full(err) {
		return fmt.Errorf("%s: no space for a new journal: free some space and start again; nothing is lost: %w", l.dir, bare(err))
	}
	if err != nil {
		return err
	}
	l.target, l.tail = s, s
	_ = os.Remove(l.dir.distrust())
	if old := l.dir.segment(found.number); found.number > 0 && !found.events {
		_ = os.Remove(old)
	} else if found.number > 0 {
		_ = os.Truncate(old, found.length) // history reads it as well with zeros at its end
	}
	l.prune()
	return nil
}

// settle syncs the last segment of the start before, since the history needs it.
func (l *Log) settle(found *content) error {
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

// begin makes the first segment of a start.
func (l *Log) begin(found *content) (*segment, error) {
	number := found.number + 1
	path := l.dir.segment(number)
	if _, err := os.Lstat(l.dir.begun()); err != nil && os.Rename(path, l.dir.begun()) == nil { // zeros, which help on a full disk
		if err := syncDir(l.dir.segments()); err != nil { // a loss of power must not give it its number back with a part of its lines
			return nil, l.failure.set(err)
		}
	}
	s, err := l.openSegment(l.dir.begun(), number)
	if err != nil {
		return nil, err
	}
	err = l.writeFirst(s, found.length)
	if err == nil {
		err = os.Rename(s.path, path)
	}
	if err == nil {
		err = syncDir(l.dir.segments())
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.path = path
	return s, nil
}

// writeFirst writes the header and the holds that stand, fills some space, and syncs all of it.
func (l *Log) writeFirst(s *segment, length int64) error {
	now := l.o.Clock.Exact()
	l.last, l.reserved = l.loaded.Last, l.loaded.Last+tokenBlock
	l.stands = make(map[lock.Token]int32)
	l.from = s.number
	s.header = header{
		Version: version, Start: l.loaded.Start, Boot: l.o.BootID, At: now, Last: l.last, Reserved: l.reserved,
		From: s.number, Length: uint64(length),
	}
	l.coder.append(&line{kind: head, number: s.number, header: s.header})
	for _, hold := range l.loaded.Holds {
		l.add(&lock.Record{Kind: lock.Granted, Cause: lock.CauseRewrite, Hold: hold, By: hold.Owner, At: now})
	}
	l.coder.append(&line{kind: synced, number: uint64(len(l.coder.b))}) // as soon as the segment has its number
	if err := writeAll(s, l.coder.b); err != nil {
		return err
	}
	end := int64(len(l.coder.b))
	s.zeroed = max(s.zeroed, end)
	if err := l.fill(s, end+l.needed(0)); full(err) {
		l.o.Log.Warn("the disk is full: no space is left for grants", "path", l.dir)
	} else if err != nil {
		return err
	}
	if err := l.datasync(s); err != nil {
		return err
	}
	l.coder.b = l.coder.b[:0]
	l.endAt = lock.Position(end)
	l.written.Store(end)
	l.synced.Store(end)
	return nil
}

// writeAll writes to the begin of a segment. For later syncs it writes pieces, see fill.
func writeAll(s *segment, b []byte) error {
	for at := 0; at < len(b); at += piece {
		if _, err := s.WriteAt(b[at:min(at+piece, len(b))], int64(at)); err != nil {
			return err
		}
	}
	return nil
}

// Load implements [lock.Log].
func (l *Log) Load(ctx context.Context) (lock.Loaded, error) { return l.loaded, ctx.Err() }

// Run waits until ctx ends, and then returns nil, or until the log has failed, and then returns an error that matches ErrFailed. The
// process must end then.
func (l *Log) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.failure.over:
		return fmt.Errorf("%s: %w", l.dir.segments(), l.failure.err)
	}
}

// Close writes and syncs everything, ends the log and gives the state directory back. Further calls return the same error.
func (l *Log) Close() error { return l.close() }

func (l *Log) end() error {
	close(l.stop)
	l.loops.Wait()
	l.takeSyncs()
	l.syncers.Wait()
	l.mu.Lock()
	l.appendOwn(closing, uint64(l.last))
	l.mu.Unlock()
	err := l.syncOnce()
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.over = true; err == nil {
		err = l.target.Truncate(l.written.Load() - int64(l.target.base))
	}
	if l.spare != nil {
		err = errors.Join(err, l.spare.Close())
	}
	l.endSyncs()
	return errors.Join(err, l.target.Close(), l.exclusive.Close())
}
