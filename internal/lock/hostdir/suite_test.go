package hostdir

import (
	"io/fs"
	"os"
	"testing"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// bareTree does not tell which directory is which, as it is on systems other than Linux.
type bareTree struct{ *hostTree }

func (b bareTree) Lstat(name string) (fs.FileInfo, error) { return os.Lstat(b.real(name)) }

func (b bareTree) Open(name string) (afero.File, error) { return b.Fs.Open(name) }

func TestStorePassesTheSuite(t *testing.T) {
	t.Run("with identities", func(t *testing.T) {
		locktest.TestStore(t, func(t *testing.T) lock.Store { return newScene(t).mustOpen() })
	})
	t.Run("without", func(t *testing.T) {
		locktest.TestStore(t, func(t *testing.T) lock.Store {
			s := newScene(t)
			s.fs = bareTree{s.tree}
			return s.mustOpen()
		})
	})
}
