package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// UploadOptions say how an upload begins.
type UploadOptions struct {
	// Append begins with a copy of the old content (APPE); there need not be any. Offset does not matter then.
	Append bool
	// Offset begins with a copy of so many first bytes of the old content (REST and STOR): the result
	// is those bytes and the ones that are written, and no old bytes after them. A file that is
	// shorter or missing is ErrOffset.
	Offset int64
	// Unique chooses a name that is free (STOU): the given one gets a suffix if it is taken. Place
	// returns fs.ErrExist if the name came up meanwhile; ChooseAnother gives the upload the next one.
	Unique bool
	// Gone says that nobody waits for the copy of old content any more; nil: somebody does. Upload fails with context.Canceled.
	Gone func() bool
}

// Upload is a file on its way in: a temporary file beside its target that nobody sees. It ends with
// Sync, Place and Last, or with Discard. It is for one goroutine, but Discard and Name may come from another.
type Upload struct {
	tree *Tree
	opt  UploadOptions
	set  settings
	name string    // guarded by tree.uploads.mu: a rename of the directory changes it
	dir  directory // held open: wherever it is moved to, the file goes with it
	base string
	temp string

	suggested string // the last part of the name that was given

	file *os.File
	size atomic.Int64

	old *info // the file that Append or Offset copied, as it was when it was opened; nil: there was none

	mu     sync.Mutex // held while the upload ends, disk access included, so that it ends in one way
	over   bool       // everything is given back
	placed bool       // the file has its name
	whole  bool       // Sync was done
	broken error      // the first failure of a write
}

var (
	_ io.Writer     = (*Upload)(nil)
	_ io.ReaderFrom = (*Upload)(nil)
)

// Upload begins an upload to name. Its parent must be there, and what has the name, if anything, must be a regular
// file or a link to no directory: EISDIR, ErrNotRegular. A link is replaced itself, not what it leads to, so that a
// name can stand for one file only; Append and Offset take the old content from where it leads within the tree.
//
// The mode of the file will be that of the one which it replaces, else the tree's less the umask.
func (t *Tree) Upload(name string, o UploadOptions) (*Upload, error) {
	name, err := clean(name)
	if err != nil {
		return nil, fail("upload", name, err)
	}
	u := &Upload{tree: t, opt: o, set: *t.set.Load(), name: name}
	_, u.suggested = split(name)
	t.uploads.add(u)
	begun := false
	defer func() { // after a panic, too
		if !begun {
			_ = u.Discard() // what cannot be removed is logged, and removed later
		}
	}()
	if err := u.begin(); err != nil {
		return nil, fail("upload", u.Name(), err)
	}
	begun = true
	return u, nil
}

// begin finds the target's directory and makes the temporary file. The caller discards the upload if that fails.
func (u *Upload) begin() error {
	t := u.tree
	if u.opt.Unique {
		if err := u.chooseName(); err != nil {
			return err
		}
	}
	dir, base := split(u.Name())
	u.base = base
	if t.isTemporary(base) {
		return ErrReserved
	}
	if base == "." {
		return syscall.EISDIR
	}
	var err error
	if u.dir, err = t.openDirectory(dir); err != nil {
		return err
	}
	mode, err := u.target()
	if err != nil {
		return err
	}
	u.temp = t.newTemporary()
	if u.file, err = u.dir.create(u.temp, mode); err != nil {
		return newName(err)
	}
	return u.copyOld()
}

// target looks at what has the name now, and returns the mode to begin with.
func (u *Upload) target() (fs.FileMode, error) {
	old, err := u.dir.lstat(u.base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return u.set.mode, nil
	case err != nil:
		return 0, newName(err)
	case old.IsDir():
		return 0, syscall.EISDIR
	case old.isLink():
		if i, err := u.tree.follow(place{u.dir, u.base, u.Name()}); err == nil && i.IsDir() {
			return 0, syscall.EISDIR
		}
		return u.set.mode, nil
	case !old.mode.IsRegular():
		return 0, ErrNotRegular
	}
	return old.mode.Perm(), nil
}

// copies reports whether the upload begins with old content.
func (u *Upload) copies() bool { return u.opt.Append || u.opt.Offset != 0 }

// copyOld puts the old content, or its first bytes, into the temporary file.
func (u *Upload) copyOld() error {
	if !u.copies() {
		return nil
	}
	old, i, err := u.tree.openReadable(u.Name())
	switch {
	case errors.Is(err, fs.ErrNotExist) && u.opt.Append:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return ErrOffset
	case err != nil:
		return err
	}
	defer old.Close()
	u.old = i
	want := i.size
	if i.IsDir() {
		return syscall.EISDIR
	}
	if !u.opt.Append {
		if u.opt.Offset < 0 || u.opt.Offset > want {
			return ErrOffset
		}
		want = u.opt.Offset
	}
	return u.copyFrom(old, want)
}

// checkOld returns ErrChanged if the name no longer leads to the file that copyOld copied, or that file has changed since.
func (u *Upload) checkOld() error {
	if !u.copies() {
		return nil
	}
	now, err := u.dir.lstat(u.base)
	if err == nil && now.isLink() {
		now, err = u.tree.follow(place{u.dir, u.base, u.Name()})
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		now = nil
	case err != nil:
		return err
	}
	if u.old == now || u.old != nil && now != nil && u.old.unchanged(now) {
		return nil
	}
	return ErrChanged
}

// copyStep is how much is copied before somebody looks whether the client still waits.
const copyStep = 64 << 20

// copyFrom copies the first bytes of a file; within the file system (reflink, copy_file_range) where that can.
func (u *Upload) copyFrom(old *os.File, want int64) error {
	if err := u.tree.check("copy"); err != nil {
		return err
	}
	var n int64
	var err error
	for part := int64(1); n < want && part > 0 && err == nil; n += part {
		if u.opt.Gone != nil && u.opt.Gone() {
			return context.Canceled
		}
		part, err = u.file.ReadFrom(&io.LimitedReader{R: old, N: min(want-n, copyStep)})
	}
	u.size.Add(n)
	if err == nil && n < want && !u.opt.Append {
		err = ErrOffset // it was cut off meanwhile
	}
	return bare(err)
}
