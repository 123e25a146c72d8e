// Package hostdir gives each held lock a real directory, so that programs on the server's machine take part with
// mkdir, stat and rmdir.
//
// Its types: a [Disk], made by [Open] from [Options], implements [lock.Disk] on a served tree, which is a [Directories].
//
// Guarantees: of a client and a program on the host that make a directory, one succeeds. A directory is
// distinguished from a later one of the same name by its inode and time of birth. Nothing is removed but one empty directory at a
// time: that of a lock that ends, one that a crash of this server left, or an old one that a program on the host made under a lock's name.
// A lock root that is unmounted or unreadable ends no hold.
//
// A directory that this package makes is marked: mkdir sets the sticky bit, and the owner is the server's. A marked directory
// without a hold was left by a crash between mkdir and the record; it is removed, or moved aside with what is in it. Any other directory under
// a lock's name without a hold belongs to the host, until it is empty and was first seen as long ago as its rule's MaxAge says.
//
// Caveats: a birth is as coarse as the file system's clock (1 to 10 ms). A program that removes a lock's directory within the tick
// in which it was made, and makes it again, is not noticed where the file system uses the inode again. Where the file system records no
// births, the inode alone must do; on systems other than Linux there is neither, and a replaced directory is taken for the old one. A
// program that removes a directory and makes it again in the microseconds between our look and our rmdir loses its own. Where
// directories cannot be marked (vfat, and all systems but Linux), the host owns what a crash left. A program that
// replaces the directory above a lock does not end the hold, since an unmounted lock root looks the same.
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

// Directories is what a file system needs beside [afero.Fs]. Names are FTP paths such as "/locks/a", as bytes; errors contain no other
// paths. The Sys of a FileInfo may have the methods
// Identity() (inode uint64, birth int64), Device() uint64, Links() uint64 and Mark() (sticky bool, owner int).
type Directories interface {
	afero.Fs
	// OpenDirectory opens a directory, as a [Directory], if there is no link in its name: ENOTDIR, ELOOP.
	OpenDirectory(name string) (afero.File, error)
	// IsFree reports whether nothing has the name, and its directory exists and has no link in its name. False: perhaps.
	IsFree(name string) bool
	RemoveDir(name string) error // an empty directory, or an error; never a file
	// Aside moves the directory of a lock, with all that is in it, to a name that clients do not see, by one rename, and returns
	// that name. of is the lock, by its holder, token that of its hold. If that name exists the error matches fs.ErrExist or EISDIR.
	Aside(name, of, by string, token uint64) (to string, err error)
}

// Directory is an open directory. Its methods resolve no path, and follow no link.
type Directory interface {
	afero.File
	Lstat(base string) (fs.FileInfo, error)
	Mkdir(base string, perm fs.FileMode) error // perm may have fs.ModeSticky
	RemoveDir(base string) error               // an empty directory, or an error; never a file
}

// Rules return the directories that are locks. *lock.Rules are.
type Rules interface {
	// For returns the rule under which a directory of that name is a lock, if it is one.
	For(lock.Name) (lock.Rule, bool)
	// Roots returns the directories below which all locks lie; none: they may be anywhere.
	Roots() []lock.Name
}

// Options are the arguments of Open. All but Directories and Log are required.
type Options struct {
	FS    Directories // the served tree
	Clock lock.Clock
	Rules Rules
	// Held reports whether the name has a hold. While this server may not change locks it returns true. It is called without a mutex.
	Held        func(lock.Name) bool
	Directories bool         // each lock has a directory; if not, only those that Create is called for
	Log         *slog.Logger // nil: silent
}

// Disk implements lock.Disk. Use Open. It is for use by several goroutines.
type Disk struct {
	o      Options
	opened time.Time
	rules  atomic.Pointer[Rules]
	marks  marks

	changes *lanes        // makes and removes
	looks   chan struct{} // has an element for each look of Gone that is under way
	sweep   sweep
}

var _ lock.Disk = (*Disk)(nil)

// Open makes a Disk. It reads and writes nothing.
func Open(o Options) (*Disk, error) {
	if o.FS == nil || o.Clock == nil || o.Rules == nil || o.Held == nil {
		return nil, errors.New("hostdir: a file system, a clock, rules and Held are needed")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &Disk{
		o: o, opened: o.Clock.Now().Wall, marks: marks{known: make(map[uint64]mark)}, looks: make(chan struct{}, hangingLooks),
		sweep: sweep{seen: make(map[lock.Name]sighting)},
	}
	d.changes = &lanes{open: d.open, waiting: make(map[lock.Name][]*op)}
	d.SetRules(o.Rules)
	return d, nil
}

// SetRules replaces the rules that make a directory on the host a lock.
func (d *Disk) SetRules(rules Rules) { d.rules.Store(&rules) }

// closeBound is how long Close waits for operations under way.
const closeBound = 2 * time.Second

// Close waits until no change is under way, but no longer than two seconds: a mount may hang. Later changes return fs.ErrClosed. The caller
// ends Watch and Sweep first, and closes the file system.
func (d *Disk) Close() {
	if !d.changes.close(closeBound) {
		d.o.Log.Warn("the served tree does not answer; an operation on a lock's directory was left under way")
	}
}
