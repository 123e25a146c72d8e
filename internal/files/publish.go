package files

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"syscall"
)

// Sync completes the content: it gives the file the properties of the file that it replaces, syncs it if the tree is durable, and closes it,
// because a network file system reports a full disk only then. This is the slow part of a publication. No Write and no Sum may follow.
func (u *Upload) Sync() error {
	err := cmp.Or(u.endFollower(), u.keepAttributes())
	if err == nil && u.settings.durable {
		err = cmp.Or(u.tree.injectedFault("fsync"), u.file.Sync())
	}
	err = cmp.Or(err, u.tree.injectedFault("close"), u.file.Close())
	u.file = nil
	return fail("sync", u.name, err)
}

// The properties of a replaced file that Lost can return.
const (
	lostOwner  = "owner"
	lostGroup  = "group"
	lostACL    = "access control list"
	lostXattrs = "extended attributes"
)

// Lost returns, after Sync, the properties of the replaced file that the new one does not have, because the process may not set them: "owner",
// "group", "access control list", "extended attributes".
func (u *Upload) Lost() []string { return u.lost }

func (u *Upload) lose(what string) {
	if !slices.Contains(u.lost, what) {
		u.lost = append(u.lost, what)
	}
}

// keepAttributes gives the temporary file the attributes, the permissions, the group and the owner of the file that it replaces, as far as the
// process may, as if the client had written into the old file. It reads them anew: a program may have changed them since the upload began.
func (u *Upload) keepAttributes() error {
	old, err := u.dir.lstat(u.base)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !old.mode.IsRegular():
		return nil
	case err != nil:
		return err
	}
	u.release = u.dir.retain(u.base, old)  // until Finish or Discard, when the caller holds no mutex any more
	if err := u.keepXattrs(); err != nil { // an access control list sets the permissions, too
		return err
	}
	now, err := describe(u.file, u.base)
	if err == nil && old.mode.Perm() != now.mode.Perm() {
		err = cmp.Or(u.tree.injectedFault("chmod"), u.file.Chmod(old.mode.Perm()))
	}
	if err == nil && old.details.group != now.details.group {
		err = u.chown(lostGroup, -1, old.details.group)
	}
	if err == nil && old.details.user != now.details.user {
		err = u.chown(lostOwner, old.details.user, -1)
	}
	return err
}

// chown sets the owner or the group of the temporary file. Most processes may set only a group that they are in.
func (u *Upload) chown(what string, user, group int) error {
	err := u.tree.injectedFault("chown")
	if err == nil {
		err = stripPaths(u.file.Chown(user, group))
	}
	if err == syscall.EPERM || err == syscall.EINVAL { // EINVAL: the user namespace of the process has no such id
		u.lose(what)
		return nil
	}
	return err
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
	return u.CheckParent()
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
	if u.follower != nil {
		u.follower.abandoned.Store(true)
		_ = u.endFollower()
	}
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

// CheckParent returns ErrMoved unless the parent of the name is still, through no link, the directory in which the upload began.
func (u *Upload) CheckParent() error {
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
