package driver

import (
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/files"
)

// What the driver needs of the served tree beyond afero.Fs: FTP's names are not those of the disk, its DELE and RMD are
// two commands, and an upload is staged.
type (
	// namer tells what a path stands for.
	namer interface {
		// Resolve returns the one name of a path: cleaned, the links among its parents resolved.
		Resolve(name string) (string, error)
		// Lstat describes what has the name, a link itself.
		Lstat(name string) (fs.FileInfo, error)
	}
	// remover removes a file or an empty directory, and never the other.
	remover interface {
		RemoveFile(name string) error
		RemoveDir(name string) error
	}
	// keeper makes changes survive a loss of power.
	keeper interface {
		// MkdirLasting is Mkdir of a directory that files are to be published in.
		MkdirLasting(name string, perm fs.FileMode) error
		// Last has what was done to the names survive.
		Last(names ...string) error
	}
	// stager begins uploads: a hidden temporary that is published by one rename.
	stager interface {
		Upload(name string, o files.UploadOptions) (*files.Upload, error)
	}
	// asider moves what a lock has left out of everybody's way.
	asider interface {
		Aside(name, of, by string, token uint64) (string, error)
		SweepLeftovers(before time.Time) error
	}
	// measurer tells how many bytes there is room for.
	measurer interface {
		Space(dir string) (uint64, error)
	}
)

// tree is the served tree with all that the driver needs.
type tree struct {
	afero.Fs
	namer
	remover
	keeper
	stager
	asider
	measurer
}

// extend finds the add-on interfaces of a file system. It fails if one is missing.
func extend(fsys afero.Fs) (t tree, err error) {
	t.Fs = fsys
	t.namer, err = addOn[namer](fsys, err)
	t.remover, err = addOn[remover](fsys, err)
	t.keeper, err = addOn[keeper](fsys, err)
	t.stager, err = addOn[stager](fsys, err)
	t.asider, err = addOn[asider](fsys, err)
	t.measurer, err = addOn[measurer](fsys, err)
	return t, err
}

func addOn[T any](fsys afero.Fs, before error) (add T, err error) {
	add, ok := fsys.(T)
	if !ok && before == nil {
		before = fmt.Errorf("driver: the file system %T is no %T", fsys, &add)
	}
	return add, before
}
