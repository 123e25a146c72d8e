package driver

import (
	"io/fs"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/files"
)

// Tree is the served tree: an afero.Fs with the other methods that FTP needs. Names are paths in the tree, not on the disk.
type Tree interface {
	afero.Fs
	// Resolve returns the one name of a path: cleaned, the links among its parents resolved.
	Resolve(name string) (string, error)
	// Lstat is Stat that does not follow a link at the end.
	Lstat(name string) (fs.FileInfo, error)
	// Readlink returns the target of a link as it is stored; "" if the name is no link.
	Readlink(name string) (string, error)
	// RemoveFile removes a file, and never a directory.
	RemoveFile(name string, check files.Check) error
	// RemoveDir removes an empty directory, and never a file.
	RemoveDir(name string) error
	// Move is Rename with a check.
	Move(oldname, newname string, check files.Check) error
	// Retain keeps the blocks of a large file from being freed before release is called.
	Retain(name string) (release func())
	// MakeDurable makes changes of the names survive a loss of power.
	MakeDurable(names ...string) error
	// Upload begins an upload: a hidden temporary file that is published by one rename.
	Upload(name string, o files.UploadOptions) (*files.Upload, error)
	// SweepLeftovers removes the files that were moved aside before that time.
	SweepLeftovers(before time.Time) error
	// Space returns the free bytes of the directory's file system.
	Space(dir string) (uint64, error)
}

var _ Tree = (*files.Tree)(nil)
