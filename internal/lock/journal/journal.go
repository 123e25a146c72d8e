// Package journal is the [lock.Store] for one machine: memory, an append-only journal and, if wanted,
// a real directory for each lock.
//
// Its types: a [Store] in a state directory, made by [Open] from [Options]; [Directories], the served
// tree as far as locks need it; an [Entry] of the journal's history, read by [History].
//
// What is promised: one server per state directory. A grant that Commit returned outlives a crash of the
// server and, with Options.Durable, a power failure; tokens grow over all of them, also without it.
// The journal is the truth: after any crash the directories are made to agree with it. A directory that a
// program on the host made or removed is noticed, journaled and never mistaken for our own, as
// inode, generation and birth time tell. Nothing is ever removed but one empty directory at a time, and only that of a
// lock which ended.
//
// What is not: a release is not synced, so after a power failure (or, when the disk was full, any crash) the
// lock may stand again until its age ends, which is safe. A program on the host that removes a lock's directory
// and makes it again in the microseconds between our look and our rmdir loses its own. Where the file system tells no
// generations (ext4, XFS, Btrfs and tmpfs do), so does one that does both within the clock tick (1 to 10 ms) in
// which the lock was acquired, if the inode number is used again; where it records no births either, the inode
// number alone must do.
//
// Start reading at [Store.Commit]; line.go and parse.go are the format, reconcile.go what happens at a start.
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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// DefaultMaxSize is the size in bytes above which the journal is rotated into history.
const DefaultMaxSize = 64 << 20

// Directories is what a store needs of the served tree. Names are FTP paths such as "/locks/a", as bytes;
// links are not followed in the last element. It is for use by several goroutines.
type Directories interface {
	Mkdir(name string, perm fs.FileMode) error
	RemoveDir(name string) error // an empty directory, or an error; never a file
	Lstat(name string) (fs.FileInfo, error)
	ReadDir(name string) ([]fs.FileInfo, error) // what Lstat would say of each entry
	Chtimes(name string, atime, mtime time.Time) error
}

// Identities is what a Directories should offer besides, or else directories are told apart by the inode number
// of Lstat alone: what tells a directory from a later one of the same name. The birth is in nanoseconds
// since 1970, 0 where the file system does not record it; so is the generation. A link is not followed.
type Identities interface {
	Identity(name string) (inode uint64, birth int64, generation uint32, err error)
}

// Asides is what a Directories should offer besides, or else a lock in which there is something stands until it is empty.
type Asides interface {
	// Aside moves the directory of a lock, with all that is in it, out of everybody's way by one rename, and returns its new
	// name. of is the lock, by its holder, token that of its hold.
	Aside(name, of, by string, token uint64) (to string, err error)
}

// Steps are what a Directories with Identities may offer besides: two of its operations in one, which need fewer system calls.
type Steps interface {
	// Vacant reports whether nothing has the name and its parent is a directory. It may be wrong once after the parent has
	// gone or has been moved; a MkdirIdentity in vain sets it right.
	Vacant(name string) bool
	// MkdirIdentity is Mkdir and Identity, 0 if that could not be told.
	MkdirIdentity(name string, perm fs.FileMode) (inode uint64, birth int64, generation uint32, err error)
	// RmdirIdentity is RemoveDir if Identity says that, or else nothing: then same is false and there is no error.
	RmdirIdentity(name string, inode uint64, birth int64, generation uint32) (same bool, err error)
}

// Lists is what a Directories may offer besides, for a start with many locks.
type Lists interface {
	// Subdirectories returns the names of the directories in a directory, links to them not among them, and how many
	// entries of all kinds it has.
	Subdirectories(name string) (names []string, entries int, err error)
	// Identities calls each, with the index of the name, for each of the names in a directory that is a directory, with
	// what Identity says of it, and whether surely no other directory lies in it.
	Identities(dir string, names []string, each func(i int, inode uint64, birth int64, generation uint32, leaf bool)) error
}

