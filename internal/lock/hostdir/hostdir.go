// Package hostdir gives each lock of a [lock.Store] a real directory, so that programs on the server's machine take part with
// mkdir, stat and rmdir.
//
// Its types: a [Store] around an [Inner] one, made by [Open] from [Options]. The directories are made through an
// afero.Fs.
//
// What is promised: the inner store is the truth; after a crash the directories are made to agree with it. A directory that a
// program on the host made or removed is noticed: when a client asks for the lock, within a second if the lock is held (a minute
// with more than 60,000 held), within about a minute elsewhere, and at a start. It is never mistaken for our own: a
// directory is told from a later one of the same name by its inode number and its time of birth. Nothing is
// removed but one empty directory at a time, and only that of a lock which ended.
//
// What is not: a birth is as coarse as the file system's clock (1 to 10 ms). A program that removes a lock's directory within the tick
// in which it was made, and makes it again, is not noticed where the file system uses the inode number again. Where births are not recorded,
// the inode number alone must do, and where neither is told (all systems but Linux) a directory that is removed and
// made again between two looks is taken for the same one. A program that removes a directory and makes it again in the
// microseconds between our look and our rmdir loses its own. All this is only as atomic as Mkdir and RemoveDir of the file system.
//
// Start reading at [Store.Commit].
package hostdir

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Inner is the store that holds the locks. Nobody else changes it.
type Inner interface {
	lock.Store
	// SetDirectory notes which directory the holds of a name have; the zero id: none. It returns a *lock.ConflictError if the
	// record is not at that revision any more. After another error the note is in memory only.
	SetDirectory(name lock.Name, revision lock.Token, id lock.DirectoryID) error
	// Sync returns when everything that was noted before lasts.
	Sync() error
	// Tombstones returns the directories of locks that were released: after a loss of power they may be there again.
	Tombstones() []lock.Tombstone
}

// Directories is what a file system needs beside [afero.Fs]. Names are FTP paths such as "/locks/a", as bytes; links are not
// followed in the last element. What Sys of a FileInfo returns may have the method Identity() (inode uint64, birth int64): what tells a
// directory from a later one of the same name.
type Directories interface {
	afero.Fs
	Lstat(name string) (fs.FileInfo, error)
	RemoveDir(name string) error // an empty directory, or an error; never a file
	// Aside moves the directory of a lock, with all that is in it, out of everybody's way by one rename, and returns its new
	// name. of is the lock, by its holder, token that of its hold.
	Aside(name, of, by string, token uint64) (to string, err error)
}

// Rules say which directories are locks. *lock.Rules are.
type Rules interface {
	// For returns the rule under which a directory of that name is a lock, if it is one.
	For(lock.Name) (lock.Rule, bool)
	// Roots returns the directories below which all locks lie; none: they may be anywhere.
	Roots() []lock.Name
}

// Options are what a Store is opened with.
type Options struct {
	Inner Inner        // required
	FS    Directories  // required: the served tree
	Clock lock.Clock   // required
	Rules Rules        // required
	Log   *slog.Logger // nil: silent
}

// Store is a lock.Store whose locks have directories. Use Open. It is for use by several goroutines.
type Store struct {
	o        Options
	inner    Inner
	tree     tree
	rules    atomic.Pointer[Rules]
	watchers lock.Watchers

	// parents has, of lock.Name, the lock.DirectoryID of the directory in which the lock's directory was last seen. Where that is
	// another one, such as a mount point whose file system was unmounted, a missing directory ends no hold.
	parents sync.Map
	looks   sync.WaitGroup // of Look

	busy sync.Map // of lock.Name: a chan struct{} that is closed when nobody changes that name any more

	walking sync.Mutex  // held by the walk under way
	pending []lock.Name // the directories that it has still to read
}

var (
	_ lock.Store  = (*Store)(nil)
	_ lock.Looker = (*Store)(nil)
)

// Open brings the inner store and the directories into agreement: a hold without its directory gets it back, what a released one
// left behind goes, and any other directory that is a lock was made on the host.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Inner == nil || o.FS == nil || o.Clock == nil || o.Rules == nil {
		return nil, errors.New("hostdir: an inner store, a file system, a clock and rules are needed")
	}
	s := newStore(o)
	return s, s.start(ctx)
}

func newStore(o Options) *Store {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{o: o, inner: o.Inner, tree: tree{o.FS}}
	s.SetRules(o.Rules)
	return s
}

// SetRules replaces what makes a directory made on the host a lock. Locks that are held keep their rules.
func (s *Store) SetRules(rules Rules) { s.rules.Store(&rules) }

// Get implements lock.Store. It does not look at the directory.
func (s *Store) Get(ctx context.Context, name lock.Name) (lock.Record, error) {
	return s.inner.Get(ctx, name)
}

// All implements lock.Store.
func (s *Store) All(ctx context.Context) iter.Seq2[lock.Record, error] { return s.inner.All(ctx) }

// Close ends every Watch, and waits for every Look. The inner store and the file system are the caller's to close.
func (s *Store) Close() {
	s.watchers.Close()
	s.looks.Wait()
}

// lock begins a change of a name, which one goroutine makes at a time. The caller calls unlock when it is over.
func (s *Store) lock(name lock.Name) (unlock func()) {
	for {
		unlock, busy := s.tryLock(name)
		if busy == nil {
			return unlock
		}
		<-busy
	}
}

// tryLock is lock that does not wait. While somebody else changes the name it returns what is closed when that is over.
func (s *Store) tryLock(name lock.Name) (unlock func(), busy <-chan struct{}) {
	done := make(chan struct{})
	if other, busy := s.busy.LoadOrStore(name, done); busy {
		return nil, other.(chan struct{})
	}
	return func() {
		s.busy.Delete(name)
		close(done)
	}, nil
}
