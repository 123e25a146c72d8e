package files

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Keep ends the upload and leaves what was received for owner: an Upload to the same name with
// HasOffset and this Owner goes on with it. Nobody sees it before; it is removed when it is older than
// MaxAge, or by another Keep of the same owner and name. An owner is needed.
func (u *Upload) Keep(owner string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return fail("keep", u.Name(), ErrDone)
	}
	if owner == "" || u.opt.Unique {
		return fail("keep", u.Name(), fs.ErrInvalid)
	}
	return fail("keep", u.Name(), u.keepLocked(owner))
}

func (u *Upload) keepLocked(owner string) error {
	t, name := u.tree, u.Name()
	u.rec.owner, u.rec.single = owner, false
	u.rec.dir, u.rec.base = split(name)
	if err := t.appendRecord(u.rec); err != nil {
		u.discardLocked()
		return err
	}
	if earlier, ok := t.reg.keptID(u.rec.key()); ok {
		t.removeKept(earlier)
	}
	t.reg.keep(u.rec)
	u.over = true
	u.file.Close()
	u.rec.file.Close()
	u.place.close()
	t.reg.end(u)
	return nil
}

// Kept returns how long the upload is that owner left with Keep under this name.
func (t *Tree) Kept(name, owner string) (size int64, ok bool) {
	name, err := clean(name)
	if err != nil {
		return 0, false
	}
	id, ok := t.reg.keptID(keep{name, owner})
	if !ok {
		return 0, false
	}
	dir, _ := split(name)
	t.life.RLock()
	defer t.life.RUnlock()
	fd, err := t.open(dir, dirFlags)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	i, err := t.sys.lstatat(fd, prefix+id, "")
	if err != nil || !i.isRegular() {
		return 0, false
	}
	return i.Size(), true
}

// removeKept removes what was kept before.
func (t *Tree) removeKept(id string) {
	_, r, ok, err := t.claimRecord(id)
	if err == nil && ok && r != nil {
		_, err = t.removeLeftOver(r)
	}
	if err != nil {
		t.log.Warn("a kept upload could not be removed", "error", err)
	}
}

// resume takes up what the owner left, cut off at the offset. With ok false there is nothing, or not enough.
func (u *Upload) resume() (ok bool, err error) {
	t := u.tree
	id, ok := t.reg.keptID(keep{u.name, u.opt.Owner})
	if !ok {
		return false, nil
	}
	f, r, ok, err := t.claimRecord(id)
	if !ok || err != nil {
		return false, err
	}
	if r == nil || r.owner != u.opt.Owner || r.key() != (keep{u.name, u.opt.Owner}) {
		f.Close()
		return false, nil
	}
	fd, err := t.sys.openat(u.place.dir, r.temporary(), unix.O_RDWR)
	if err != nil {
		f.Close()
		if errors.Is(err, unix.ENOENT) {
			err = nil
		}
		return false, err
	}
	if ok, err = u.takeUp(fd, r); !ok || err != nil {
		unix.Close(fd)
		f.Close()
	}
	return ok, err
}

func (u *Upload) takeUp(fd int, r *record) (ok bool, err error) {
	t := u.tree
	i, err := t.sys.fstat(fd, "")
	if err != nil || !i.isRegular() || u.opt.Offset < 0 || i.Size() < u.opt.Offset {
		return false, err
	}
	if err := t.sys.truncate(fd, u.opt.Offset); err != nil {
		return false, err
	}
	t.reg.forget(r)
	r.owner = "" // it is an ordinary upload again: a crash ends it
	if err := t.appendRecord(r); err != nil {
		return false, err
	}
	u.rec, u.file, u.place.base = r, newFile(fd, u.name), r.base
	u.size.Store(u.opt.Offset)
	return true, nil
}
