// Package journal is the [lock.Store] for one machine: memory, and a log of JSON lines in a state directory.
//
// Its types: a [Store] in a state directory, made by [Open] from [Options]; its history is read by [History]; a [Stopped] one is moved to
// another store, or from there.
//
// What is promised: one server per state directory. A grant that Commit returned outlives a crash of the server and,
// with Options.Durable, a power failure. A release that Commit returned outlives a crash of the server. Tokens grow over all
// of them, also without Durable. A full disk refuses grants and nothing else: room for the releases of the locks that are held
// is kept in the file. A start writes a new file, whole, and syncs it, so that nothing is trusted which is in the
// system's memory only.
//
// What is not: a release is not synced, so after a power failure the lock may stand again until its age ends, which is safe.
// On a file system that writes to a new place each time (Btrfs, ZFS) room that is kept is no promise: a release may be refused
// there when the disk is full, and the lock stands. After a sync that failed, or a write that left it unknown what is in the file,
// the store refuses everything and [Store.Run] returns [ErrFailed]: the process must end, and the next start goes by what is on the disk.
//
// Start reading at [Store.Commit]; line.go and coder.go are the format, rotate.go how a file begins and ends.
package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// room returns how many bytes of zeros a journal has ahead of its last line, or more.
func (o *Options) room() int64 { return max(1<<10, o.MaxSize/64) }

// DefaultMaxSize is the size in bytes above which the live file is rotated into history.
const DefaultMaxSize = 16 << 20

// Options are what a Store is opened with.
type Options struct {
	Dir         string              // the state directory, a real path; made with mode 0700 if missing
	Clock       lock.Clock          // required
	Durable     bool                // sync each grant before Commit returns
	Log         *slog.Logger        // nil: silent
	MaxSize     int64               // rotate above so many bytes; 0: DefaultMaxSize
	HistoryAge  time.Duration       // files in history go when their last line is older; 0: never
	HistorySize int64               // the oldest files in history go when all have more bytes; 0: any size
	Synced      func(time.Duration) // is told how long each sync took; nil: nobody

	wrap func(journalFile) journalFile // by which the tests of this package fail its writes
}

// Store is a lock.Store in a state directory. Use Open. It is for use by several goroutines.
type Store struct {
	o          Options
	dir        stateDir
	generation uint32
	exclusive  *os.File
	closing    chan struct{} // closed by Close
	failure    *failure

	// mu is held while a line is written, so that the lines have the order of their tokens. It is not held while a grant is
	// synced, but it is for the sync of a block of tokens (one in 4,096 changes) and for a rotation.
	mu         sync.Mutex
	records    map[lock.Name]lock.Record
	tombstones tombstones
	log        *log
	next       lock.Token   // the next token
	reserved   lock.Token   // tokens above it must not be given yet
	rotateAt   int64        // the size of the live file above which it is rotated
	begun      lock.Instant // when the live file was
	eventful   bool         // the live file has lines for the history
	closed     bool
	closeErr   error
}

var (
	_ lock.Store        = (*Store)(nil)
	_ lock.Publications = (*Store)(nil)
)

// Open opens the store of a state directory and begins a new file and a new generation. It returns an error if
// another server has the directory, one with file and line if the journal is damaged anywhere but at its end, where a crash can
// have cut a line off, and one that matches ErrFailed if the disk refuses to sync.
func Open(o Options) (*Store, error) {
	if o.Clock == nil || o.Dir == "" {
		return nil, errors.New("journal: a state directory and a clock are needed")
	}
	o.setDefaults()
	dir := stateDir(o.Dir)
	if err := dir.make(); err != nil {
		return nil, err
	}
	locked, err := exclusive(dir.path("lock"))
	if err != nil {
		return nil, err
	}
	s := &Store{
		o: o, dir: dir, exclusive: locked, failure: &failure{over: make(chan struct{})}, closing: make(chan struct{}),
		records: make(map[lock.Name]lock.Record), tombstones: make(tombstones),
	}
	started := false
	defer func() {
		if !started {
			s.exclusive.Close()
		}
	}()
	if err := s.start(); err != nil {
		return nil, err
	}
	started = true
	return s, nil
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
		o.wrap = func(f journalFile) journalFile { return f }
	}
}

