// Package files is the served tree: what FTP clients see as "/", kept in one
// directory of the host.
//
// Its types: a [Tree] is that directory, and an [afero.Fs]; an [Upload] is a file on
// its way in, staged in a hidden temporary beside its target and published by one
// rename.
//
// What is promised: a reader sees the old file or the new one, never a mixture and
// never a part, also when it opened the old one long before. No name leads out of
// the tree, whatever symbolic links stand in it or are put there meanwhile. Nothing is ever
// removed recursively, and of all files only those that the package itself made and
// recorded are ever removed unasked. No error shows a path of the host.
//
// What is not: a program on the host that writes into a file in place is seen doing
// so. A published file is a new inode: other hard links of the old one keep the old content,
// and access control lists and extended attributes of the old one are not carried over.
// Records of uploads are not synced: after a loss of power (not after a crash of the
// server) a temporary may be left that nobody knows.
//
// Names are absolute FTP paths, strings of bytes in no particular encoding. They are
// cleaned lexically: "/a/../b" is "/b", whatever "/a" is. The package needs Linux.
//
// Start reading at [Tree.Upload].
package files

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/afero"
	"golang.org/x/sys/unix"
)

// Options say how a tree is kept. State is required.
type Options struct {
	// State is the directory for the records of uploads, outside of the tree. It is made
	// if it is missing. Nothing else may be kept in it.
	State string
	// Mode is the mode of new files, less the umask of the process; 0 means 0644.
	Mode fs.FileMode
	// Durable says that a published file survives a loss of power.
	Durable bool
	// MaxAge is how long left-overs are kept while the server runs, see [Tree.Sweep]; 0 means an hour.
	MaxAge time.Duration
	Log    *slog.Logger     // nil: none
	Now    func() time.Time // nil: time.Now
}

// Tree is a directory of the host as FTP clients see it. It is for use by several
// goroutines. Its errors are of type [*fs.PathError] with an FTP path in it and wrap
// what the system said, see errors.go.
type Tree struct {
	log   *slog.Logger
	now   func() time.Time
	root  *os.Root
	state *os.Root // the directory of the records
	sys   system

	parents parents

	// life is held shared by every operation, so that Close cannot pull the descriptor away.
	life   sync.RWMutex
	rootfd int // -1 once closed

	setMu sync.RWMutex
	set   settings

	reg registry
}

var _ afero.Fs = (*Tree)(nil)

// Open opens the tree kept in the directory root, which is made (0755) if it is missing.
// What a crash left is not removed: that is what [Tree.Sweep] does.
func Open(root string, o Options) (*Tree, error) {
	if o.State == "" {
		return nil, errors.New("files: no directory for the records of uploads")
	}
	for _, dir := range []string{root, o.State} {
		if err := makeLasting(dir); err != nil {
			return nil, err
		}
	}
	if err := apart(root, o.State); err != nil {
		return nil, err
	}
	o.setDefaults()
	t := &Tree{log: o.Log, now: o.Now, set: settings{o.Mode, o.Durable, o.MaxAge}, rootfd: -1}
	var err error
	if t.root, err = os.OpenRoot(root); err != nil {
		return nil, err
	}
	if t.state, err = os.OpenRoot(o.State); err != nil {
		return nil, errors.Join(err, t.root.Close())
	}
	if t.rootfd, err = rootDescriptor(t.root); err != nil {
		return nil, errors.Join(err, t.root.Close(), t.state.Close())
	}
	t.reg.init()
	t.sys = newSystem(t.rootfd, t.root)
	t.parents.init(t.rootfd)
	if err := t.loadRecords(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (o *Options) setDefaults() {
	if o.Mode == 0 {
		o.Mode = 0o644
	}
	if o.MaxAge == 0 {
		o.MaxAge = time.Hour
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// makeLasting makes a directory if it is missing, and those above it, and makes their names last. One above that this
// process may not read was there before.
func makeLasting(dir string) error {
	path, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	there := path // what of it was there before
	for _, err := os.Lstat(there); errors.Is(err, fs.ErrNotExist) && there != "/"; _, err = os.Lstat(there) {
		there = filepath.Dir(there)
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	for path != "/" {
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
	return f.Sync()
}

// apart refuses a directory of records that clients could reach.
func apart(root, state string) error {
	r, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	s, err := filepath.EvalSymlinks(state)
	if err != nil {
		return err
	}
	if r, err = filepath.Abs(r); err != nil {
		return err
	}
	if s, err = filepath.Abs(s); err != nil {
		return err
	}
	rel, err := filepath.Rel(r, s)
	if err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
		return errors.New("files: the records of uploads must not lie in the served tree")
	}
	return nil
}

// rootDescriptor returns a descriptor of our own for the directory that root holds.
func rootDescriptor(root *os.Root) (int, error) {
	f, err := root.Open(".")
	if err != nil {
		return -1, err
	}
	defer f.Close()
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

// Close gives back what the tree holds open. Uploads and open files are
// finished or closed by those who began them, before or after. Later calls of
// other methods fail with [fs.ErrClosed]; a second Close does nothing.
func (t *Tree) Close() error {
	t.life.Lock()
	defer t.life.Unlock()
	if t.rootfd < 0 {
		return nil
	}
	t.parents.close()
	err := unix.Close(t.rootfd)
	t.rootfd = -1
	return errors.Join(err, t.root.Close(), t.state.Close())
}

// Name returns the name of this kind of file system; afero asks for it.
func (t *Tree) Name() string { return "files.Tree" }
