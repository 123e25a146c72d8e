package files

import (
	"cmp"
	"errors"
	"io/fs"
	"syscall"
)

// Sync completes the content: it sets the mode of the file, syncs it if the tree is durable, and closes it, because a network file
// system reports a full disk only then. This is the slow part of a publication. No Write and no Sum may follow.
func (u *Upload) Sync() error {
	err := u.keepMode()
	if err == nil && u.settings.durable {
		err = cmp.Or(u.tree.injectedFault("fsync"), u.file.Sync())
	}
	err = cmp.Or(err, u.tree.injectedFault("close"), u.file.Close())
	u.file = nil
	return fail("sync", u.name, err)
}

// keepMode gives the temporary file the permissions of the file that it replaces, and the owner if the process may do so: a program
// that writes into the old file keeps both. A program may have changed them since the upload began.
func (u *Upload) keepMode() error {
	old, err := u.dir.lstat(u.base)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !old.mode.IsRegular():
		return nil
	case err != nil:
		return err
	}
	u.release = u.dir.retain(u.base, old) // until Finish or Discard, when the caller holds no mutex any more
	now, err := describe(u.file, u.base)
	if err != nil {
		return err
	}
	if old.details.user != now.details.user || old.details.group != now.details.group {
		err := cmp.Or(u.tree.injectedFault("chown"), stripPaths(u.file.Chown(old.details.user, old.details.group)))
		if err != nil && err != syscall.EPERM && err != syscall.EINVAL {
			return err
		}
	}
	if old.mode.Perm() == now.mode.Perm() {
		return nil
	}
	return cmp.Or(u.tree.injectedFault("chmod"), u.file.Chmod(old.mode.Perm()))
}

// Place renames the temporary file to the target, in one step: a program that opens the name gets the old file or the new one. It
// waits for no disk. After an error the old file is unchanged.
//
// It returns ErrMoved if a directory above the target was renamed through the tree since the upload began, and ErrChanged if the old
// content that the upload began with has changed.
func (u *Upload) Place() error {
	defer u.tree.names.lock(u.name)()
	err := cmp.Or(u.checkMoved(), u.checkOld())
	if err == nil {
		err = u.rename()
	}
	return fail("publish", u.name, err)
}

func (u *Upload) checkMoved() error {
	if u.renamesAtStart == u.tree.renames.Load() {
		return nil
	}
	return u.InPlace()
}

// checkOld returns ErrChanged if the name no longer leads to the file that copyOld copied, or if that file has changed.
func (u *Upload) checkOld() error {
	if !u.copies() {
		return nil
	}
	now, err := u.dir.lstat(u.base)
	if err == nil && now.isLink() {
		now, err = u.tree.follow(place{u.dir, u.base, u.name})
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

// rename renames the temporary file. The system refuses to replace a directory by a file.
func (u *Upload) rename() error {
	to := place{u.dir, u.base, u.name}
	var err error
	if u.options.New {
		err = u.dir.renameNew(u.temp, to)
	} else {
		err = u.dir.rename(u.temp, to)
	}
	if err == errNoRenameNew { // a link replaces nothing either
		if err = u.dir.link(u.temp, u.base); err == nil {
			_ = u.removeTemporary() // it logs a failure
			return nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) { // the directory is open, so only the temporary file can be missing
		return marked(ErrSwept, err)
	}
	if err == nil {
		u.temp = ""
		u.tree.unfinished.Add(-1)
	}
	return markBadName(err)
}

// Finish ends the upload after Place: if the tree is durable, it syncs the directory. An error matches ErrNotDurable; the file is
// published then, but a loss of power may undo that.
func (u *Upload) Finish() error {
	if u.temp != "" || u.dir == (directory{}) {
		return fail("publish", u.name, ErrDone)
	}
	var err error
	if u.settings.durable {
		err = u.dir.sync()
	}
	u.closeDirectory()
	if err != nil {
		err = marked(ErrNotDurable, stripPaths(err))
	}
	return fail("publish", u.name, err)
}

// Discard ends the upload and removes the temporary file; a published file stays. A second call does nothing. A temporary file that
// cannot be removed stays hidden until Sweep removes it.
func (u *Upload) Discard() error {
	if u.file != nil {
		u.file.Close() // nothing needs the content
	}
	err := u.removeTemporary()
	u.closeDirectory()
	return fail("discard", u.name, err)
}

func (u *Upload) removeTemporary() error {
	if u.temp == "" {
		return nil
	}
	temp := u.temp
	u.temp = ""
	err := u.dir.removeFile(temp)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		u.tree.unfinished.Add(-1)
		return nil
	}
	u.tree.failedRemovals.add(temporary{u.dir.name, temp})
	u.tree.log.Warn("a temporary file could not be removed", "name", u.name, "err", err)
	return err
}

// closeDirectory closes the directory, which ends the upload.
func (u *Upload) closeDirectory() {
	if u.dir != (directory{}) {
		u.dir.close()
	}
	if u.release != nil {
		u.release()
	}
	u.dir, u.file, u.release = directory{}, nil, nil
}

// InPlace returns ErrMoved unless the name still leads, through no link, to the directory in which the upload began.
func (u *Upload) InPlace() error {
	dir, _ := split(u.name)
	there, err := u.tree.openPlain(dir)
	if missing(err) || errors.Is(err, syscall.ELOOP) {
		err = ErrMoved
	}
	if err == nil {
		defer there.close()
		err = u.sameDirectory(there)
	}
	return fail("publish", u.name, err)
}

func (u *Upload) sameDirectory(there directory) error {
	a, err := there.lstat(".")
	if err != nil {
		return err
	}
	b, err := u.dir.lstat(".")
	if err == nil && !a.same(b) {
		err = ErrMoved
	}
	return err
}