// RuleFunc says under which rule a directory of that name is a lock, if it is one.
type RuleFunc func(lock.Name) (lock.Rule, bool)

// Options are what a Store is opened with.
type Options struct {
	Dir      string       // the state directory, a real path; made with mode 0700 if missing
	FS       Directories  // the served tree; nil: locks have no directories
	Root     string       // the real path of the served tree, to be watched; "": no watching
	Rules    RuleFunc     // what makes a directory made on the host a lock; nil: nothing does
	Prefixes []lock.Name  // where such directories are looked for; none: everywhere
	Clock    lock.Clock   // required
	Durable  bool         // sync each grant before Commit returns
	Log      *slog.Logger // nil: silent
	MaxSize  int64        // rotate above so many bytes; 0: DefaultMaxSize

	hooks testHooks
}

// testHooks let the tests of this package stop the store between any two steps and fail its writes.
type testHooks struct {
	step func(string)
	wrap func(journalFile) journalFile
	room int64 // in the place of roomAhead
}

// InUseError is returned by Open if another server has the state directory.
type InUseError struct{ PID string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("another ftplockd (pid %s) uses this state directory", e.PID)
}

// Store is a lock.Store in a state directory. Use Open.
type Store struct {
	o          Options
	dir        stateDir
	tree       *tree // nil without directories
	rules      atomic.Pointer[ruleSet]
	generation uint32
	exclusive  *os.File
	watched    *watched
	pump       chan struct{} // holds one element while somebody watches the tree
	closing    chan struct{} // closed by Close
	walker     walker        // used by Open, then by whoever has put the element into pump
	graves     graves
	freed      freed

	// gate is held for reading by whatever changes a record, and for writing by what needs all
	// records at rest: rotation, and Close. It guards log (the pointer), rotateAt and closed.
	gate     sync.RWMutex
	log      *log
	rotateAt int64
	closed   bool
	closeErr error

	mu        sync.Mutex
	entries   map[lock.Name]*entry
	listeners map[*listener]struct{}
}

var _ lock.Store = (*Store)(nil)

// ruleSet is what SetRules replaces.
type ruleSet struct {
	rule     RuleFunc
	prefixes []lock.Name
}

// entry is one name that has a record or is being changed.
type entry struct {
	refs   int         // who is at it; guarded by Store.mu
	mu     sync.Mutex  // held while the name is being changed
	record lock.Record // changed with mu and Store.mu held, so either is enough to read
}

// Open opens the store of a state directory, brings journal and directories into agreement and starts a new
// generation. It returns an *InUseError if another server has it, and an error with file and line if
// the journal is damaged anywhere but in a torn last line, which is cut off.
func Open(ctx context.Context, o Options) (*Store, error) {
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
		o: o, dir: dir, exclusive: locked, watched: newWatched(o),
		pump: make(chan struct{}, 1), closing: make(chan struct{}),
		entries: make(map[lock.Name]*entry), listeners: make(map[*listener]struct{}),
	}
	if o.FS != nil {
		s.tree = newTree(o.FS)
	}
	s.SetRules(o.Rules, o.Prefixes...)
	started := false
	defer func() {
		if !started {
			s.abandon()
		}
	}()
	if err := s.start(ctx); err != nil {
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
	if o.hooks.step == nil {
		o.hooks.step = func(string) {}
	}
	if o.hooks.room == 0 {
		o.hooks.room = roomAhead
	}
	if o.hooks.wrap == nil {
		o.hooks.wrap = func(f journalFile) journalFile { return f }
	}
}

// Generation returns the number of this start of the state directory: 1 for the first, and never one
// that was there before.
func (s *Store) Generation() uint32 { return s.generation }

