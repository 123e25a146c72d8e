package files

import (
	"errors"
	"io/fs"
	"syscall"
)

// Sync completes the content: the file gets its mode and is closed, which is when a network file system reports a full disk, and if the
// tree is durable it is on disk afterwards. This is the slow part, to be done before whatever
// Place must be one step with. No Write and no Sum is possible afterwards.
func (u *Upload) Sync() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return fail("sync", u.Name(), u.syncLocked())
}

func (u *Upload) syncLocked() error {
	err := u.standsLocked()
	if err != nil || u.whole {
		return err
	}
	u.broken = u.settleLocked()
	if err := u.closeFile(); u.broken == nil {
		u.broken = err
	}
	u.whole = u.broken == nil
	return u.broken
}

func (u *Upload) settleLocked() error {
	if err := u.keepMode(); err != nil {
		return err
	}
	if !u.set.durable {
		return nil
	}
	if err := u.tree.check("fsync"); err != nil {
		return err
	}
	return bare(u.file.Sync())
}

func (u *Upload) closeFile() error {
	err := bare(u.file.Close())
	if fault := u.tree.check("close"); fault != nil {
		return fault
	}
	return err
}

// keepMode gives the temporary file the permissions of the file that it is to replace, and the owner where
// the process may; a write into the old file would have kept both. A new file has its mode since it was made.
func (u *Upload) keepMode() error {
	t := u.tree
	old, err := u.dir.lstat(u.base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !old.mode.IsRegular() {
		return nil
	}
	now, err := describe(u.file, u.base)
	if err != nil {
		return err
	}
	if old.details.user != now.details.user || old.details.group != now.details.group {
		if err := t.check("chown"); err != nil {
			return err
		}
		err := bare(u.file.Chown(old.details.user, old.details.group))
		if err != nil && err != syscall.EPERM && err != syscall.EINVAL {
			return err
		}
	}
	if old.mode.Perm() == now.mode.Perm() {
		return nil
	}
	if err := t.check("chmod"); err != nil {
		return err
	}
	return bare(u.file.Chmod(old.mode.Perm()))
}

// Place gives the file its name, in one step: a program that opens the name gets the old file or the new one. It does what
// Sync does if that was not done, and else waits for no disk. After an error the old file is as it was and
// nothing is left of the upload, but for fs.ErrExist with Unique: Discard or ChooseAnother must follow. Without an error Last must.
func (u *Upload) Place() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	err := u.syncLocked()
	if err == nil {
		err = u.rename()
	}
	if err != nil {
		taken := u.opt.Unique && errors.Is(err, fs.ErrExist)
		err = fail("publish", u.Name(), err)
		if !taken {
			u.discardLocked()
		}
		return err
	}
	u.placed = true
	return nil
}

// rename renames the temporary file. The system refuses if a directory has the name.
func (u *Upload) rename() error {
	to := place{u.dir, u.base, u.Name()}
	defer u.tree.names.lock(to.name)()
	if err := u.checkOld(); err != nil {
		return err
	}
	if !u.opt.Unique {
		return swept(newName(u.dir.rename(u.temp, to)))
	}
	err := u.dir.renameNew(u.temp, to)
	if err != errNoRenameNew {
		return swept(err)
	}
	// A link refuses a name that is taken as well.
	if err := u.dir.link(u.temp, u.base); err != nil {
		return swept(newName(err))
	}
	u.removeTemporary()
	return nil
}

// swept marks what the system says when the temporary file has no name any more. Its directory is held open, and has no other name
// that could be missing.
func swept(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return marked(ErrSwept, err)
	}
	return err
}

// Last has a file that Place has given its name survive a loss of power, if the tree is durable: it syncs the directory. The
// upload is over. An error matches ErrNotDurable.
func (u *Upload) Last() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over || !u.placed {
		return fail("publish", u.Name(), ErrDone)
	}
	name := u.Name()
	var err error
	if u.set.durable {
		err = u.dir.sync()
	}
	u.endLocked()
	if err != nil {
		return fail("publish", name, marked(ErrNotDurable, bare(err)))
	}
	return nil
}

// Discard ends the upload and removes the temporary file. After Last or another Discard it does nothing; after Place it
// gives back what Last would.
// If the temporary file cannot be removed it stays hidden, and a later Sweep removes it.
func (u *Upload) Discard() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return fail("discard", u.Name(), u.discardLocked())
}

func (u *Upload) discardLocked() (err error) {
	if u.over {
		return nil
	}
	if u.file != nil && !u.placed {
		err = u.removeTemporary()
	}
	u.endLocked()
	return err
}

func (u *Upload) removeTemporary() error {
	err := u.dir.removeFile(u.temp)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir, _ := split(u.Name())
	u.tree.uploads.leave(dir, u.temp)
	u.tree.log.Warn("a temporary file could not be removed", "name", u.Name(), "err", err)
	return err
}

// endLocked gives back what the upload holds.
func (u *Upload) endLocked() {
	u.over = true
	if u.file != nil {
		u.file.Close() // it is discarded, or Sync has closed it
	}
	if u.dir != (directory{}) {
		u.dir.close()
	}
	u.tree.uploads.remove(u)
}

// InPlace returns nil if the directory that the upload's name leads to, through no link, is the one that it will be
// published in. Otherwise the error matches ErrMoved.
func (u *Upload) InPlace() error { return fail("publish", u.Name(), u.inPlace()) }

func (u *Upload) inPlace() error {
	dir, _ := split(u.Name())
	plain, err := u.tree.resolveLinks(dir)
	if err != nil {
		return err
	}
	if plain != dir {
		return ErrMoved
	}
	there, err := u.tree.openDirectory(dir)
	if missing(err) {
		return ErrMoved
	}
	if err != nil {
		return err
	}
	defer there.close()
	a, err := there.lstat(".")
	if err != nil {
		return err
	}
	b, err := u.dir.lstat(".")
	if err != nil {
		return err
	}
	if !a.same(b) {
		return ErrMoved
	}
	return nil
}
