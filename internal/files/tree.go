// Package files is the served tree: what FTP clients see as "/", kept in one
// directory of the host.
//
// Its types: a [Tree] is that directory, and an [afero.Fs] on [os.Root]; an [Upload] is a file on
// its way in, staged in a hidden temporary file beside its target and published by one
// rename.
//
// What is promised: a reader sees the old file or the new one, never a mixture and
// never a part, also when it opened the old one long before. No name leads out of
// the tree, whatever symbolic links stand in it or are put there meanwhile. Of all files only the
// temporary files that the package itself made are ever removed unasked, and nothing but
// old leftovers of locks is removed recursively. No error shows a path of the host. No operation waits for
// another one: a directory that is slow to read, or a network mount that hangs, delays only those that use it.
//
// What is not: a program on the host that writes into a file in place is seen doing
// so. A published file is a new inode: other hard links of the old one keep the old content,
// and access control lists and extended attributes of the old one are not carried over.
// Absolute links are refused, also if they lead back into the tree, and [Tree.Resolve] refuses a name that leads through more
// than 8 links. The process must be allowed to read each directory above a name, not only to search it. After
// a loss of power within seconds of a [Tree.Sweep] or a [Tree.Close] a temporary file may be left that nobody knows.
//
// On systems other than Linux some of this is weaker, see directory_other.go.
//
// Names are absolute FTP paths, strings of bytes in no particular encoding. They are
// cleaned lexically: "/a/../b" is "/b", whatever "/a" is.
//
// Start reading at [Tree.Upload].
package files

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/spf13/afero"
)

// Options say how a tree is kept. State is required.
type Options struct {
	// State is the directory for the ids of the starts of the server, outside of the tree. It is made
	// if it is missing. Nothing else may be kept in it. One process at a time may use it, or several that have an Epoch each.
	State string
	// Epoch is for servers that follow each other on one tree, where an earlier one may not know yet that it has been followed: this
	// start leaves alone what those with a larger one make. 0: there is one server, and no other start goes on.
	Epoch uint32
	// Mode is the mode of new files, less the umask of the process; 0 means 0644.
	Mode fs.FileMode
	// Durable says that a published file survives a loss of power.
	Durable bool
	Log     *slog.Logger // nil: none
}

// Tree is a directory of the host as FTP clients see it. It is for use by several
// goroutines. Its errors are of type [*fs.PathError] with an FTP path in it and wrap
// what the system said, see errors.go.
type Tree struct {
	log   *slog.Logger
	now   func() time.Time // time.Now, but for tests
	root  *os.Root
	top   directory // the root of the tree
	state string
	epoch uint32
	set   atomic.Pointer[settings]

	start       string              // names this start of the server, and begins the names of its temporary files
	starts      map[string]struct{} // this start and all earlier ones that may have left something; never changed
	made        atomic.Uint64       // counts temporary files
	uploads     uploads
	names       nameLocks
	searchAfter time.Time // for Sweep: when the whole tree may be searched again

	// before is called ahead of each system call with its name; an error is returned in place of the call.
	// Only tests set it.
	before func(call string) error
}

var _ afero.Fs = (*Tree)(nil)

// settings are the options that a reload may change. An upload keeps those that it began with.
type settings struct {
	mode    fs.FileMode
	durable bool
}

// Open opens the tree kept in the directory root, which is made (0755) if it is missing.
// What a crash left is not removed: that is what [Tree.Sweep] does.
func Open(root string, o Options) (*Tree, error) {
	if o.State == "" {
		return nil, errors.New("files: no directory for the ids of the starts")
	}
	for _, dir := range []string{root, o.State} {
		if err := makeLasting(dir); err != nil {
			return nil, err
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	t := &Tree{log: o.Log, now: time.Now, state: o.State, epoch: o.Epoch, start: newID()}
	t.SetOptions(o.Mode, o.Durable)
	var err error
	if t.root, err = os.OpenRoot(root); err != nil {
		return nil, err
	}
	if err := errors.Join(t.openTop(), t.begin()); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// SetOptions changes what a reload may change; zero values mean what they mean in [Options]. Uploads under way keep
// what they began with.
func (t *Tree) SetOptions(mode fs.FileMode, durable bool) {
	if mode == 0 {
		mode = 0o644
	}
	t.set.Store(&settings{mode, durable})
}

// Durable reports whether what is done to files and names survives a loss of power.
func (t *Tree) Durable() bool { return t.set.Load().durable }

// check is the place where tests put their faults.
func (t *Tree) check(call string) error {
	if t.before == nil {
		return nil
	}
	return t.before(call)
}

// makeLasting makes a directory if it is missing, and those above it, and makes their names last. One above that this
// process may not read was there before.
func makeLasting(dir string) error {
	path, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	there := path // what of it was there before
	for _, err := os.Lstat(there); errors.Is(err, fs.ErrNotExist) && there != filepath.Dir(there); _, err = os.Lstat(there) {
		there = filepath.Dir(there)
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	for path != filepath.Dir(path) {
		path = filepath.Dir(path)
		if err := syncHost(path); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if len(path) <= len(there) {
			break
		}
	}
	return nil
}

func syncHost(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return syncDirectory(f)
}

func syncDirectory(f *os.File) error {
	if runtime.GOOS == "windows" { // a directory that is open for reading cannot be synced
		return nil
	}
	return bare(f.Sync())
}

// Close gives back what the tree holds open. Uploads and open files are
// finished or closed by their callers, before or after. Later calls of
// other methods fail with [fs.ErrClosed]; a second Close does nothing.
func (t *Tree) Close() error {
	var err error
	if t.uploads.none() {
		err = t.forget(t.mark())
	}
	if t.top != (directory{}) {
		t.top.close()
	}
	return errors.Join(err, t.root.Close())
}

// Name returns the name of this kind of file system; afero asks for it.
func (t *Tree) Name() string { return "files.Tree" }
