// Package hostdir gives each held lock a real directory, so that programs on the server's machine take part with
// mkdir, stat and rmdir.
//
// Its types: a [Disk], made by [Open] from [Options], implements [lock.Disk] on a served tree, which is a [Tree].
//
// Guarantees: if a client and a program on the host make the same directory, one of them succeeds. Inode and time of birth
// distinguish a directory from a later one of the same name. The package removes one empty directory at a
// time: that of a lock that ends, one that a crash of the server left, or an old one that a program on the host made under a lock's
// name. A lock root that is unmounted or unreadable ends no hold.
//
// The directories of locks are marked: mkdir sets the sticky bit, and the owner is the server's. A marked directory
// without a hold was left by a crash between mkdir and the record. It is removed, or moved aside with the files in it. Any other
// directory under a lock's name without a hold belongs to the host. It is removed when it is empty and was first seen its rule's MaxAge ago.
//
// Caveats:
//   - A time of birth is as coarse as the file system's clock (1 to 10 ms). A directory that a program removes and makes again within
//     one tick looks the same where the file system reuses the inode. Where the file system records no times of birth, inode and
//     mark are compared, and without marks (vfat) only the inode. Systems other than Linux have none of them, and a replaced directory
//     looks the same.
//   - If a program removes a directory and makes it again in the microseconds between the check and the rmdir, its own is removed.
//   - If the server freezes between the call of Options.Valid and the change right after it, for so long that another server takes over,
//     the change happens late. A late rmdir can remove the directory of a hold of that server.
//   - Where directories cannot be marked (vfat, systems other than Linux), a directory that a crash left belongs to the host.
//   - If a program replaces the directory above a lock, the hold stands, since an unmounted lock root looks the same.
//
// Start reading at [Disk.Make].
package hostdir

import (
	"errors"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Tree is the part of a served tree that the package uses. Names are FTP paths such as "/locks/a", as bytes; errors contain no other
// paths. The Sys of a FileInfo may be a [system].
type Tree interface {
	Open(name string) (afero.File, error)
	Chtimes(name string, atime, mtime time.Time) error
	Stat(name string) (fs.FileInfo, error)
	Rename(from, to string) error
	// OpenDirectory opens a directory, as a [Directory]. A link in its name is ENOTDIR or ELOOP.
	OpenDirectory(name string) (afero.File, error)
	// IsFree reports whether nothing has the name, and its directory exists and has no link in its name. It may return false wrongly.
	IsFree(name string) bool
	RemoveDir(name string) error // an empty directory, never a file
	// Aside moves the directory of a lock, with the files in it, to a name that clients do not see, by one rename, and returns
	// that name, which consists of the lock, its holder (by) and the token.
	Aside(name, by string, token uint64) (to string, err error)
}

// Directory is an open directory. Its methods resolve no path, and follow no link.
type Directory interface {
	afero.File
	Lstat(base string) (fs.FileInfo, error)
	Mkdir(base string, perm fs.FileMode) error // perm may have fs.ModeSticky
	RemoveDir(base string) error               // an empty directory, never a file
}

// Rules determine which directories are locks. *lock.Rules implements it.
type Rules interface {
	// For returns the rule that makes a directory of that name a lock, if there is one.
	For(lock.Name) (lock.Rule, bool)
	// Roots returns the directories below which all locks lie. None: locks may be anywhere.
	Roots() []lock.Name
}

// Options are the arguments of Open. All but Valid, MakeDirectories and Log are required.
type Options struct {
	FS    Tree // the served tree
	Clock lock.Clock
	Rules Rules
	// Held reports whether the name, or a name below it, has a hold or is about to get one. While this server may not change locks it
	// returns true.
	Held func(lock.Name) bool
	// Valid returns nil if this server may change locks now. It is called right before each change of a lock's directory, and its error
	// prevents the change. It must not block. nil: always.
	Valid           func() error
	MakeDirectories bool         // Make makes directories; if false, only Create does
	Log             *slog.Logger // nil: silent
}

// Disk implements lock.Disk. Use Open. It is for use by several goroutines. When all calls have returned, only checks of Gone and
// Watch that hang may still run.
type Disk struct {
	o     Options
	rules atomic.Pointer[Rules]

	dirs  dirSerializer // for the changes of directories
	looks chan struct{} // has an element for each look of Gone under way
	pass  sweepPass
}

var _ lock.Disk = (*Disk)(nil)

// Open makes a Disk. It reads and writes no file.
func Open(o Options) (*Disk, error) {
	if o.FS == nil || o.Clock == nil || o.Rules == nil || o.Held == nil {
		return nil, errors.New("hostdir: a file system, a clock, rules and Held are needed")
	}
	if o.Valid == nil {
		o.Valid = func() error { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &Disk{o: o, looks: make(chan struct{}, maxLooks)}
	d.dirs = dirSerializer{open: d.open, busy: make(map[lock.Name]*busyDir)}
	d.SetRules(o.Rules)
	return d, nil
}

// SetRules replaces the rules.
func (d *Disk) SetRules(rules Rules) { d.rules.Store(&rules) }

// WarnOfFileSystems logs a warning for each root of locks whose file system records no times of birth. It does nothing on systems other
// than Linux, which report none.
func (d *Disk) WarnOfFileSystems() {
	for _, root := range d.roots("/") {
		if s, err := newEntry(d.o.FS.Stat(string(root))); err == nil && s.id.Inode != placeholderInode && s.id.Birth <= 0 {
			d.o.Log.Warn("the file system records no birth times: the directories of locks are recognized by inode and sticky bit", "directory", root)
		}
	}
}