// Generation returns the number of this start of the state directory: 1 for the first, and never one that was there before.
func (s *Store) Generation() uint32 { return s.generation }

// Run waits until ctx ends, and then returns nil, or until the store has failed, and then returns why: an error that matches
// ErrFailed. The process must end then.
func (s *Store) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.failure.over:
		return fmt.Errorf("%s: %w", s.dir.journal(), s.failure.err)
	}
}

// Close ends every Watch, syncs what is written and gives the state directory free. Further calls do nothing and return the same
// error.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.closeErr
	}
	s.closed = true
	close(s.closing)
	s.closeErr = errors.Join(s.log.finish(), s.exclusive.Close())
	return s.closeErr
}

// Get implements [lock.Store].
func (s *Store) Get(ctx context.Context, name lock.Name) (lock.Record, error) {
	if err := ctx.Err(); err != nil {
		return lock.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return lock.Record{}, lock.ErrClosed
	}
	record := s.records[name]
	record.Name = name
	return clone(record), nil
}

// All yields every record with at least one hold, those of one moment, sorted by name.
func (s *Store) All(ctx context.Context) iter.Seq2[lock.Record, error] {
	return func(yield func(lock.Record, error) bool) {
		s.mu.Lock()
		all, closed := sorted(s.records), s.closed
		s.mu.Unlock()
		if closed {
			yield(lock.Record{}, lock.ErrClosed)
			return
		}
		for _, record := range all {
			if err := ctx.Err(); err != nil {
				yield(lock.Record{}, err)
				return
			}
			if !yield(clone(record), nil) {
				return
			}
		}
	}
}

// sorted returns the records, sorted by name. Their holds are shared and not to be changed.
func sorted(records map[lock.Name]lock.Record) []lock.Record {
	all := make([]lock.Record, 0, len(records))
	for _, record := range records {
		all = append(all, record)
	}
	slices.SortFunc(all, func(a, b lock.Record) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all
}

// Watch yields nothing, since nobody else changes the store. It returns when ctx ends or the store is closed.
func (s *Store) Watch(ctx context.Context) iter.Seq[lock.Event] {
	return func(func(lock.Event) bool) {
		select {
		case <-ctx.Done():
		case <-s.closing:
		}
	}
}

// clone copies the holds, so that neither side can change what the other one keeps.
func clone(record lock.Record) lock.Record {
	record.Holds = slices.Clone(record.Holds)
	return record
}

// stateDir is the real path of a state directory.
type stateDir string

func (d stateDir) path(elements ...string) string {
	return filepath.Join(append([]string{string(d)}, elements...)...)
}

func (d stateDir) journal() string { return d.path("journal.jsonl") }
func (d stateDir) archive() string { return d.path("history") }

// temporary is where a new journal is written. It is nothing until it is renamed.
func (d stateDir) temporary() string { return d.path("journal.new") }

// make makes what is missing of a state directory, and makes its name last, and those of the directories above it, which may have been
// made with it. What this process may not read, or what cannot be synced, was there before. (The names in it last when the first journal does.)
func (d stateDir) make() error {
	if err := os.MkdirAll(d.archive(), 0o700); err != nil {
		return err
	}
	path, err := filepath.Abs(string(d))
	for above := filepath.Dir(path); err == nil && above != path; path, above = above, filepath.Dir(above) {
		err = syncDir(above)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EROFS) {
			err = nil
		}
	}
	return err
}

// syncDir makes the names in a directory last. Windows has no such call: there a loss of power right after a rename can bring the
// old name back.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
