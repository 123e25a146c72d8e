package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestStorePassesTheSuite(t *testing.T) {
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable=%v", durable), func(t *testing.T) {
			locktest.TestStore(t, func(t *testing.T) lock.Store {
				s := newScene(t)
				s.options = func(o *Options) { o.Durable = durable }
				return s.mustOpen()
			})
		})
	}
}

func TestASecondServerIsRefused(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	_, err := s.open()
	if want := fmt.Sprintf("another ftplockd (pid %d) uses this state directory", os.Getpid()); err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	s.mustOpen()
}

// powerFailure crashes the store and takes from the journal what was never synced.
func (s *scene) powerFailure(store *Store) {
	s.Helper()
	synced := store.log.synced
	s.crash(store)
	if err := os.Truncate(stateDir(s.state).journal(), synced); err != nil {
		s.Fatal(err)
	}
}

func TestTokensGrowOverPowerFailuresAlsoWithoutSync(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.Durable, o.MaxSize = false, DefaultMaxSize }
	var last lock.Token
	for _, n := range []int{10, 10, tokenBlock + 10, 10} {
		store := s.mustOpen()
		for range n {
			token := s.Acquire(store, "/a_lock", "ada")
			if token <= last {
				t.Fatalf("token %d after %d", token, last)
			}
			last = token
			s.Release(store, "/a_lock", token)
		}
		s.powerFailure(store)
	}
}

func TestAClosedStoreRefuses(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for range store.Watch(context.Background()) {
			t.Error("an event")
		}
	}()
	if err := errors.Join(store.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	<-watched
	if _, err := s.Commit(store, "/a_lock", 0, s.Hold("ada")); !errors.Is(err, lock.ErrClosed) {
		t.Errorf("Commit: %v", err)
	}
	for _, err := range store.All(context.Background()) {
		if !errors.Is(err, lock.ErrClosed) {
			t.Errorf("All: %v", err)
		}
	}
}

func TestNamesThatCannotBeLocksAreRefused(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	for _, name := range []lock.Name{"", "/", "a", "/a/", "//a", "/a/../b", "/.", "/a/."} {
		if _, err := s.Commit(store, name, 0, s.Hold("ada")); !errors.Is(err, errName) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestDirectoriesAndTombstonesAreRemembered(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	id := lock.DirectoryID{Inode: 5, Birth: 7}
	a, b := s.Acquire(store, "/a_lock", "ada"), s.Acquire(store, "/b_lock", "ada")
	for name, token := range map[lock.Name]lock.Token{"/a_lock": a, "/b_lock": b} {
		if err := store.SetDirectory(name, token, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.SetDirectory("/a_lock", b, lock.DirectoryID{}); !errors.Is(err, lock.ErrConflict) {
		t.Errorf("of another revision: %v", err)
	}
	s.Release(store, "/b_lock", b)
	for range 3 {
		if got, err := store.Get(t.Context(), "/a_lock"); err != nil || got.Revision != a || directory(got) != id {
			t.Errorf("got %+v", got)
		}
		if got := store.Tombstones(); len(got) != 1 || got[0].Name != "/b_lock" || got[0].Directory != id || got[0].At.Wall.IsZero() {
			t.Errorf("tombstones %+v", got)
		}
		s.crash(store)
		store = s.mustOpen()
	}
	s.Acquire(store, "/b_lock", "ada")
	if got := store.Tombstones(); len(got) != 0 {
		t.Errorf("of a held lock: %+v", got)
	}
}

func TestTheNewestTombstonesAreKept(t *testing.T) {
	all := make(tombstones)
	for i := range 2*maxTombstones + 10 {
		all.add(lock.Tombstone{Name: lock.Name(fmt.Sprint(i)), Token: lock.Token(i), Directory: lock.DirectoryID{Inode: 1}})
	}
	all.prune()
	if got := all.sorted(); len(got) != maxTombstones || got[0].Name != lock.Name(fmt.Sprint(maxTombstones+10)) {
		t.Errorf("%d, from %s", len(got), got[0].Name)
	}
}

// A state directory that a server of the version before has left is read.
func TestAStateDirectoryOfTheVersionBeforeIsRead(t *testing.T) {
	s := newScene(t)
	if err := os.CopyFS(s.state, os.DirFS("testdata/before")); err != nil {
		t.Fatal(err)
	}
	store := s.mustOpen()
	if got := s.HeldBy(store, "/locks/a", "ftp"); got.Revision == 0 || got.Holds[0].Directory.Inode == 0 {
		t.Errorf("got %+v", got)
	}
	s.HeldBy(store, "/locks/b", "ftp")
	s.HeldBy(store, "/locks/released", "")
	if len(store.Tombstones()) == 0 {
		t.Error("it has forgotten the directories of released locks")
	}
	if got := s.causes("/locks/released"); len(got) < 2 {
		t.Errorf("history %q", got)
	}
	if store.Generation() < 2 {
		t.Errorf("generation %d", store.Generation())
	}
}
