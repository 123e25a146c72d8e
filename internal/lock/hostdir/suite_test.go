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

func TestStorePassesTheSuite(t *testing.T) {
	t.Run("on disk", func(t *testing.T) {
		locktest.TestStore(t, func(t *testing.T) lock.Store { return newScene(t).mustOpen() })
	})
	t.Run("in memory", func(t *testing.T) {
		locktest.TestStore(t, func(t *testing.T) lock.Store { return memoryScene(t).mustOpen() })
	})
}
