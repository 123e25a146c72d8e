package hostdir

import (
	"io/fs"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestStorePassesTheSuite(t *testing.T) {
	t.Run("on disk", func(t *testing.T) {
		locktest.TestStore(t, func(t *testing.T) lock.Store { return newScene(t).mustOpen() })
	})
	t.Run("in memory", func(t *testing.T) {
		locktest.TestStore(t, func(t *testing.T) lock.Store { return memoryScene(t).mustOpen() })
	})
}

// memoryTree is afero's file system in memory as far as it is one: names have a length, and parents must be there.
type memoryTree struct{ afero.Fs }

func memoryScene(t *testing.T) *scene {
	s := newScene(t)
	s.fs = memoryTree{afero.NewMemMapFs()}
	return s
}

func (m memoryTree) Lstat(name string) (fs.FileInfo, error) {
	if err := m.possible(name); err != nil {
		return nil, err
	}
	return m.Stat(name)
}

func (m memoryTree) Mkdir(name string, perm fs.FileMode) error {
	if err := m.possible(name); err != nil {
		return err
	}
	if info, err := m.Stat(path.Dir(name)); err == nil && !info.IsDir() {
		return syscall.ENOTDIR
	} else if err != nil && path.Dir(name) != "/" {
		return fs.ErrNotExist
	}
	return m.Fs.Mkdir(name, perm)
}

func (m memoryTree) RemoveDir(name string) error {
	if info, err := m.Stat(name); err == nil && !info.IsDir() {
		return syscall.ENOTDIR
	}
	if infos, err := afero.ReadDir(m.Fs, name); err == nil && len(infos) > 0 {
		return syscall.ENOTEMPTY
	}
	return m.Remove(name)
}

func (m memoryTree) Aside(name, _, _ string, _ uint64) (string, error) {
	return "/aside", m.Rename(name, "/aside")
}

// possible refuses the names that the systems below refuse.
func (m memoryTree) possible(name string) error {
	for element := range strings.SplitSeq(name, "/") {
		if len(element) > 255 {
			return syscall.ENAMETOOLONG
		}
	}
	return nil
}

// The directories of a file system that is not the host's own come and go, and are noticed by what has the name.
func TestInMemory(t *testing.T) {
	s := memoryScene(t)
	memory := s.fs
	store := s.mustOpen()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	exists := func(name string, want bool) {
		t.Helper()
		if _, err := memory.Stat(name); (err == nil) != want {
			t.Errorf("%s exists: %v", name, err == nil)
		}
	}
	token := s.Acquire(store, "/a_lock", "ada")
	exists("/a_lock", true)
	store = s.restart()
	s.HeldBy(store, "/a_lock", "ada")
	s.Release(store, "/a_lock", token)
	exists("/a_lock", false)

	must(memory.Mkdir("/a_lock", 0o755))
	_, err := s.Commit(store, "/a_lock", 0, s.Hold("ada"))
	s.Conflict(err, lock.HostAccount)
	must(memory.RemoveDir("/a_lock"))
	store.check(t.Context(), "/a_lock")
	s.HeldBy(store, "/a_lock", "")

	s.Acquire(store, "/b_lock", "ada")
	must(memory.RemoveDir("/b_lock"))
	store = s.restart()
	s.HeldBy(store, "/b_lock", "ada")
	exists("/b_lock", true) // it was made again
}
