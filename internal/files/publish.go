package files

import (
	"golang.org/x/sys/unix"
)

// Sync makes the content complete: the file gets its mode, and if the
// tree is durable it is on disk afterwards. This is the slow part of Publish, to be done before whatever
// Publish must be one step with. Another Write is possible and undoes it.
func (u *Upload) Sync() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return fail("sync", u.Name(), ErrDone)
	}
	return fail("sync", u.Name(), u.syncLocked())
}

func (u *Upload) syncLocked() error {
	if err := u.brokenLocked(); err != nil {
		return err
	}
	if u.whole {
		return nil
	}
	err := u.settleLocked()
	if err != nil {
		u.broken = err
		return err
	}
	u.whole = true
	return nil
}

func (u *Upload) settleLocked() error {
	if err := u.keepMode(); err != nil {
		return err
	}
	if u.set.durable {
		return u.tree.sys.fsync(int(u.file.Fd()))
	}
	return nil
}

// keepMode gives the temporary the permissions of the file that it is to replace, and the owner where
// the process may; a write into the old file would have kept both. A new file has its mode since it was made.
func (u *Upload) keepMode() error {
	t, fd := u.tree, int(u.file.Fd())
	old, err := t.sys.lstatat(u.place.dir, u.place.base, u.place.base)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	if !old.isRegular() {
		return nil
	}
	now, err := t.sys.fstat(fd, "")
	if err != nil {
		return err
	}
	if old.st.Uid != now.st.Uid || old.st.Gid != now.st.Gid {
		if err := t.sys.fchown(fd, int(old.st.Uid), int(old.st.Gid)); err != nil && err != unix.EPERM && err != unix.EINVAL {
			return err
		}
	}
	if old.Mode().Perm() == now.Mode().Perm() {
		return nil
	}
	return t.sys.fchmod(fd, uint32(old.Mode().Perm()))
}

// Publish gives the file its name, in one step: who opens the name gets the old file or the new one. It does what
// Sync does if that was not done. After an error nothing is left of the upload and the old file is as
// it was, but for an error that matches ErrNotDurable: then the file is published.
func (u *Upload) Publish() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return fail("publish", u.Name(), ErrDone)
	}
	err := u.syncLocked()
	if err == nil {
		err = u.putInPlace()
	}
	if err != nil {
		u.discardLocked()
		return fail("publish", u.Name(), err)
	}
	name := u.Name()
	if err := u.lasting(); err != nil {
		u.endLocked(u.left)
		return fail("publish", name, &marked{ErrNotDurable, bare(err)})
	}
	u.endLocked(u.left)
	return nil
}

// putInPlace renames the temporary. The kernel refuses if a directory has the name.
func (u *Upload) putInPlace() error {
	t, p, temp := u.tree, u.place, u.rec.temporary()
	if !u.opt.Exclusive && !u.opt.Unique {
		return newName(t.sys.renameat(p.dir, temp, p.dir, p.base))
	}
	err := t.sys.renameNew(p.dir, temp, p.dir, p.base)
	if err != unix.EINVAL && err != unix.ENOSYS {
		return err
	}
	// The file system has no such rename. A link refuses a name that is taken as well.
	if err := t.sys.linkat(p.dir, temp, p.dir, p.base); err != nil {
		return newName(err)
	}
	if err := t.sys.unlinkat(p.dir, temp); err != unix.ENOENT {
		u.left = err
	}
	return nil
}

// lasting syncs the directory that the file was renamed in.
func (u *Upload) lasting() error {
	t := u.tree
	if !u.set.durable {
		return nil
	}
	if u.synced {
		return t.sys.fsync(u.place.dir)
	}
	return t.sys.fsync(int(u.file.Fd())) // the directory may not be read; its journal goes with that of the file
}

// Discard ends the upload and removes the temporary. After Publish or another Discard it does nothing.
// If the temporary cannot be removed it stays hidden, and a later Sweep removes it.
func (u *Upload) Discard() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return nil
	}
	return fail("discard", u.Name(), u.discardLocked())
}

func (u *Upload) discardLocked() error {
	err := u.tree.sys.unlinkat(u.place.dir, u.rec.temporary())
	if err == unix.ENOENT {
		err = nil
	}
	u.endLocked(err)
	return err
}

// endLocked gives back what the upload holds. With left the temporary is there still, and so is its record.
func (u *Upload) endLocked(left error) {
	t := u.tree
	u.over = true
	u.file.Close() // what it could say was said by fsync
	if left != nil {
		u.rec.file.Close()
		t.log.Warn("a temporary could not be removed", "name", u.Name(), "error", left)
	} else if err := t.dropRecord(u.rec); err != nil {
		t.log.Warn("the record of an upload could not be removed", "name", u.Name(), "error", err)
	}
	u.place.close()
	t.reg.end(u)
}

// abandon ends an upload that did not come to be.
func (u *Upload) abandon() {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.over:
	case u.rec != nil && u.file != nil:
		u.discardLocked()
	default:
		u.over = true
		u.place.close()
		u.tree.reg.end(u)
	}
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