// SetRules replaces what makes a directory made on the host a lock, and where such directories are looked for (no
// prefix: everywhere). Locks that are held keep their rules.
func (s *Store) SetRules(rules func(lock.Name) (lock.Rule, bool), prefixes ...lock.Name) {
	if rules == nil {
		rules = func(lock.Name) (lock.Rule, bool) { return lock.Rule{}, false }
	}
	if len(prefixes) == 0 {
		prefixes = []lock.Name{"/"}
	}
	s.rules.Store(&ruleSet{rule: rules, prefixes: slices.Clone(prefixes)})
}

// Close waits for the changes under way, ends every Watch, notes the last token and gives the state directory
// free. Further calls do nothing and return the same error.
func (s *Store) Close() error {
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.closed {
		return s.closeErr
	}
	s.closed = true
	s.closeErr = errors.Join(s.log.finish(s.o.Clock.Now()), s.abandon())
	return s.closeErr
}

// abandon closes what is open and writes nothing.
func (s *Store) abandon() error {
	close(s.closing)
	var errs []error
	if s.log != nil {
		errs = append(errs, s.log.file.Close())
	}
	return errors.Join(append(errs, s.watched.close(), s.exclusive.Close())...)
}

// All yields every record with at least one hold, those of one moment.
func (s *Store) All(ctx context.Context) iter.Seq2[lock.Record, error] {
	return func(yield func(lock.Record, error) bool) {
		records, err := s.snapshot()
		for i := range records {
			if err = ctx.Err(); err != nil {
				break
			}
			if !yield(clone(records[i]), nil) {
				return
			}
		}
		if err != nil {
			yield(lock.Record{}, err)
		}
	}
}

func (s *Store) snapshot() ([]lock.Record, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.gate.RUnlock()
	return s.standing(), nil
}

// standing returns the records with holds, sorted by name. Their holds are shared and not to be changed.
func (s *Store) standing() []lock.Record {
	s.mu.Lock()
	records := make([]lock.Record, 0, len(s.entries))
	for _, e := range s.entries {
		if len(e.record.Holds) > 0 {
			records = append(records, e.record)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(records, func(a, b lock.Record) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return records
}

// enter holds the gate for reading, or says that the store is closed.
func (s *Store) enter() error {
	s.gate.RLock()
	if s.closed {
		s.gate.RUnlock()
		return lock.ErrClosed
	}
	return nil
}

// lockName begins a change of the name: nobody else changes it until unlockName.
func (s *Store) lockName(name lock.Name) *entry {
	s.mu.Lock()
	e := s.entries[name]
	if e == nil {
		e = &entry{record: lock.Record{Name: name}}
		s.entries[name] = e
	}
	e.refs++
	s.mu.Unlock()
	e.mu.Lock()
	return e
}

func (s *Store) unlockName(e *entry) {
	e.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	e.refs--
	if e.refs == 0 && len(e.record.Holds) == 0 {
		delete(s.entries, e.record.Name)
	}
}

// set makes the holds the record's, under revision; none: there is no record. The caller has the name locked.
func (s *Store) set(e *entry, revision lock.Token, holds []lock.Hold) {
	if len(holds) == 0 {
		revision, holds = 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.record.Revision, e.record.Holds = revision, holds
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
func (d stateDir) history() string { return d.path("history") }

// make makes what is missing of a state directory, and makes its name last, and those of the directories above it that were
// made with it. One above that this process may not read was there before. (The names in it last when the first journal does.)
func (d stateDir) make() error {
	path, err := filepath.Abs(string(d))
	if err != nil {
		return err
	}
	there := path // what of it was there before
	for _, err := os.Lstat(there); errors.Is(err, fs.ErrNotExist) && there != "/"; _, err = os.Lstat(there) {
		there = filepath.Dir(there)
	}
	if err := os.MkdirAll(d.history(), 0o700); err != nil {
		return err
	}
	for path != "/" {
		path = filepath.Dir(path)
		if err := syncDir(path); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if len(path) <= len(there) {
			break
		}
	}
	return nil
}

// syncDir makes the names in a directory last.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
