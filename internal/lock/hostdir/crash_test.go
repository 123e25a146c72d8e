package hostdir

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
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

// process is a store that crashes and loses the last changes of directories.
type process struct {
	*scene
	volatile *volatileTree
	undone   int
}

func (p *process) Start(step func(string)) lock.Store {
	p.step = step
	return p.mustOpen()
}

func (p *process) Stop(first bool) {
	p.stop()
	if first {
		p.volatile.undo(p.undone)
	}
}

// Check checks that the locks that are held, and no others, have directories.
func (p *process) Check(store lock.Store, told *locktest.Told) {
	p.Helper()
	records := p.Records(store)
	for name := range told.May {
		record, held := records[name]
		p.hasDirectory(string(name), held)
		if id := p.identity(string(name)); held && id != directory(record) {
			p.Errorf("%s has directory %+v on disk, %+v in its record", name, id, directory(record))
		}
	}
}

func TestACrashAtAnyStep(t *testing.T) {
	for _, way := range []struct {
		name   string
		undone int // how many changes of directories are lost
	}{{"kill -9", 0}, {"two directories lost", 2}, {"all directories lost", 1000}} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			steps := locktest.CrashAtEachStep(t, lock.NewSystemClock(), false, func() locktest.Process {
				s := newScene(t)
				volatile := &volatileTree{hostTree: s.tree, attic: t.TempDir()}
				s.fs = volatile
				s.mkdir("/locks")
				return &process{s, volatile, way.undone}
			})
			if steps < 30 {
				t.Errorf("only %d steps", steps)
			}
		})
	}
}

// A start that removes such a directory does not forget whose it was. With something in it, it stays and is nobody's.
func TestTheDirectoryOfAReleasedLockMayComeBackAgainAndAgain(t *testing.T) {
	s := newScene(t)
	volatile := &volatileTree{hostTree: s.tree, attic: t.TempDir()}
	s.fs = volatile
	store := s.mustOpen()
	s.Release(store, "/a_lock", s.Acquire(store, "/a_lock", "ada"))
	for _, full := range []bool{false, false, true} {
		s.stop()
		volatile.undo(1)
		if full {
			s.write("/a_lock/file")
		}
		store = s.mustOpen()
		s.HeldBy(store, "/a_lock", "")
		s.hasDirectory("/a_lock", full)
	}
}
