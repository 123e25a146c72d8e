package files

import (
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// Rename gives a file or directory another name. A file replaces a file in one step. A directory is
// never replaced, nor does a directory replace anything: fs.ErrExist, or EISDIR if the new name is one. Links are renamed themselves.
//
// Only if both names are files at first and both are swapped for directories in the same
// microsecond could one replace the other, and then only an empty one.
func (t *Tree) Rename(oldname, newname string) error {
	from, err := t.enter(oldname, dirFlags)
	if err != nil {
		return fail("rename", from.name, err)
	}
	defer t.leave(from)
	newname, err = clean(newname)
	if err != nil {
		return fail("rename", newname, err)
	}
	to, err := t.find(newname, dirFlags)
	if err != nil {
		return fail("rename", newname, err)
	}
	defer to.close()
	if from.base == "." || to.base == "." {
		return fail("rename", "/", unix.EBUSY)
	}
	return fail("rename", newname, t.rename(from, to))
}

func (t *Tree) rename(from, to place) error {
	err := t.sys.renameNew(from.dir, from.base, to.dir, to.base)
	if err == nil {
		t.reg.moved(from.name, to.name)
		return nil
	}
	if err == unix.EINVAL && strings.HasPrefix(to.name, from.name+"/") {
		return err // into itself
	}
	if err != unix.EEXIST && err != unix.EINVAL && err != unix.ENOSYS {
		return err
	}
	return t.replace(from, to)
}

// replace renames where something has the new name already, or the file system has no RENAME_NOREPLACE.
// The kernel refuses a file over a directory and a directory over a file itself; what it
// would allow is a directory over an empty one.
func (t *Tree) replace(from, to place) error {
	old, err := t.sys.lstatat(from.dir, from.base, from.base)
	if err != nil {
		return err
	}
	there, err := t.sys.lstatat(to.dir, to.base, to.base)
	switch {
	case err == unix.ENOENT:
	case err != nil:
		return err
	case from.name == to.name:
		return nil
	case old.same(there) && old.IsDir(): // another spelling
	case there.IsDir():
		return unix.EISDIR
	case old.IsDir():
		return fs.ErrExist
	}
	if err := newName(t.sys.renameat(from.dir, from.base, to.dir, to.base)); err != nil {
		return err
	}
	if there != nil && old.same(there) && old.st.Nlink > 1 {
		// rename(2) does nothing if both are links of one file; the old name is to go all the same, as mv(1) has it.
		if err := t.sys.unlinkat(from.dir, from.base); err != nil && err != unix.ENOENT {
			return err
		}
	}
	t.reg.moved(from.name, to.name)
	return nil
}
