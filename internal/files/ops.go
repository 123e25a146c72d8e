package files

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// errClosed is what operations on a closed tree say.
var errClosed = fs.ErrClosed

// Mkdir makes a directory, less the umask. There may be nothing of that name: fs.ErrExist.
func (t *Tree) Mkdir(name string, perm fs.FileMode) error {
	return t.at("mkdir", name, func(p place) error { return t.mkdir(p, perm) })
}

func (t *Tree) mkdir(p place, perm fs.FileMode) error {
	if p.base == "." {
		return unix.EEXIST
	}
	return newName(t.sys.mkdirat(p.dir, p.base, perm))
}

// MkdirLasting is Mkdir for a directory that files are to be published in: if the tree is durable the directory survives
// a loss of power, or the files in it would go with it. With ErrNotDurable it is made.
func (t *Tree) MkdirLasting(name string, perm fs.FileMode) error {
	if err := t.Mkdir(name, perm); err != nil {
		return err
	}
	return t.Last(name)
}

// Last has what was done to the names (made, renamed, removed) survive a loss of power, if the tree is durable. An error is
// ErrNotDurable; what was done is done.
func (t *Tree) Last(names ...string) error {
	if !t.settings().durable {
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

// syncAbove syncs the directory that a name is in. One that is gone, or may not be read, is left.
func (t *Tree) syncAbove(name string) error {
	p, err := t.enter(name, syncFlags)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		defer t.leave(p)
		err = t.sys.fsync(p.dir)
	}
	if err != nil {
		return fail("sync", p.name, &marked{ErrNotDurable, bare(err)})
	}
	return nil
}

// MkdirAll makes a directory and those above it that are missing. A directory that is there is no error.
func (t *Tree) MkdirAll(name string, perm fs.FileMode) error {
	err := t.Mkdir(name, perm)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		i, statErr := t.Stat(name)
		if statErr != nil {
			return statErr
		}
		if !i.IsDir() {
			return fail("mkdir", name, unix.ENOTDIR)
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	cleaned, cleanErr := clean(name)
	dir, _ := split(cleaned)
	if cleanErr != nil || dir == "/" {
		return err
	}
	if err := t.MkdirAll(dir, perm); err != nil {
		return err
	}
	if err := t.Mkdir(name, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// newName marks what a file system says of a name that it cannot hold.
func newName(err error) error {
	if err == unix.EINVAL {
		return &marked{ErrName, unix.EINVAL}
	}
	return err
}

// RemoveDir removes a directory that is empty: ENOTEMPTY, ENOTDIR. An upload under way in it counts.
func (t *Tree) RemoveDir(name string) error {
	return t.at("rmdir", name, func(p place) error { return t.rmdir(p) })
}

func (t *Tree) rmdir(p place) error {
	if p.base == "." {
		return unix.EBUSY
	}
	return t.sys.rmdirat(p.dir, p.base)
}

// RemoveFile removes a file, or a link itself. A directory is EISDIR.
func (t *Tree) RemoveFile(name string) error {
	return t.at("unlink", name, func(p place) error { return t.unlink(p) })
}

func (t *Tree) unlink(p place) error {
	if p.base == "." {
		return unix.EISDIR
	}
	err := t.sys.unlinkat(p.dir, p.base)
	if err == unix.EPERM { // what POSIX has for a directory
		if i, statErr := t.sys.lstatat(p.dir, p.base, p.base); statErr == nil && i.IsDir() {
			return unix.EISDIR
		}
	}
	return err
}

// Remove removes a directory that is empty, or a file. FTP has different commands for the two and
// uses RemoveDir and RemoveFile; this one is for [afero.Fs].
func (t *Tree) Remove(name string) error {
	return t.at("remove", name, func(p place) error {
		err := t.rmdir(p)
		if err == unix.ENOTDIR {
			return t.unlink(p)
		}
		return err
	})
}

// RemoveAll is refused: nothing in the tree is ever removed recursively.
func (t *Tree) RemoveAll(name string) error { return fail("removeall", name, fs.ErrPermission) }

// Chown is refused: owners are the host's business.
func (t *Tree) Chown(name string, _, _ int) error { return fail("chown", name, fs.ErrPermission) }

// Lstat describes what has that name, a link itself.
func (t *Tree) Lstat(name string) (i fs.FileInfo, err error) {
	err = t.at("lstat", name, func(p place) (e error) {
		i, e = t.lstat(p)
		return e
	})
	if err != nil {
		return nil, err
	}
	return i, nil
}

func (t *Tree) lstat(p place) (*info, error) {
	shown := p.base
	if p.base == "." {
		shown = "/"
	}
	return t.sys.lstatat(p.dir, p.base, shown)
}

// Stat describes what has that name, or what a link of that name leads to within the tree.
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	var i *info
	err := t.at("stat", name, func(p place) (e error) {
		if i, e = t.lstat(p); e != nil || !i.isLink() {
			return e
		}
		i, e = t.follow(p)
		return e
	})
	if err != nil {
		return nil, err
	}
	return i, nil
}

// follow describes what a link leads to.
func (t *Tree) follow(p place) (*info, error) {
	fd, err := t.sys.open(p.name, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return t.sys.fstat(fd, p.base)
}

// Space returns how many bytes the process may still write in the directory's file system.
func (t *Tree) Space(dir string) (bytes uint64, err error) {
	err = t.opened("space", dir, unix.O_PATH, func(fd int, _ string) (e error) {
		bytes, e = t.sys.space(fd)
		return e
	})
	return bytes, err
}

// Chtimes sets the times; a zero time is left as it is. A link is followed within the tree.
func (t *Tree) Chtimes(name string, atime, mtime time.Time) error {
	return t.opened("chtimes", name, unix.O_PATH, func(fd int, _ string) error {
		return t.sys.chtimesPath(fd, atime, mtime)
	})
}

// Chmod sets the permissions, and nothing but those: no setuid, setgid, sticky. A link is followed within the tree.
func (t *Tree) Chmod(name string, mode fs.FileMode) error {
	return t.opened("chmod", name, unix.O_PATH, func(fd int, _ string) error {
		return t.sys.chmodPath(fd, uint32(mode.Perm()))
	})
}

// opened opens what name leads to within the tree, does f with it and closes it.
func (t *Tree) opened(op, name string, flags int, f func(fd int, name string) error) error {
	name, err := clean(name)
	if err != nil {
		return fail(op, name, err)
	}
	t.life.RLock()
	defer t.life.RUnlock()
	fd, err := t.open(name, flags)
	if err != nil {
		return fail(op, name, err)
	}
	defer unix.Close(fd)
	return fail(op, name, f(fd, name))
}

// open opens what a clean name leads to within the tree. The caller holds t.life.
func (t *Tree) open(name string, flags int) (int, error) {
	if t.rootfd < 0 {
		return -1, errClosed
	}
	if _, base := split(name); t.reg.isTemporary(base) {
		return -1, ErrReserved
	}
	return t.sys.open(name, flags, 0)
}

// ReadDir describes what is in a directory, sorted by the bytes of the names, links themselves, without the
// temporaries of uploads. What goes away meanwhile may be missing.
func (t *Tree) ReadDir(name string) (list []fs.FileInfo, err error) {
	err = t.opened("readdir", name, syncFlags, func(fd int, _ string) (e error) {
		list, e = t.readDir(fd)
		return e
	})
	return list, err
}

func (t *Tree) readDir(fd int) ([]fs.FileInfo, error) {
	names, err := readNames(fd)
	if err != nil {
		return nil, err
	}
	list := make([]fs.FileInfo, 0, len(names))
	for _, n := range names {
		if t.reg.isTemporary(n) || Hidden(n) {
			continue
		}
		i, err := t.sys.lstatat(fd, n, n)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, i)
	}
	return list, nil
}

// readNames returns all names in an open directory, sorted.
func readNames(fd int) ([]string, error) {
	var names []string
	err := eachEntry(fd, func(name string, _ uint8) error {
		names = append(names, name)
		return nil
	})
	slices.Sort(names)
	return names, err
}
