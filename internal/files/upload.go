package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
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
	// returns fs.ErrExist if another file got the name since then; ChooseAnother gives the upload the next one.
	Unique bool
	// Gone reports that the client no longer waits for the copy of the old content; Upload fails with context.Canceled. It may be nil.
	Gone func() bool
}

// Upload is a file that a client sends: a hidden temporary file beside its target. Sync, Place and Last publish it; Discard removes it.
// An Upload is for one goroutine at a time. After an error only Discard may follow, except where a method allows more.
type Upload struct {
	tree *Tree
	opt  UploadOptions
	set  settings
	name atomic.Pointer[string] // a rename of a directory above changes it

	dir  directory // held open: the file stays in it when it is renamed; zero: the upload is over
	base string    // the last element of name
	temp string    // the name of the temporary file in dir; "": there is none
	file *os.File  // the temporary file; nil: its content is complete
	size int64
	old  *info // the file that was copied, as it was when it was opened; nil: there was none

	suggested string // the last element of the name that was given
	claimed   string // guarded by tree.uploads.mu: the path that Unique chose
}

var (
	_ io.Writer     = (*Upload)(nil)
	_ io.ReaderFrom = (*Upload)(nil)
)

// Upload begins an upload to name. Its parent must exist. If something has the name it must be a regular
// file, or a link that does not lead to a directory: EISDIR, ErrNotRegular. The upload replaces a link itself, so that a
// name stands for one file only; Append and Offset copy the file that the link leads to within the tree.
//
// The file gets the mode of the one that it replaces, else the tree's mode less the umask.
func (t *Tree) Upload(name string, o UploadOptions) (*Upload, error) {
	name, err := clean(name)
	if err != nil {
		return nil, fail("upload", name, err)
	}
	u := &Upload{tree: t, opt: o, set: *t.set.Load()}
	u.name.Store(&name)
	t.uploads.add(u)
	if err := u.begin(); err != nil {
		_ = u.Discard() // a failure is logged
		return nil, fail("upload", u.Name(), err)
	}
	return u, nil
}

// begin opens the target's directory and makes the temporary file.
func (u *Upload) begin() (err error) {
	var dir string
	dir, u.suggested = split(u.Name())
	u.base = u.suggested
	switch {
	case u.tree.isTemporary(u.base):
		return ErrReserved
	case u.base == ".":
		return syscall.EISDIR
	}
	if u.dir, err = u.tree.openDirectory(dir); err != nil {
		return err
	}
	mode := u.set.mode
	if u.opt.Unique {
		err = u.chooseName()
	} else {
		mode, err = u.target()
	}
	if err != nil {
		return err
	}
	temp := u.tree.newTemporary()
	if u.file, err = u.dir.create(temp, mode); err != nil {
		return newName(err)
	}
	u.temp = temp
	return u.copyOld()
}

// target returns the mode to begin with, or an error if the upload cannot replace what has the name.
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

// copyOld copies the old content, or its first bytes, to the temporary file.
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
	want := u.opt.Offset
	switch {
	case i.IsDir():
		return syscall.EISDIR
	case u.opt.Append:
		want = i.size
	case want < 0 || want > i.size:
		return ErrOffset
	}
	return u.copyFrom(old, want)
}

// copyStep is how many bytes are copied between two calls of Gone.
const copyStep = 64 << 20

// copyFrom copies the first bytes of a file; within the file system (reflink, copy_file_range) where that is possible.
func (u *Upload) copyFrom(old *os.File, want int64) error {
	err := u.tree.check("copy")
	for part := int64(1); u.size < want && part > 0 && err == nil; u.size += part {
		if u.opt.Gone != nil && u.opt.Gone() {
			return context.Canceled
		}
		part, err = u.file.ReadFrom(&io.LimitedReader{R: old, N: min(want-u.size, copyStep)})
	}
	if err == nil && u.size < want && !u.opt.Append {
		err = ErrOffset // a program cut the file off meanwhile
	}
	return err
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

// Name returns the FTP path that the file has after Place. A rename of a directory above it through the tree changes it.
func (u *Upload) Name() string { return *u.name.Load() }

// Durable reports whether Sync and Last wait for the disk.
func (u *Upload) Durable() bool { return u.set.durable }

// Size returns how long the file is so far, with the copied old content. A ReadFrom counts when it returns.
func (u *Upload) Size() int64 { return u.size }

// Write adds bytes to the file.
func (u *Upload) Write(p []byte) (n int, err error) {
	if err = u.tree.check("write"); err == nil {
		n, err = u.file.Write(p)
	}
	u.size += int64(n)
	return n, fail("upload", u.Name(), err)
}

// ReadFrom adds everything from r until EOF. Bytes from a *net.TCPConn go to the file within the kernel (splice).
func (u *Upload) ReadFrom(r io.Reader) (n int64, err error) {
	if err = u.tree.check("write"); err == nil {
		n, err = u.file.ReadFrom(r)
	}
	u.size += n
	return n, fail("upload", u.Name(), err)
}

// Sum returns how long the content is so far, and its SHA-256 in hexadecimal. It reads the file, since the kernel may have received
// the content; recent content is still in memory.
func (u *Upload) Sum() (size int64, sum string, err error) {
	h := sha256.New()
	if size, err = io.Copy(h, io.NewSectionReader(u.file, 0, u.size)); err != nil {
		return 0, "", fail("sum", u.Name(), err)
	}
	return size, hex.EncodeToString(h.Sum(nil)), nil
}
