package files

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"
)

// Mkdir makes a directory, less the umask. The name must be free: fs.ErrExist.
func (t *Tree) Mkdir(name string, perm fs.FileMode) error {
	return t.inRoot("mkdir", name, func(rel string) error {
		if rel == "." {
			return syscall.EEXIST
		}
		return t.root.Mkdir(rel, perm.Perm())
	})
}

// MkdirAll makes a directory and those above it that are missing. An existing directory is no error.
func (t *Tree) MkdirAll(name string, perm fs.FileMode) error {
	return t.inRoot("mkdir", name, func(rel string) error { return t.root.MkdirAll(rel, perm.Perm()) })
}

// MakeDurable makes changes of the names (made, renamed, removed) survive a loss of power, if the tree is durable. It waits for the
// disk. An error is ErrNotDurable; the change stays.
func (t *Tree) MakeDurable(names ...string) error {
	if !t.settings.Load().durable {
		return nil
	}
	var synced []string
	for _, name := range names {
		if dir := path.Dir(name); !slices.Contains(synced, dir) {
			synced = append(synced, dir)
			if err := t.syncAbove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// syncAbove syncs the directory of a name, unless it was removed.
func (t *Tree) syncAbove(name string) error {
	err := t.at("sync", name, func(p place) error { return p.dir.sync() })
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fail("sync", name, marked(ErrNotDurable, stripPaths(err)))
}

// markBadName marks the error of a file system that cannot hold a name.
func markBadName(err error) error {
	if err == syscall.EINVAL {
		return marked(ErrName, syscall.EINVAL)
	}
	return err
}

// Check is called right before a change, when the directories of its names are open. The change happens in those, even if other
// directories have got their names since the check. An error prevents the change. A nil Check does nothing.
type Check func() error

func (c Check) run() error {
	if c == nil {
		return nil
	}
	return c()
}

// RemoveDir removes an empty directory: ENOTEMPTY, ENOTDIR. It is not empty during an upload into it.
func (t *Tree) RemoveDir(name string) error {
	return t.at("rmdir", name, func(p place) error {
		if p.base == "." {
			return syscall.EBUSY
		}
		return p.dir.removeDir(p.base)
	})
}

// RemoveFile removes a file, or a link itself. A directory is EISDIR.
func (t *Tree) RemoveFile(name string, check Check) error {
	return t.at("unlink", name, func(p place) error {
		if p.base == "." {
			return syscall.EISDIR
		}
		defer t.names.lock(p.name)()
		if err := check.run(); err != nil {
			return err
		}
		return p.dir.removeFile(p.base)
	})
}

// retainFrom is the size from which the release of a file's blocks takes longer than half a millisecond.
const retainFrom = 1 << 20

// Retain keeps the content of a large file until release is called, so that a removal, or a rename over the file, takes no longer than that of
// an empty one. The system frees the blocks with the last name or descriptor, which takes 0.3 s for 512 MiB. Call Retain before the
// mutexes for the change are taken, and release when they are free again. Only on Linux.
func (t *Tree) Retain(name string) (release func()) {
	release = func() {}
	_ = t.at("retain", name, func(p place) error { // without a file, the change itself reports it
		if i, err := p.dir.lstat(p.base); err == nil {
			release = p.dir.retain(p.base, i)
		}
		return nil
	})
	return release
}

// Remove always fails. FTP uses RemoveDir and RemoveFile.
func (t *Tree) Remove(name string) error { return fail("remove", name, fs.ErrPermission) }

// RemoveAll is refused: no file that clients see is removed recursively.
func (t *Tree) RemoveAll(name string) error { return fail("removeall", name, fs.ErrPermission) }

// Chown is refused: FTP has no command for it.
func (t *Tree) Chown(name string, _, _ int) error { return fail("chown", name, fs.ErrPermission) }

// Lstat describes the file of a name, or a link itself.
func (t *Tree) Lstat(name string) (fs.FileInfo, error) { return t.stat("lstat", name, false) }

// Stat describes the file of a name. It follows a link within the tree.
func (t *Tree) Stat(name string) (fs.FileInfo, error) { return t.stat("stat", name, true) }

func (t *Tree) stat(op, name string, follow bool) (fs.FileInfo, error) {
	var i *info
	err := t.at(op, name, func(p place) (err error) {
		if i, err = p.dir.lstat(p.base); err == nil && follow && i.isLink() {
			i, err = t.follow(p)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if i.name == "." {
		i.name = "/"
	}
	return i, nil
}

// follow describes the target of a link.
func (t *Tree) follow(p place) (*info, error) {
	f, err := t.open(p.name, openTarget)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return describe(f, p.base)
}

// Space returns how many bytes the process may still write in the directory's file system.
func (t *Tree) Space(dir string) (uint64, error) {
	dir, err := clean(dir)
	if err != nil {
		return 0, fail("space", dir, err)
	}
	d, err := t.openDirectory(dir)
	if err != nil {
		return 0, fail("space", dir, err)
	}
	defer d.close()
	bytes, err := d.space()
	return bytes, fail("space", dir, err)
}

// Chtimes sets the times. A zero time stays as it is. A link is followed within the tree.
func (t *Tree) Chtimes(name string, atime, mtime time.Time) error {
	return t.inRoot("chtimes", name, func(rel string) error { return t.root.Chtimes(rel, atime, mtime) })
}

// Chmod sets the permissions, and clears the setuid, setgid and sticky bits. A link is followed within the tree.
func (t *Tree) Chmod(name string, mode fs.FileMode) error {
	return t.inRoot("chmod", name, func(rel string) error { return t.root.Chmod(rel, mode.Perm()) })
}

// openReadable opens a clean name for reading, if it leads to a regular file or a directory.
func (t *Tree) openReadable(name string) (*os.File, *info, error) {
	f, err := t.open(name, openReading)
	if errors.Is(err, syscall.ENXIO) { // a socket, or a device without a driver
		return nil, nil, ErrNotRegular
	}
	if err != nil {
		return nil, nil, err
	}
	i, err := describe(f, path.Base(name))
	if err == nil && !i.IsDir() && !i.mode.IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, i, nil
}
