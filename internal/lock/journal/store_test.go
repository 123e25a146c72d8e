package journal

import (
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
