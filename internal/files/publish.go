package files

import (
	"cmp"
	"errors"
	"io/fs"
	"syscall"
)

// Sync completes the content: the file gets its mode and is closed, which is when a network file system reports a full disk. If the
// tree is durable the content is on disk afterwards. This is the slow part of a publication. No Write and no Sum may follow.
func (u *Upload) Sync() error {
	err := u.keepMode()
	if err == nil && u.set.durable {
		err = cmp.Or(u.tree.check("fsync"), u.file.Sync())
	}
	err = cmp.Or(err, u.tree.check("close"), u.file.Close())
	u.file = nil
	return fail("sync", u.Name(), err)
}

// keepMode gives the temporary file the permissions of the file that it replaces, and the owner where
// the process may: a write into the old file keeps both. A new file has its mode from the start.
func (u *Upload) keepMode() error {
	old, err := u.dir.lstat(u.base)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !old.mode.IsRegular():
		return nil
	case err != nil:
		return err
	}
	now, err := describe(u.file, u.base)
	if err != nil {
		return err
	}
	if old.details.user != now.details.user || old.details.group != now.details.group {
		err := cmp.Or(u.tree.check("chown"), bare(u.file.Chown(old.details.user, old.details.group)))
		if err != nil && err != syscall.EPERM && err != syscall.EINVAL {
			return err
		}
	}
	if old.mode.Perm() == now.mode.Perm() {
		return nil
	}
	return cmp.Or(u.tree.check("chmod"), u.file.Chmod(old.mode.Perm()))
}

// Place gives the file its name, in one step: a program that opens the name gets the old file or the new one. It waits for no disk.
// Sync comes before, and Last after. After an error the old file is as it was. ChooseAnother may follow fs.ErrExist with Unique.
func (u *Upload) Place() error {
	to := place{u.dir, u.base, u.Name()}
	defer u.tree.names.lock(to.name)()
	err := u.checkOld()
	if err == nil {
		err = u.rename(to)
	}
	switch {
	case err == nil:
		u.temp = ""
	case errors.Is(err, fs.ErrNotExist): // the directory is open, and only the temporary file may be missing from it
		err = marked(ErrSwept, err)
	}
	return fail("publish", to.name, err)
}

// rename gives the temporary file its name. The system refuses if a directory has the name.
func (u *Upload) rename(to place) error {
	if !u.opt.Unique {
		return newName(u.dir.rename(u.temp, to))
	}
	err := u.dir.renameNew(u.temp, to)
	if err != errNoRenameNew {
		return err
	}
	if err := u.dir.link(u.temp, u.base); err != nil { // a link does not replace either
		return newName(err)
	}
	_ = u.removeTemporary() // it is logged
	return nil
}

// Last makes the name of a file survive a loss of power, after Place, if the tree is durable: it syncs the directory. The
// upload is over. An error matches ErrNotDurable.
func (u *Upload) Last() error {
	if u.temp != "" || u.dir == (directory{}) {
		return fail("publish", u.Name(), ErrDone)
	}
	var err error
	if u.set.durable {
		err = u.dir.sync()
	}
	u.end()
	if err != nil {
		err = marked(ErrNotDurable, bare(err))
	}
	return fail("publish", u.Name(), err)
}

// Discard ends the upload and removes the temporary file. A published file stays. A second call does nothing.
// A temporary file that cannot be removed stays hidden until a later start sweeps it.
func (u *Upload) Discard() error {
	if u.file != nil {
		u.file.Close() // the content is of no use any more
	}
	err := u.removeTemporary()
	u.end()
	return fail("discard", u.Name(), err)
}

func (u *Upload) removeTemporary() error {
	if u.temp == "" {
		return nil
	}
	err := u.dir.removeFile(u.temp)
	u.temp = ""
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	u.tree.uploads.leave()
	u.tree.log.Warn("a temporary file could not be removed", "name", u.Name(), "err", err)
	return err
}

// end gives back what the upload holds.
func (u *Upload) end() {
	if u.dir != (directory{}) {
		u.dir.close()
	}
	u.dir, u.file = directory{}, nil
	u.tree.uploads.remove(u)
}

// InPlace returns nil if the upload's name still leads, through no link, to the directory that the file will be
// published in. Otherwise the error matches ErrMoved.
func (u *Upload) InPlace() error {
	dir, _ := split(u.Name())
	return fail("publish", u.Name(), u.inPlace(dir))
}

func (u *Upload) inPlace(dir string) error {
	there, err := u.tree.openPlain(dir)
	if missing(err) || errors.Is(err, syscall.ELOOP) {
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
	if err == nil && !a.same(b) {
		err = ErrMoved
	}
	return err
}
