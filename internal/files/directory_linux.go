package files

import (
	"cmp"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// directory is an open directory of the tree. What is done in it happens there, wherever it is moved to meanwhile. Here
// is what os.Root has no method for; no call follows a link.
type directory struct {
	tree *Tree
	*descriptor
}

// openDirectory opens a directory by its clean name. Links are followed as far as they stay in the tree.
func (t *Tree) openDirectory(name string) (directory, error) {
	return t.openAs(name, 0)
}

// openPlain is openDirectory for a name with no link in it: ELOOP.
func (t *Tree) openPlain(name string) (directory, error) {
	return t.openAs(name, unix.RESOLVE_NO_SYMLINKS)
}

func (t *Tree) openAs(name string, resolve int) (directory, error) {
	fd, err := t.open(name, unix.O_RDONLY|unix.O_DIRECTORY, resolve)
	if err != nil {
		return directory{}, err
	}
	return directory{t, newDescriptor(fd)}, nil
}

// openFile opens a file or directory for reading. It does not wait for the writer of a pipe, and does not get a terminal.
func (t *Tree) openFile(name string) (*os.File, error) {
	fd, err := t.open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// open opens what a clean name leads to. No link leads out of the tree. Where the kernel has openat2 that is one system call.
func (t *Tree) open(name string, flags, resolve int) (fd int, err error) {
	if err := t.check("open"); err != nil {
		return -1, err
	}
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: uint64(unix.RESOLVE_BENEATH | resolve)}
	if err = t.check("openat2"); err == nil {
		err = t.top.use(func(top int) error {
			fd, err = unix.Openat2(top, relative(name), &how)
			return err
		})
	}
	switch err {
	case unix.ENOSYS, unix.EPERM, unix.EAGAIN: // an old kernel, a sandbox that does not know the call, a rename meanwhile
		return t.openStepwise(name, flags, resolve)
	case unix.EXDEV:
		return -1, ErrEscapes
	}
	return fd, err
}

// openStepwise is open without openat2.
func (t *Tree) openStepwise(name string, flags, resolve int) (fd int, err error) {
	if resolve&unix.RESOLVE_NO_SYMLINKS != 0 {
		if plain, err := t.resolveLinks(name); err != nil || plain != name {
			return -1, cmp.Or(err, error(unix.ELOOP))
		}
	}
	f, err := t.root.OpenFile(relative(name), flags, 0)
	if err != nil {
		return -1, rooted(err)
	}
	defer f.Close()
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

// isPlain reports whether there is no link in a clean name, as far as it exists.
func (t *Tree) isPlain(name string) bool {
	fd, err := t.open(name, unix.O_PATH, unix.RESOLVE_NO_SYMLINKS)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil || missing(err)
}

// IsFree reports whether nothing has the name, and its directory exists and has no link in its path. It is false, too, if that
// cannot be found out without opening something.
func (t *Tree) IsFree(name string) bool {
	name, err := clean(name)
	if err != nil || t.check("openat2") != nil {
		return false
	}
	dir, base := split(name)
	if t.isTemporary(base) {
		return false
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	return t.top.use(func(top int) error {
		fd, err := unix.Openat2(top, relative(name), &how)
		if err == nil {
			unix.Close(fd)
			return fs.ErrExist
		}
		if err != unix.ENOENT {
			return err
		}
		return unix.Faccessat(top, relative(dir)+"/.", unix.F_OK, 0) // it may be the directory that is missing
	}) == nil
}

// descriptor is an open file for several goroutines. Other than an *os.File it costs no system call beside open and close.
type descriptor struct {
	fd     int
	users  atomic.Int32 // one of them is the owner, until close
	closed atomic.Bool
	file   *os.File // if it was read from; owns fd
}

func newDescriptor(fd int) *descriptor {
	d := &descriptor{fd: fd}
	d.users.Store(1)
	return d
}

// use makes a system call, again if a signal interrupted it. fs.ErrClosed if the file is closed.
func (d *descriptor) use(f func(fd int) error) (err error) {
	for {
		users := d.users.Load()
		if users == 0 {
			return fs.ErrClosed
		}
		if d.users.CompareAndSwap(users, users+1) {
			break
		}
	}
	defer d.leave()
	for err = unix.EINTR; err == unix.EINTR; {
		err = f(d.fd)
	}
	return err
}

// close closes the file when the last call has returned. It waits for none.
func (d *descriptor) close() {
	if !d.closed.Swap(true) {
		d.leave()
	}
}

func (d *descriptor) leave() {
	switch {
	case d.users.Add(-1) > 0:
	case d.file != nil:
		d.file.Close()
	default:
		unix.Close(d.fd)
	}
}

// directoryOf returns the directory that was opened as f, and owns f.
func (t *Tree) directoryOf(f *os.File, _ string) (directory, error) {
	d := newDescriptor(int(f.Fd()))
	d.file = f
	return directory{t, d}, nil
}

// openTop keeps the root of the tree open for openat2.
func (t *Tree) openTop() error {
	f, err := t.root.Open(".")
	if err == nil {
		t.top, err = t.directoryOf(f, "/")
	}
	return err
}

// read calls f with the directory as a file whose entries can be read.
func (d directory) read(f func(*os.File) error) error {
	return d.use(func(fd int) error {
		if d.file == nil {
			d.file = os.NewFile(uintptr(fd), "")
		}
		return f(d.file)
	})
}

// sync has what was done in the directory survive a loss of power.
func (d directory) sync() error { return d.do("fsync", unix.Fsync) }

// do makes a system call.
func (d directory) do(call string, f func(fd int) error) error {
	if err := d.tree.check(call); err != nil {
		return err
	}
	return d.use(f)
}

// lstat describes what has the name, a link itself; "." is the directory.
func (d directory) lstat(base string) (*info, error) {
	var i *info
	err := d.do("stat", func(fd int) (err error) {
		i, err = statx(fd, base, unix.AT_SYMLINK_NOFOLLOW)
		return err
	})
	return i, err
}

func statx(fd int, base string, flags int) (*info, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, base, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return nil, err
	}
	i := &info{
		name: base, size: int64(st.Size), mode: fileMode(st.Mode),
		modified: time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec)),
		details: details{
			device: unix.Mkdev(st.Dev_major, st.Dev_minor), inode: st.Ino, links: uint64(st.Nlink), user: int(st.Uid), group: int(st.Gid),
			sticky:  st.Mode&unix.S_ISVTX != 0,
			changed: st.Ctime.Sec*1e9 + int64(st.Ctime.Nsec),
		},
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		i.details.birth = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return i, nil
}

// fileMode translates what stat(2) says, as package os does, but for set-id and sticky bits, which nobody is shown.
func fileMode(st uint16) fs.FileMode {
	mode := fs.FileMode(st & 0o777)
	switch st & unix.S_IFMT {
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	}
	return mode
}

// infoOf is what os.Root says of a file. It does not tell when the file was made.
func infoOf(of fs.FileInfo, name string) *info {
	i := &info{name: name, size: of.Size(), mode: of.Mode(), modified: of.ModTime(), host: of}
	if st, ok := of.Sys().(*syscall.Stat_t); ok {
		i.details = details{device: uint64(st.Dev), inode: st.Ino, links: uint64(st.Nlink), user: int(st.Uid), group: int(st.Gid), changed: st.Ctim.Nano()}
	}
	return i
}

// create makes a file that is written to. The name must be free.
func (d directory) create(base string, mode fs.FileMode) (f *os.File, err error) {
	err = d.do("create", func(dir int) error {
		fd, err := unix.Openat(dir, base, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(mode.Perm()))
		if err == nil {
			f = os.NewFile(uintptr(fd), base)
		}
		return err
	})
	return f, err
}

// makeDir makes a directory. The name must be free. A sticky bit is set by the same call, where the file system keeps one.
func (d directory) makeDir(base string, perm fs.FileMode) error {
	mode := uint32(perm.Perm())
	if perm&fs.ModeSticky != 0 {
		mode |= unix.S_ISVTX
	}
	return d.do("mkdir", func(fd int) error { return unix.Mkdirat(fd, base, mode) })
}

// removeDir removes a directory that is empty, and nothing else.
func (d directory) removeDir(base string) error {
	return d.do("rmdir", func(fd int) error { return unix.Unlinkat(fd, base, unix.AT_REMOVEDIR) })
}

// removeFile removes a file or a link, never a directory: EISDIR.
func (d directory) removeFile(base string) error {
	return d.do("unlink", func(fd int) error { return unix.Unlinkat(fd, base, 0) })
}

// rename renames. A file replaces a file, in one step; the system refuses a file over a directory and a directory over a file.
func (d directory) rename(base string, to place) error {
	return d.do("rename", func(fd int) error {
		return to.dir.use(func(newfd int) error { return unix.Renameat(fd, base, newfd, to.base) })
	})
}

// renameNew renames unless the new name is there: fs.ErrExist. errNoRenameNew: the file system cannot.
func (d directory) renameNew(base string, to place) error {
	err := d.do("rename", func(fd int) error {
		return to.dir.use(func(newfd int) error {
			return unix.Renameat2(fd, base, newfd, to.base, unix.RENAME_NOREPLACE)
		})
	})
	if err == unix.EINVAL || err == unix.ENOSYS {
		return errNoRenameNew
	}
	return err
}

// link gives a file another name in the directory. The name must be free.
func (d directory) link(base, newbase string) error {
	return d.do("link", func(fd int) error { return unix.Linkat(fd, base, fd, newbase, 0) })
}

// space returns how many bytes the process may still write in the directory's file system.
func (d directory) space() (uint64, error) {
	var st unix.Statfs_t
	err := d.do("space", func(fd int) error { return unix.Fstatfs(fd, &st) })
	return st.Bavail * uint64(st.Bsize), err
}
