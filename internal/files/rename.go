package files

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
)

// Rename gives a file or directory another name. A file replaces a file in one step. A directory is
// never replaced, nor does a directory replace anything: fs.ErrExist, or EISDIR if the new name is one. Links are renamed themselves.
//
// Only if both names are files at first and both are swapped for directories in the same
// microsecond could one replace the other, and then only an empty one.
func (t *Tree) Rename(oldname, newname string) error { return t.Move(oldname, newname, nil) }

// Move is Rename with a check.
func (t *Tree) Move(oldname, newname string, check Check) error {
	var err error
	missed := t.at("rename", oldname, func(from place) error {
		err = t.at("rename", newname, func(to place) error {
			if from.base == "." || to.base == "." {
				return syscall.EBUSY
			}
			defer t.names.lock(from.name, to.name)()
			if err := check.run(); err != nil {
				return err
			}
			return t.rename(from, to)
		})
		return nil
	})
	if missed != nil {
		return missed
	}
	return err
}

func (t *Tree) rename(from, to place) error {
	err := from.dir.renameNew(from.base, to)
	switch {
	case err == nil:
		t.uploads.moved(from.name, to.name)
		return nil
	case strings.HasPrefix(to.name, from.name+"/"):
		return syscall.EINVAL // into itself
	case errors.Is(err, fs.ErrExist), err == errNoRenameNew:
		return t.replace(from, to)
	}
	return err
}

// replace renames where something has the new name already, or the file system cannot rename without replacing.
// The system refuses a file over a directory and a directory over a file itself; what it
// would allow is a directory over an empty one.
func (t *Tree) replace(from, to place) error {
	old, err := from.dir.lstat(from.base)
	if err != nil {
		return err
	}
	there, err := to.dir.lstat(to.base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		there = nil
	case err != nil:
		return err
	case from.name == to.name:
		return nil
	case old.same(there) && old.IsDir(): // another spelling
	case there.IsDir():
		return syscall.EISDIR
	case old.IsDir():
		return fs.ErrExist
	}
	if err := newName(from.dir.rename(from.base, to)); err != nil {
		return err
	}
	if there != nil && old.same(there) && old.details.links > 1 {
		// rename(2) does nothing if both are links of one file; the old name is to go all the same, as mv(1) has it.
		if err := from.dir.removeFile(from.base); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	t.uploads.moved(from.name, to.name)
	return nil
}
