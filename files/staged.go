package files

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Sum returns how long the content is, and its SHA-256 in hexadecimal. It reads it back, so that receiving it can
// be left to the kernel; what came just now is still in memory.
func (u *Upload) Sum() (size int64, sum string, err error) {
	f, err := u.reopen()
	if err != nil {
		return 0, "", fail("sum", u.Name(), err)
	}
	defer f.Close()
	h := sha256.New()
	if err := u.tree.sys.check("sum"); err != nil {
		return 0, "", fail("sum", u.Name(), err)
	}
	if size, err = io.Copy(h, io.NewSectionReader(f, 0, f.size)); err != nil {
		return 0, "", fail("sum", u.Name(), err)
	}
	return size, hex.EncodeToString(h.Sum(nil)), nil
}

// reopen opens the temporary once more, for reading from its begin.
func (u *Upload) reopen() (*regular, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return nil, ErrDone
	}
	fd, err := u.tree.sys.openat(u.place.dir, u.rec.temporary(), unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return u.tree.take(fd)
}

// Download is [Tree.Download] of what was uploaded so far, before anybody else can see it. name is shown in errors.
func (u *Upload) Download(name string, o DownloadOptions) (*Download, error) {
	f, err := u.reopen()
	if err != nil {
		return nil, fail("download", name, err)
	}
	return u.tree.download(f, name, o)
}

// Stat describes what was uploaded so far.
func (u *Upload) Stat() (fs.FileInfo, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return nil, fail("stat", u.Name(), ErrDone)
	}
	_, base := split(u.Name())
	i, err := u.tree.sys.fstat(int(u.file.Fd()), base)
	if err != nil {
		return nil, fail("stat", u.Name(), err)
	}
	return i, nil
}

// Chtimes sets the times that the file will have; a zero time is left as it is. After Sync only.
func (u *Upload) Chtimes(atime, mtime time.Time) error {
	return u.change("chtimes", func(fd int) error { return u.tree.sys.chtimesPath(fd, atime, mtime) })
}

// Chmod sets the permissions that the file will have. After Sync only.
func (u *Upload) Chmod(mode fs.FileMode) error {
	return u.change("chmod", func(fd int) error { return u.tree.sys.fchmod(fd, uint32(mode.Perm())) })
}

func (u *Upload) change(op string, f func(fd int) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return fail(op, u.Name(), ErrDone)
	}
	return fail(op, u.Name(), f(int(u.file.Fd())))
}

// InPlace returns nil if the directory that the upload's name leads to, through no link, is the one that it will be
// published in. Otherwise the error matches ErrMoved.
func (u *Upload) InPlace() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return fail("publish", u.Name(), ErrDone)
	}
	t := u.tree
	t.life.RLock()
	defer t.life.RUnlock()
	dir, _ := split(u.Name())
	fd, err := t.openPlain(dir)
	if err != nil {
		return fail("publish", u.Name(), err)
	}
	defer unix.Close(fd)
	return fail("publish", u.Name(), t.sameDirectory(fd, u.place.dir))
}

func (t *Tree) sameDirectory(fd, other int) error {
	a, err := t.sys.fstat(fd, "")
	if err != nil {
		return err
	}
	b, err := t.sys.fstat(other, "")
	if err != nil {
		return err
	}
	if !a.same(b) {
		return ErrMoved
	}
	return nil
}

// openPlain opens a directory by a clean path without a link in it: ErrMoved if there is one, or nothing. The caller
// holds t.life.
func (t *Tree) openPlain(dir string) (int, error) {
	if t.rootfd < 0 {
		return -1, errClosed
	}
	fd, err := t.sys.openNoLinks(dir, dirFlags)
	if err != unix.ELOOP {
		if missing(err) {
			err = ErrMoved
		}
		return fd, err
	}
	real, err := t.resolveLinks(dir)
	if err != nil {
		return -1, err
	}
	if real != dir {
		return -1, ErrMoved
	}
	return t.sys.open(dir, dirFlags, 0)
}

// Link begins an upload to newname that is whole already: with the file that has oldname now as its content, the very
// file, time and mode included. So a renaming can be prepared that nobody sees. It must be a regular file on
// the same file system.
func (t *Tree) Link(oldname, newname string) (*Upload, error) {
	from, err := t.enter(oldname, dirFlags)
	if err != nil {
		return nil, fail("link", from.name, err)
	}
	defer t.leave(from)
	newname, err = clean(newname)
	if err != nil {
		return nil, fail("link", newname, err)
	}
	u := &Upload{tree: t, set: t.settings(), name: newname}
	if err := u.link(from); err != nil {
		u.abandon()
		return nil, fail("link", newname, err)
	}
	return u, nil
}

func (u *Upload) link(from place) error {
	t := u.tree
	old, err := t.sys.lstatat(from.dir, from.base, from.base)
	if err != nil {
		return err
	}
	if !old.isRegular() {
		return ErrNotRegular
	}
	if err := u.openParent(); err != nil {
		return err
	}
	if _, err := u.target(); err != nil {
		return err
	}
	if u.rec, err = t.newRecord(u.place); err != nil {
		return err
	}
	if err := t.sys.linkat(from.dir, from.base, u.place.dir, u.rec.temporary()); err != nil {
		u.forget()
		return newName(err)
	}
	fd, err := t.sys.openat(u.place.dir, u.rec.temporary(), unix.O_RDONLY)
	if err != nil {
		u.unlinkTemporary()
		return err
	}
	u.file, u.whole = os.NewFile(uintptr(fd), u.name), true
	u.size.Store(old.Size())
	t.reg.begin(u)
	return nil
}

// unlinkTemporary undoes the beginning of a Link. What cannot be removed stays recorded for a Sweep.
func (u *Upload) unlinkTemporary() {
	if err := u.tree.sys.unlinkat(u.place.dir, u.rec.temporary()); err != nil {
		u.rec.file.Close()
		u.rec = nil
		return
	}
	u.forget()
}
