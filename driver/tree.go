package driver

import (
	"io/fs"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/files"
)

// Tree is the served tree: an afero.Fs, and what FTP needs beyond that. Its names are not those of the disk, its DELE and RMD are
// two commands, and an upload is staged.
type Tree interface {
	afero.Fs
	// Resolve returns the one name of a path: cleaned, the links among its parents resolved.
	Resolve(name string) (string, error)
	// Lstat describes what has the name, a link itself.
	Lstat(name string) (fs.FileInfo, error)
	// RemoveFile removes a file, and never a directory.
	RemoveFile(name string, check files.Check) error
	// RemoveDir removes an empty directory, and never a file.
	RemoveDir(name string) error
	// Move is Rename with a check.
	Move(oldname, newname string, check files.Check) error
	// Last has what was done to the names survive a loss of power.
	Last(names ...string) error
	// Durable reports whether what is done to files and names survives a loss of power.
	Durable() bool
	// Upload begins an upload: a hidden temporary file that is published by one rename.
	Upload(name string, o files.UploadOptions) (*files.Upload, error)
	// Aside moves what a lock has left out of everybody's way.
	Aside(name, of, by string, token uint64) (string, error)
	// SweepLeftovers removes what was moved aside before then.
	SweepLeftovers(before time.Time) error
	// Space tells how many bytes there is room for.
	Space(dir string) (uint64, error)
}

var _ Tree = (*files.Tree)(nil)
