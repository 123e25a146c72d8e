package files

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
)

// Rename gives a file or directory another name. A file replaces a file in one step. Nothing replaces a directory, and a directory
// replaces nothing: EISDIR if the new name is a directory, else fs.ErrExist. A link is renamed itself.
//
// Only if programs on the host replace both files by directories in the same
// microsecond could one directory replace the other, and then only an empty one.
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
		t.renames.Add(1)
		return nil
	case strings.HasPrefix(to.name, from.name+"/"):
		return syscall.EINVAL // into itself
	case errors.Is(err, fs.ErrExist), err == errNoRenameNew:
		return t.replace(from, to)
	}
	return err
}

// replace renames if something has the new name, or if the file system cannot rename without replacing. The system refuses a file
// over a directory and a directory over a file, but would allow a directory over an empty one.
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
	if err := markBadName(from.dir.rename(from.base, to)); err != nil {
		return err
	}
	if there != nil && old.same(there) && old.details.links > 1 {
		// If both names are links of one file, rename(2) does nothing. The old name must go, as with mv(1).
		if err := from.dir.removeFile(from.base); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	t.renames.Add(1)
	return nil
}
