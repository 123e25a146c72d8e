package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// asideTree can move what is in a lock aside, as the served tree does.
type asideTree struct {
	stepTree
	fail error
}

var _ Asides = (*asideTree)(nil)

func (a *asideTree) Aside(name, of, by string, token uint64) (string, error) {
	if a.fail != nil {
		return "", &fs.PathError{Op: "rename", Path: a.real(name), Err: a.fail}
	}
	to := "/aside" + strings.ReplaceAll(of, "/", "-") + "-of-" + by
	return to, os.Rename(a.real(name), a.real(to))
}

// newAsideScene is newScene with a tree that moves things aside.
func newAsideScene(t *testing.T) (*scene, *asideTree) {
	s := newScene(t)
	tree := &asideTree{stepTree: stepTree{s.tree}}
	s.options = func(o *Options) { o.FS = tree }
	return s, tree
}

// end ends all holds of the name for that cause.
func (s *scene) end(store *Store, name lock.Name, revision lock.Token, cause lock.Cause) error {
	_, err := store.Commit(s.Context(), lock.Change{Name: name, If: revision, Cause: cause, By: ada, Note: "because"})
	return err
}

// wantHost checks what a file holds.
func (s *scene) wantFile(name string, want bool) {
	s.Helper()
	if s.exists(name) != want {
		s.Errorf("%s exists: %v, want %v", name, !want, want)
	}
}

// notes are the notes of a lock's history.
func (s *scene) notes(name lock.Name) string {
	s.Helper()
	var notes []string
	for entry, err := range History(s.state, name) {
		if err != nil {
			s.Fatal(err)
		}
		notes = append(notes, string(entry.Cause)+": "+entry.Note)
	}
	return strings.Join(notes, "\n")
}

func TestWhatIsInALockThatIsTakenAwayIsMovedAside(t *testing.T) {
	for _, cause := range []lock.Cause{lock.CauseExpire, lock.CauseIdle, lock.CauseBreak, lock.CauseDisconnect, lock.CauseUndeliver} {
		t.Run(string(cause), func(t *testing.T) {
			s, _ := newAsideScene(t)
			store := s.mustOpen()
			token := s.acquire(store, "/a_lock", "ada")
			s.write("/a_lock/file")
			if err := s.end(store, "/a_lock", token, cause); err != nil {
				t.Fatal(err)
			}
			s.heldBy(store, "/a_lock", "")
			s.hasDirectory("/a_lock", false)
			s.wantFile("/aside-a_lock-of-ada/file", true)
			if got := s.notes("/a_lock"); !strings.Contains(got, string(cause)+": because left over: /aside-a_lock-of-ada") {
				t.Errorf("history: %s", got)
			}
			next := s.acquire(store, "/a_lock", "ben") // at once
			s.wantFile("/a_lock/file", false)
			s.crash(store)
			store = s.mustOpen()
			s.heldBy(store, "/a_lock", "ben")
			s.release(store, "/a_lock", next)
			s.wantFile("/aside-a_lock-of-ada/file", true)
		})
	}
}

func TestAnEmptyLockThatIsTakenAwayLeavesNothing(t *testing.T) {
	s, _ := newAsideScene(t)
	store := s.mustOpen()
	token := s.acquire(store, "/a_lock", "ada")
	if err := s.end(store, "/a_lock", token, lock.CauseExpire); err != nil {
		t.Fatal(err)
	}
	s.hasDirectory("/a_lock", false)
	s.hasDirectory("/aside-a_lock-of-ada", false)
	if got := s.notes("/a_lock"); !strings.HasSuffix(got, "expire: because") {
		t.Errorf("history: %s", got)
	}
}

func TestALockWithSomethingInItIsNotGivenBack(t *testing.T) {
	s, _ := newAsideScene(t)
	store := s.mustOpen()
	token := s.acquire(store, "/a_lock", "ada")
	s.write("/a_lock/file")
	if _, err := s.commit(store, "/a_lock", token); !errors.Is(err, lock.ErrNotEmpty) {
		t.Errorf("got %v", err)
	}
	s.heldBy(store, "/a_lock", "ada")
	s.wantFile("/a_lock/file", true)
	if err := os.Remove(s.tree.real("/a_lock/file")); err != nil {
		t.Fatal(err)
	}
	s.release(store, "/a_lock", token)
	s.hasDirectory("/a_lock", false)
}

func TestALockWhoseContentCannotBeMovedAsideStands(t *testing.T) {
	s, tree := newAsideScene(t)
	store := s.mustOpen()
	token := s.acquire(store, "/a_lock", "ada")
	s.write("/a_lock/file")
	tree.fail = syscall.EROFS
	if err := s.end(store, "/a_lock", token, lock.CauseExpire); !errors.Is(err, syscall.EROFS) || strings.Contains(err.Error(), s.tree.root) {
		t.Errorf("got %v", err)
	}
	s.heldBy(store, "/a_lock", "ada")
	tree.fail = nil
	if err := s.end(store, "/a_lock", token, lock.CauseExpire); err != nil {
		t.Error(err)
	}
	s.wantFile("/aside-a_lock-of-ada/file", true)
	s.options = nil // a tree that cannot
	store = s.restart(store)
	token = s.acquire(store, "/b_lock", "ada")
	s.write("/b_lock/file")
	if err := s.end(store, "/b_lock", token, lock.CauseBreak); !errors.Is(err, lock.ErrNotEmpty) {
		t.Errorf("got %v", err)
	}
	s.wantFile("/b_lock/file", true)
}

