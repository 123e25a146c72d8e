package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// UploadOptions say how an upload begins. Of Append, HasOffset and Unique at most one is set.
type UploadOptions struct {
	// Append begins with a copy of the old content (APPE); there need not be any.
	Append bool
	// HasOffset begins with a copy of the first Offset bytes of the old content (REST and STOR): the result
	// is those bytes and the ones that are written, and no old bytes after them. A file that is
	// shorter, or missing with an Offset above 0, is ErrOffset.
	HasOffset bool
	Offset    int64
	// Unique chooses a name that is free (STOU): name is a directory, or a suggestion that gets a suffix if it is taken.
	Unique bool
	// Exclusive refuses to replace: fs.ErrExist, from Upload, or from Publish if the name came up meanwhile.
	Exclusive bool
}

// Upload is a file on its way in: a temporary beside its target that nobody sees. It ends with Publish or
// Discard. It is for one goroutine, but Discard and Name may come from another.
type Upload struct {
	tree    *Tree
	opt     UploadOptions
	set     settings
	name    string // guarded by tree.reg.mu: a rename of the directory changes it
	claimed string // the name that was chosen for Unique
	place   place  // the directory, held open: wherever it is moved to, the file goes with it
	synced  bool   // the directory can be synced by its descriptor
	rec     *record
	file    *os.File
	size    atomic.Int64

	mu     sync.Mutex // held while the upload ends, disk access included, so that it ends in one way
	over   bool
	whole  bool  // Sync was done and nothing came since
	broken error // the first failure of a write
	left   error // why the temporary could not be removed after it was linked to its name
}

var (
	_ io.Writer     = (*Upload)(nil)
	_ io.ReaderFrom = (*Upload)(nil)
)

// Upload begins an upload to name. Its parent must be there, and what has the name, if anything, must be a regular
// file or a link to no directory: EISDIR, ErrNotRegular. A link is replaced itself, not what it leads to, so that a
// name can stand for one file only; Append and HasOffset take the old content from where it leads within the tree.
//
// The mode of the file will be that of the one which it replaces, else the tree's less the umask.
func (t *Tree) Upload(name string, o UploadOptions) (*Upload, error) {
	name, err := clean(name)
	if err != nil {
		return nil, fail("upload", name, err)
	}
	u := &Upload{tree: t, opt: o, set: t.settings(), name: name}
	t.life.RLock()
	defer t.life.RUnlock()
	if t.rootfd < 0 {
		return nil, fail("upload", name, errClosed)
	}
	if o.Unique {
		if u.claimed, err = t.freeName(name); err != nil {
			return nil, fail("upload", name, err)
		}
		u.name = u.claimed
	}
	if err := u.begin(); err != nil {
		u.abandon()
		return nil, fail("upload", u.name, err)
	}
	return u, nil
}

// begin finds the target's directory and makes the temporary. The caller abandons the upload after an error.
func (u *Upload) begin() error {
	t := u.tree
	if err := u.openParent(); err != nil {
		return err
	}
	mode, err := u.target()
	if err != nil {
		return err
	}
	if u.rec, err = t.newRecord(u.place); err != nil {
		return err
	}
	fd, err := t.sys.createat(u.place.dir, u.rec.temporary(), mode)
	if err != nil {
		u.forget()
		return err
	}
	u.file = os.NewFile(uintptr(fd), u.name) // not for appending: then the kernel would not copy or splice into it
	t.reg.begin(u)
	return u.copyOld()
}

// forget drops the record of a temporary that was never made.
func (u *Upload) forget() {
	u.tree.dropRecord(u.rec) // a record that cannot be removed is harmless: a Sweep finds nothing to it
	u.rec = nil
}

// openParent opens the target's directory, for syncing it too if that is wanted and allowed. One that is kept open cannot be synced.
func (u *Upload) openParent() error {
	t, dir := u.tree, ""
	u.place.name = u.name
	dir, u.place.base = split(u.name)
	if t.reg.isTemporary(u.place.base) {
		return ErrReserved
	}
	if !u.set.durable {
		if kept := t.parents.use(dir); kept != nil {
			u.place.dir, u.place.kept = kept.fd, kept
			return nil
		}
	}
	fd, err := -1, error(unix.EACCES)
	if u.set.durable {
		fd, err = t.sys.open(dir, syncFlags, 0)
		u.synced = err == nil
	}
	if err == unix.EACCES { // a directory that may be written and not read
		fd, err = t.sys.open(dir, dirFlags, 0)
	}
	if err != nil {
		return err
	}
	u.place.dir, u.place.own = fd, true
	return nil
}

// target looks at what has the name now, and returns the mode to begin with.
func (u *Upload) target() (fs.FileMode, error) {
	t := u.tree
	if u.place.base == "." {
		return 0, unix.EISDIR
	}
	old, err := t.sys.lstatat(u.place.dir, u.place.base, u.place.base)
	switch {
	case err == unix.ENOENT:
		return u.set.mode, nil
	case err != nil:
		return 0, newName(err)
	case u.opt.Exclusive:
		return 0, fs.ErrExist
	case old.IsDir():
		return 0, unix.EISDIR
	case old.isLink():
		if i, err := t.follow(u.place); err == nil && i.IsDir() {
			return 0, unix.EISDIR
		}
		return u.set.mode, nil
	case !old.isRegular():
		return 0, ErrNotRegular
	}
	return old.Mode().Perm(), nil
}

// copyOld puts the old content, or its first bytes, into the temporary.
func (u *Upload) copyOld() error {
	if !u.opt.Append && (!u.opt.HasOffset || u.opt.Offset == 0) {
		return nil
	}
	if u.opt.HasOffset && u.opt.Offset < 0 {
		return ErrOffset
	}
	old, want, err := u.tree.openRegular(u.name)
	if errors.Is(err, unix.ENOENT) {
		if u.opt.HasOffset {
			return ErrOffset
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer old.Close()
	if u.opt.HasOffset {
		if u.opt.Offset > want {
			return ErrOffset
		}
		want = u.opt.Offset
	}
	return u.copyFrom(old, want)
}

// copyFrom copies the first bytes of a file; within the file system (reflink, copy_file_range) where that can.
func (u *Upload) copyFrom(old *os.File, want int64) error {
	if err := u.tree.sys.check("copy"); err != nil {
		return err
	}
	n, err := u.file.ReadFrom(&io.LimitedReader{R: old, N: want})
	u.size.Add(n)
	if err == nil && n < want && u.opt.HasOffset {
		err = ErrOffset // it was cut off meanwhile
	}
	return bare(err)
}
