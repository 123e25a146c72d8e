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

// Mkdir makes a directory, less the umask. There may be nothing of that name: fs.ErrExist.
func (t *Tree) Mkdir(name string, perm fs.FileMode) error {
	return t.inRoot("mkdir", name, func(rel string) error {
		if rel == "." {
			return syscall.EEXIST
		}
		return t.root.Mkdir(rel, perm.Perm())
	})
}

// Last has what was done to the names (made, renamed, removed) survive a loss of power, if the tree is durable. It waits for the
// disk. An error is ErrNotDurable; what was done is done.
func (t *Tree) Last(names ...string) error {
	if !t.set.Load().durable {
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

// syncAbove syncs the directory that a name is in. One that is gone is left.
func (t *Tree) syncAbove(name string) error {
	err := t.at("sync", name, func(p place) error { return p.dir.sync() })
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fail("sync", name, marked(ErrNotDurable, bare(err)))
}

// MkdirAll makes a directory and those above it that are missing. A directory that is there is no error.
func (t *Tree) MkdirAll(name string, perm fs.FileMode) error {
	return t.inRoot("mkdir", name, func(rel string) error { return t.root.MkdirAll(rel, perm.Perm()) })
}

// newName marks what a file system says of a name that it cannot hold.
func newName(err error) error {
	if err == syscall.EINVAL {
		return marked(ErrName, syscall.EINVAL)
	}
	return err
}

// Check is called right before a change, when the directories of its names are open: the change happens in those, even if other
// directories have got their names since the check. An error prevents the change. A nil Check does nothing.
type Check func() error

func (c Check) run() error {
	if c == nil {
		return nil
	}
	return c()
}

// RemoveDir removes a directory that is empty: ENOTEMPTY, ENOTDIR. An upload under way in it counts.
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

// Remove removes a directory that is empty, or a file. FTP has different commands for the two and
// uses RemoveDir and RemoveFile; this one is for [afero.Fs].
func (t *Tree) Remove(name string) error {
	err := t.RemoveDir(name)
	if errors.Is(err, syscall.ENOTDIR) {
		return t.RemoveFile(name, nil)
	}
	return err
}

// RemoveAll is refused: nothing that clients see is ever removed recursively.
func (t *Tree) RemoveAll(name string) error { return fail("removeall", name, fs.ErrPermission) }

// Chown is refused: owners are the host's business.
func (t *Tree) Chown(name string, _, _ int) error { return fail("chown", name, fs.ErrPermission) }

// Lstat describes what has that name, a link itself.
func (t *Tree) Lstat(name string) (fs.FileInfo, error) {
	var i *info
	if err := t.at("lstat", name, func(p place) (err error) {
		i, err = p.lstat()
		return err
	}); err != nil {
		return nil, err
	}
	return i, nil
}

func (p place) lstat() (*info, error) {
	i, err := p.dir.lstat(p.base)
	if err == nil && p.base == "." {
		i.name = "/"
	}
	return i, err
}

// Stat describes what has that name, or what a link of that name leads to within the tree.
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	var i *info
	if err := t.at("stat", name, func(p place) (err error) {
		if i, err = p.lstat(); err != nil || !i.isLink() {
			return err
		}
		i, err = t.follow(p)
		return err
	}); err != nil {
		return nil, err
	}
	return i, nil
}

// follow describes what a link leads to.
func (t *Tree) follow(p place) (*info, error) {
	if err := t.check("stat"); err != nil {
		return nil, err
	}
	of, err := t.root.Stat(relative(p.name))
	if err != nil {
		return nil, rooted(err)
	}
	return infoOf(of, p.base), nil
}

// Space returns how many bytes the process may still write in the directory's file system.
func (t *Tree) Space(dir string) (uint64, error) {
	dir, err := clean(dir)
	if _, base := split(dir); err == nil && t.isTemporary(base) {
		err = ErrReserved
	}
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

// Chtimes sets the times; a zero time is left as it is. A link is followed within the tree.
func (t *Tree) Chtimes(name string, atime, mtime time.Time) error {
	return t.inRoot("chtimes", name, func(rel string) error { return t.root.Chtimes(rel, atime, mtime) })
}

// Chmod sets the permissions, and nothing but those: no setuid, setgid, sticky. A link is followed within the tree.
func (t *Tree) Chmod(name string, mode fs.FileMode) error {
	return t.inRoot("chmod", name, func(rel string) error { return t.root.Chmod(rel, mode.Perm()) })
}

// openReadable opens what a clean name leads to for reading, if it is a regular file or a directory.
func (t *Tree) openReadable(name string) (*os.File, *info, error) {
	_, base := split(name)
	if t.isTemporary(base) {
		return nil, nil, ErrReserved
	}
	if base == "." {
		base = "/"
	}
	f, err := t.openFile(name)
	if errors.Is(err, syscall.ENXIO) { // a socket, or a device without a driver
		return nil, nil, ErrNotRegular
	}
	if err != nil {
		return nil, nil, err
	}
	i, err := describe(f, base)
	if err == nil && !i.IsDir() && !i.mode.IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, i, nil
}
