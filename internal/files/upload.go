package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// UploadOptions select how an upload begins and ends.
type UploadOptions struct {
	// Append makes the upload begin with a copy of the old content, if there is any (APPE). Offset is ignored then.
	Append bool
	// Offset makes the upload begin with a copy of the first Offset bytes of the old content (STOR after REST). The result has no other old
	// bytes. A missing or shorter file is ErrOffset.
	Offset int64
	// New makes Place return fs.ErrExist if something has the name, instead of replacing it (STOU).
	New bool
	// Sum reads a large file for [Upload.Sum] while it arrives.
	Sum bool
	// Gone reports that the client has hung up. Upload calls it while it copies old content, and then fails with
	// context.Canceled. It may be nil.
	Gone func() bool
}

// Upload is a file that a client sends: a hidden temporary file in the directory of its target. Sync, Place and Finish publish it, in
// this order; Discard removes it. Only one goroutine at a time may use an Upload. After an error only Discard may follow.
type Upload struct {
	tree     *Tree
	options  UploadOptions
	settings settings
	name     string // the FTP path

	dir            directory // of the target, open; zero: the upload has ended
	renamesAtStart uint64    // Tree.renames before dir was opened
	base           string    // the last element of name
	temp           string    // the name of the temporary file in dir; "": there is none
	file           *os.File  // the temporary file; nil: it is closed
	size           int64
	writeBack      bool      // a large file is written to the disk while it arrives
	followed       int64     // the end of the last step that the follower got
	follower       *follower // nil: there is none
	lost           []string  // see Lost
	old            *info     // the file that was copied, when it was opened; nil: there was none
	release        func()    // frees the replaced file; nil: there is none, see Tree.Retain
}

var (
	_ io.Writer     = (*Upload)(nil)
	_ io.ReaderFrom = (*Upload)(nil)
)

// Upload begins an upload to name. The directory must exist. A name that exists must be that of a regular file, or of a link that
// leads to no directory: EISDIR, ErrNotRegular. The upload replaces a link itself, so each name stands for one file; Append and
// Offset copy the file to which the link leads.
//
// The file gets the mode, owner, group, access control list and user attributes of the file that it replaces, see [Upload.Lost]; a new one gets
// the tree's mode less the umask.
func (t *Tree) Upload(name string, o UploadOptions) (*Upload, error) {
	name, err := clean(name)
	if err != nil {
		return nil, fail("upload", name, err)
	}
	u := &Upload{tree: t, options: o, settings: *t.settings.Load(), name: name, renamesAtStart: t.renames.Load()}
	if err := u.begin(); err != nil {
		_ = u.Discard() // it logs a failure
		return nil, fail("upload", name, err)
	}
	return u, nil
}

// begin opens the directory, checks the target and makes the temporary file.
func (u *Upload) begin() (err error) {
	var dir string
	dir, u.base = split(u.name)
	if u.base == "." {
		return syscall.EISDIR
	}
	if u.dir, err = u.tree.openDirectory(dir); err != nil {
		return err
	}
	u.writeBack = u.settings.durable
	mode, err := u.target()
	if err != nil {
		return err
	}
	temp := u.tree.newTemporary()
	u.tree.unfinished.Add(1)
	if u.file, err = u.dir.create(temp, mode); err != nil {
		u.tree.unfinished.Add(-1)
		return markBadName(err)
	}
	u.temp = temp
	return u.copyOld()
}

// target returns the mode of the temporary file, or an error if the upload cannot replace the target.
func (u *Upload) target() (fs.FileMode, error) {
	old, err := u.dir.lstat(u.base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return u.settings.mode, nil
	case err != nil:
		return 0, markBadName(err)
	case old.IsDir():
		return 0, syscall.EISDIR
	case old.isLink():
		if i, err := u.tree.follow(place{u.dir, u.base, u.name}); err == nil && i.IsDir() {
			return 0, syscall.EISDIR
		}
		return u.settings.mode, nil
	case !old.mode.IsRegular():
		return 0, ErrNotRegular
	}
	u.writeBack = true // ext4 would write the whole file in the rename over the old one (auto_da_alloc)
	return old.mode.Perm(), nil
}

// copies reports whether the upload begins with old content.
func (u *Upload) copies() bool { return u.options.Append || u.options.Offset != 0 }

// copyOld copies the old content, or its first bytes, to the temporary file.
func (u *Upload) copyOld() error {
	if !u.copies() {
		return nil
	}
	old, i, err := u.tree.openReadable(u.name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && u.options.Append:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return ErrOffset
	case err != nil:
		return err
	}
	defer old.Close()
	u.old = i
	want := u.options.Offset
	switch {
	case i.IsDir():
		return syscall.EISDIR
	case u.options.Append:
		want = i.size
	case want < 0 || want > i.size:
		return ErrOffset
	}
	return u.copyFrom(old, want)
}

// copyStep is the number of bytes that are copied between two calls of Gone.
const copyStep = 64 << 20

// copyFrom copies the first bytes of a file within the kernel (copy_file_range). On Btrfs and XFS the kernel lets both files share the blocks: that
// needs neither time nor room. Elsewhere the copy needs as much room as the bytes.
func (u *Upload) copyFrom(old *os.File, want int64) error {
	err := u.tree.injectedFault("copy")
	for part := int64(1); u.size < want && part > 0 && err == nil; u.size += part {
		if u.options.Gone != nil && u.options.Gone() {
			return context.Canceled
		}
		part, err = u.file.ReadFrom(&io.LimitedReader{R: old, N: min(want-u.size, copyStep)})
	}
	if err == nil && u.size < want && !u.options.Append {
		err = ErrOffset // a program has truncated the file meanwhile
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = marked(ErrNoRoomToCopy, stripPaths(err))
	}
	return err
}

// Name returns the FTP path of the target.
func (u *Upload) Name() string { return u.name }

// Size returns the length of the file so far, with the copied old content. The bytes of a ReadFrom count when it returns.
func (u *Upload) Size() int64 { return u.size }

// Write adds bytes to the file.
func (u *Upload) Write(p []byte) (n int, err error) {
	if err = u.tree.injectedFault("write"); err == nil {
		n, err = u.file.Write(p)
	}
	u.size += int64(n)
	u.follow()
	return n, fail("upload", u.name, err)
}

// ReadFrom adds everything from r until EOF. From a *net.TCPConn the kernel moves the bytes (splice).
func (u *Upload) ReadFrom(r io.Reader) (n int64, err error) {
	err = u.tree.injectedFault("write")
	for part := int64(followStep); part == followStep && err == nil; n += part {
		part, err = u.file.ReadFrom(&io.LimitedReader{R: r, N: followStep})
		u.size += part
		u.follow()
	}
	return n, fail("upload", u.name, err)
}
