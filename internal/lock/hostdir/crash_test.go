package hostdir

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// volatileTree is a hostTree whose last changes a power failure can undo. A directory that comes back is the
// same one: it was only moved out of sight.
type volatileTree struct {
	*hostTree
	attic   string
	shelves int
	done    []func()
}

func (v *volatileTree) Mkdir(name string, perm fs.FileMode) error {
	err := v.hostTree.Mkdir(name, perm)
	if err == nil {
		v.done = append(v.done, func() { v.move(v.real(name), v.shelf()) })
	}
	return err
}

func (v *volatileTree) RemoveDir(name string) error {
	if entries, err := os.ReadDir(v.real(name)); err != nil || len(entries) > 0 {
		return v.hostTree.RemoveDir(name)
	}
	shelf := v.shelf()
	v.move(v.real(name), shelf)
	v.done = append(v.done, func() { v.move(shelf, v.real(name)) })
	return nil
}

// shelf returns a free place in the attic.
func (v *volatileTree) shelf() string {
	v.shelves++
	return filepath.Join(v.attic, fmt.Sprint(v.shelves))
}

func (v *volatileTree) move(from, to string) {
	if err := os.Rename(from, to); err != nil {
		panic(err)
	}
}

// undo takes back the last n changes.
func (v *volatileTree) undo(n int) {
	for ; n > 0 && len(v.done) > 0; n-- {
		last := len(v.done) - 1
		v.done[last]()
		v.done = v.done[:last]
	}
}

// crashed is what a step panics with.
type crashed struct{}

// stopAt makes the n-th step from now on the last one.
func (s *scene) stopAt(n int) {
	count := 0
	s.step = func(string) {
		if count++; count == n {
			panic(crashed{})
		}
	}
}

// untilCrash runs f and reports whether it got to its end.
func untilCrash(f func()) (finished bool) {
	defer func() {
		if p := recover(); p != nil && p != (crashed{}) {
			panic(p)
		}
	}()
	f()
	return true
}

// TestACrashAtAnyStep stops the server between every two steps of a play, loses some of the last changes of directories,
// stops it a second time during recovery, and looks whether what was acknowledged still is so.
func TestACrashAtAnyStep(t *testing.T) {
	for _, way := range []struct {
		name   string
		undone int // how many changes of directories are lost
	}{{"kill -9", 0}, {"two directories lost", 2}, {"all directories lost", 1000}} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				s := newScene(t)
				volatile := &volatileTree{hostTree: s.tree, attic: t.TempDir()}
				s.fs = volatile
				s.mkdir("/locks")
				s.stopAt(n)
				var said []string
				finished := untilCrash(func() {
					store := s.mustOpen()
					if err := locktest.Perform(store, s.clock, locktest.PlayMembers, func(text string) error {
						said = append(said, text)
						return nil
					}); err != nil {
						t.Fatal(err)
					}
				})
				s.stop()
				volatile.undo(way.undone)
				s.stopAt(1 + n%5)
				untilCrash(func() { s.mustOpen() })
				s.stop()
				s.step = nil
				store := s.mustOpen()
				for _, complaint := range locktest.Recall(said, false, true).Complaints(store) {
					t.Error(complaint)
				}
				s.agree(store, said)
				s.stop()
				if t.Failed() {
					t.Fatalf("stopped at step %d", n)
				}
				if finished {
					if n < 30 {
						t.Errorf("only %d steps", n)
					}
					return
				}
			}
		})
	}
}

// agree checks that the locks that are held, and no others, have directories.
func (s *scene) agree(store *Store, said []string) {
	s.Helper()
	records := s.Records(store)
	for name := range locktest.Recall(said, false, true).May {
		record, held := records[name]
		s.hasDirectory(string(name), held)
		if id := s.identity(string(name)); held && id != directory(record) {
			s.Errorf("%s has directory %+v on disk, %+v in its record", name, id, directory(record))
		}
	}
}

// A start that removes such a directory does not forget whose it was.
func TestTheDirectoryOfAReleasedLockMayComeBackAgainAndAgain(t *testing.T) {
	s := newScene(t)
	volatile := &volatileTree{hostTree: s.tree, attic: t.TempDir()}
	s.fs = volatile
	store := s.mustOpen()
	s.Release(store, "/a_lock", s.Acquire(store, "/a_lock", "ada"))
	for range 3 {
		s.stop()
		volatile.undo(1)
		store = s.mustOpen()
		s.HeldBy(store, "/a_lock", "")
		s.hasDirectory("/a_lock", false)
	}
}
