package journal

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// A tree that offers these in another form would be taken for one without.
var (
	_ Directories = (*files.Tree)(nil)
	_ Identities  = (*files.Tree)(nil)
)

// lookedAt is a served tree in which something happens right after a start has looked at a directory.
type lookedAt struct {
	*hostTree
	after func()
}

func (l lookedAt) Identities(dir string, names []string, each func(int, uint64, int64, uint32, bool)) error {
	err := l.hostTree.Identities(dir, names, each)
	l.after()
	return err
}

func TestWhatHappensWhileAStartLooksIsNoticed(t *testing.T) {
	s := newScene(t)
	s.mkdir("/locks")
	store := s.mustOpen()
	s.acquire(store, "/locks/a", "ada")
	s.crash(store)
	s.options = func(o *Options) { o.FS = lookedAt{s.tree, func() { s.rmdir("/locks/a") }} }
	store = s.mustOpen()
	next := s.watch(store)
	if event := next("/locks/a"); event.Cause != lock.CauseHostGone {
		t.Errorf("got %+v", event)
	}
}

func TestALockMadeOnTheHostWithinAHeldOneIsFoundAtAStart(t *testing.T) {
	s := newScene(t)
	s.mkdir("/locks")
	store := s.mustOpen()
	s.acquire(store, "/locks/a", "ada")
	s.acquire(store, "/locks/b", "ada")
	s.crash(store)
	s.mkdir("/locks/a/within")
	s.mkdir("/locks/made")
	store = s.mustOpen()
	s.heldBy(store, "/locks/a", "ada")
	s.heldBy(store, "/locks/b", "ada")
	s.heldBy(store, "/locks/a/within", lock.HostAccount)
	s.heldBy(store, "/locks/made", lock.HostAccount)
}

// TestAStartWithManyLocksMissesNone has more locks than one worker looks at in one go, in a tree that offers Lists and in
// one that does not.
func TestAStartWithManyLocksMissesNone(t *testing.T) {
	for _, lists := range []bool{true, false} {
		s := newScene(t)
		s.options = func(o *Options) {
			o.Durable = false
			if !lists {
				o.FS = struct {
					Directories
					Identities
				}{s.tree, s.tree}
			}
		}
		s.mkdir("/locks")
		store := s.mustOpen()
		const n = 2*glanceAt + 1
		name := func(i int) lock.Name { return lock.Name(fmt.Sprintf("/locks/%d", i)) }
		for i := range n {
			s.acquire(store, name(i), "ada")
		}
		before := s.records(store)
		s.crash(store)
		for i := range n {
			switch i % 100 {
			case 3:
				s.replaceOnHost(string(name(i)))
			case 5:
				s.rmdir(string(name(i)))
			}
		}
		store = s.mustOpen()
		after := s.records(store)
		for i := range n {
			record := after[name(i)]
			switch i % 100 {
			case 3:
				if len(record.Holds) != 1 || !record.Holds[0].Host() {
					t.Errorf("replaced: %+v", record)
				}
			case 5:
				s.hasDirectory(string(name(i)), true)
				fallthrough
			default:
				if record.Revision != before[name(i)].Revision {
					t.Errorf("%s is at %d, was at %d", name(i), record.Revision, before[name(i)].Revision)
				}
			}
		}
	}
}

// TestADirectoryReplacedWithinOneTickIsNoticed removes and makes a held lock's directory at once, as often as not with the
// inode number and the birth that it had.
func TestADirectoryReplacedWithinOneTickIsNoticed(t *testing.T) {
	s := newScene(t)
	if s.mkdir("/probe"); s.identity("/probe").Generation == 0 {
		t.Skip("the file system tells no generations")
	}
	store := s.mustOpen()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := store.Watch(ctx)
	want, alike := make(map[lock.Name]bool), 0
	for i := range 200 {
		name := lock.Name(fmt.Sprintf("/%d_lock", i))
		want[name] = true
		s.acquire(store, name, "ada")
		before := s.identity(string(name))
		s.rmdir(string(name))
		s.mkdir(string(name))
		if after := s.identity(string(name)); before.Inode == after.Inode && before.Birth == after.Birth {
			alike++
		}
	}
	t.Logf("%d of 200 had the same inode number and birth", alike)
	defer time.AfterFunc(time.Second, cancel).Stop()
	for event := range events {
		if event.Cause == lock.CauseHostMade {
			delete(want, event.Record.Name)
		}
		if len(want) == 0 {
			break
		}
	}
	if len(want) > 0 {
		t.Errorf("%d were not noticed within a second", len(want))
	}
}

func TestAnIDWithoutAGenerationFitsEvery(t *testing.T) {
	seen := sight{found: true, directory: true, id: lock.DirectoryID{Inode: 1, Birth: 50, Generation: 7}}
	for _, c := range []struct {
		known lock.DirectoryID
		want  bool
	}{
		{lock.DirectoryID{Inode: 1, Birth: 50, Generation: 7}, true},
		{lock.DirectoryID{Inode: 1, Birth: 50}, true}, // noted before there were generations
		{lock.DirectoryID{Inode: 1, Birth: 50, Generation: 8}, false},
		{lock.DirectoryID{Inode: 1, Birth: 51, Generation: 7}, false},
	} {
		if got := seen.is(c.known); got != c.want {
			t.Errorf("%+v: %v", c.known, got)
		}
	}
}

func TestADirectoryThatIsMadeAgainIsWatchedAgain(t *testing.T) {
	s := newScene(t)
	s.mkdir("/locks")
	store := s.mustOpen()
	s.acquire(store, "/locks/g", "ada")
	s.acquire(store, "/locks/g/m", "ada")
	s.crash(store)
	s.rmdir("/locks/g/m")
	s.rmdir("/locks/g")
	store = s.mustOpen()
	next := s.watch(store)
	s.rmdir("/locks/g/m")
	if event := next("/locks/g/m"); event.Cause != lock.CauseHostGone {
		t.Errorf("got %+v", event)
	}
}