// A directory called combination-lock with pictures in it must not vanish.
func TestADirectoryWithSomethingInItIsNobodysLock(t *testing.T) {
	s, _ := newAsideScene(t)
	s.mkdir("/locks")
	s.options = func(o *Options) { o.Prefixes = []lock.Name{"/locks"} }
	nobodys := func(store *Store, name lock.Name) {
		t.Helper()
		if _, err := s.commit(store, name, 0, s.hold("ada")); !errors.Is(err, lock.ErrOccupied) {
			t.Errorf("MKD: %v", err)
		}
		store.check(name)
		if _, err := store.Commit(t.Context(), lock.Change{Name: name, Cause: lock.CauseRelease}); err != nil {
			t.Errorf("a look: %v", err)
		}
		if err := store.walk(t.Context(), 100, nil); err != nil {
			t.Error(err)
		}
		s.heldBy(store, name, "")
		s.wantFile(string(name)+"/picture", true)
	}
	s.mkdir("/locks/before")
	s.write("/locks/before/picture")
	store := s.mustOpen()
	nobodys(store, "/locks/before")
	s.acquire(store, "/locks/held", "ada") // so /locks is watched
	s.watch(store)
	s.eventually(func() bool { return len(store.pump) == 1 })
	made := filepath.Join(t.TempDir(), "made")
	if err := os.Mkdir(made, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(made, "picture"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(made, s.tree.real("/locks/after")); err != nil {
		t.Fatal(err)
	}
	s.mkdir("/locks/empty")
	s.eventually(func() bool { return s.records(store)["/locks/empty"].Name != "" }) // so the other was seen, too
	nobodys(store, "/locks/after")
	if got := s.notes("/locks/after"); got != "" {
		t.Errorf("in the journal: %s", got)
	}
}

func TestADirectoryIsALockAgainWhenItIsEmpty(t *testing.T) {
	s, _ := newAsideScene(t)
	s.mkdir("/a_lock")
	s.write("/a_lock/file")
	store := s.mustOpen()
	s.heldBy(store, "/a_lock", "")
	if err := os.Remove(s.tree.real("/a_lock/file")); err != nil {
		t.Fatal(err)
	}
	_, err := s.commit(store, "/a_lock", 0, s.hold("ada"))
	s.conflict(err, lock.HostAccount)
}

func TestALockOfTheHostThatGotSomethingEndsUntouched(t *testing.T) {
	s, _ := newAsideScene(t)
	s.mkdir("/a_lock")
	store := s.mustOpen()
	record := s.heldBy(store, "/a_lock", lock.HostAccount)
	s.write("/a_lock/file")
	s.clock.advance(time.Hour)
	if err := s.end(store, "/a_lock", record.Revision, lock.CauseExpire); err != nil {
		t.Fatal(err)
	}
	s.heldBy(store, "/a_lock", "")
	s.wantFile("/a_lock/file", true)
	if got := s.notes("/a_lock"); !strings.HasSuffix(got, "its directory is not empty and stays") {
		t.Errorf("history: %s", got)
	}
	if _, err := s.commit(store, "/a_lock", 0, s.hold("ada")); !errors.Is(err, lock.ErrOccupied) {
		t.Errorf("got %v", err)
	}
	store = s.restart(store)
	s.heldBy(store, "/a_lock", "")
	s.wantFile("/a_lock/file", true)
}

// Who emptied it since wants to keep the directory, as far as anybody knows.
func TestADirectoryThatTheHostKeptIsNotRemovedAtAStart(t *testing.T) {
	s, _ := newAsideScene(t)
	s.mkdir("/a_lock")
	store := s.mustOpen()
	record := s.heldBy(store, "/a_lock", lock.HostAccount)
	s.write("/a_lock/file")
	if err := s.end(store, "/a_lock", record.Revision, lock.CauseExpire); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.tree.real("/a_lock/file")); err != nil {
		t.Fatal(err)
	}
	store = s.restart(store)
	s.hasDirectory("/a_lock", true)
	s.heldBy(store, "/a_lock", lock.HostAccount)
}

func TestALockWhoseDirectoryTheHostReplacedByOneWithSomethingInItIsNobodys(t *testing.T) {
	s, _ := newAsideScene(t)
	store := s.mustOpen()
	token := s.acquire(store, "/a_lock", "ada")
	if err := os.Rename(s.tree.real("/a_lock"), s.tree.real("/elsewhere")); err != nil {
		t.Fatal(err)
	}
	s.mkdir("/a_lock")
	s.write("/a_lock/file")
	if err := s.end(store, "/a_lock", token, lock.CauseExpire); err != nil && !errors.Is(err, lock.ErrConflict) {
		t.Errorf("got %v", err)
	}
	s.heldBy(store, "/a_lock", "")
	s.wantFile("/a_lock/file", true)
	s.wantFile("/aside-a_lock-of-ada", false)
}
