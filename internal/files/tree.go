// Package files is the served tree: a directory of the host, which FTP clients see as "/".
//
// Its types: a [Tree] is that directory, and an [afero.Fs] on [os.Root]. An [Upload] is a file that a client sends: a hidden
// temporary file beside its target, which one rename publishes.
//
// Guarantees: a reader gets the old file or the new one, never a mixture or
// a part, even if it opened the old one long before. No name leads out of
// the tree, even if symbolic links in it change meanwhile. The package removes without a command only the
// temporary files that it made, and the old leftovers of locks. Only the latter are removed recursively. No error contains a path of
// the host. Only changes of one name wait for each other: a directory that is slow to read, or a network mount that hangs, delays only its users.
//
// Caveats: if a program on the host writes into a file in place, readers see that.
// A published file is a new inode: other hard links of the old one keep the old content. It has the properties of the file that it replaces as far
// as the process may set them, see [Upload.Lost].
// Absolute links are refused, even if they lead back into the tree. [Tree.Resolve] refuses a name that leads through more
// than 8 links. The process needs the permission to read each directory above a name, not only to search it. A loss of power
// within seconds of a [Tree.Sweep] or a [Tree.Close] may leave a temporary file that no later Sweep removes. directory_other.go has
// the limits of systems other than Linux.
//
// Names are absolute FTP paths: strings of bytes in no particular encoding. They are
// cleaned lexically: "/a/../b" is "/b", whatever "/a" is. Names that begin with ".ftplockd-" are reserved, see [Hidden].
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

// Options are the arguments of Open. State is required.
type Options struct {
	// State is a directory for the marks of starts, outside of the tree. Open makes it
	// if it is missing. It may contain nothing else. One process at a time may use it, or several with an Epoch each.
	State string
	// Epoch is for servers that follow each other on one tree, while an earlier one may still run: this
	// start removes nothing of a start with a larger epoch. 0: there is one server, and no earlier start still runs.
	Epoch uint32
	// Searched is called after each step of a search for unfinished uploads. It must not wait. nil: nothing is called.
	Searched func()
	// Mode is the mode of new files, less the umask of the process; 0 means 0644.
	Mode fs.FileMode
	// Durable makes published files survive a loss of power.
	Durable bool
	Log     *slog.Logger // nil: silent
}

// Tree is a directory of the host as FTP clients see it. It is for use by several
// goroutines. Its errors are of type [*fs.PathError] with an FTP path, and wrap
// the error of the system, see errors.go.
type Tree struct {
	log      *slog.Logger
	now      func() time.Time // time.Now; tests replace it
	root     *os.Root
	top      *os.File // the root of the tree
	state    string
	epoch    uint32
	searched func() // see Options
	settings atomic.Pointer[settings]

	start          string         // the id of this start of the server, which is in the names of its temporary files
	tempCount      atomic.Uint64  // counts temporary files
	unfinished     atomic.Int64   // temporary files of this start that exist
	failedRemovals failedRemovals // Sweep tries again
	renames        atomic.Uint64  // counts renames, see Upload.Place
	names          pathMutex
	searchAfter    time.Time // the time from which Sweep may search the whole tree again

	// beforeCall is called before each system call with its name. If it returns an error, that replaces the call.
	// Only tests set it.
	beforeCall func(call string) error
}

var _ afero.Fs = (*Tree)(nil)

// settings are the options that a reload may change. An upload keeps those that it began with.
type settings struct {
	mode    fs.FileMode
	durable bool
}

// Open opens the tree in the directory root, and makes that (0755) if it is missing.
// It removes nothing that a crash left: [Tree.Sweep] does.
func Open(root string, o Options) (*Tree, error) {
	if o.State == "" {
		return nil, errors.New("files: no directory for the marks of starts")
	}
	for _, dir := range []string{root, o.State} {
		if err := makeDurableDir(dir); err != nil {
			return nil, err
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	t := &Tree{log: o.Log, now: time.Now, state: o.State, epoch: o.Epoch, searched: o.Searched, start: newID()}
	t.SetOptions(o.Mode, o.Durable)
	var err error
	if t.root, err = os.OpenRoot(root); err != nil {
		return nil, err
	}
	if t.top, err = t.root.Open("."); err != nil {
		return nil, errors.Join(err, t.root.Close())
	}
	if err := t.makeMark(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// SetOptions changes the options that a reload may change; see [Options] for zero values. Uploads under way keep
// the settings that they began with.
func (t *Tree) SetOptions(mode fs.FileMode, durable bool) {
	if mode == 0 {
		mode = 0o644
	}
	t.settings.Store(&settings{mode, durable})
}

// injectedFault returns the fault that a test injects before a system call.
func (t *Tree) injectedFault(call string) error {
	if t.beforeCall == nil {
		return nil
	}
	return t.beforeCall(call)
}

// makeDurableDir makes a directory and those above it that are missing, and makes their names survive a loss of power. A parent that
// the process may not read existed before.
func makeDurableDir(dir string) error {
	parent := filepath.Dir(dir)
	if _, err := os.Lstat(parent); errors.Is(err, fs.ErrNotExist) && parent != dir {
		if err := makeDurableDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := syncHost(parent); !errors.Is(err, fs.ErrPermission) {
		return err
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
	if runtime.GOOS == "windows" { // it cannot sync a directory that is open for reading
		return nil
	}
	return stripPaths(f.Sync())
}

// Close closes the files that the tree itself holds open. Callers finish or close uploads and open files,
// before or after. Later calls of other methods return [fs.ErrClosed]. A second Close does nothing.
func (t *Tree) Close() error {
	var err error
	if t.unfinished.Load() == 0 {
		err = t.removeMarks(t.mark())
	}
	t.top.Close()
	return errors.Join(err, t.root.Close())
}

// Name implements [afero.Fs].
func (t *Tree) Name() string { return "files.Tree" }
