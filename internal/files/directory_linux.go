package files

import (
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// directory is an open directory of the tree. What is done in it happens there, wherever it is moved to meanwhile. Here
// is what os.Root has no method for; no call follows a link.
type directory struct {
	tree *Tree
	file *os.File
}

// How files are opened that are read: without waiting for the writer of a pipe, and without getting a terminal. For regular files
// and directories that means nothing, but saves the runtime the attempt to have them polled.
const readFlags = os.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY

// openDirectory opens a directory by its clean name. Links are followed as far as they stay in the tree.
func (t *Tree) openDirectory(name string) (directory, error) {
	if err := t.check("open"); err != nil {
		return directory{}, err
	}
	f, err := t.root.OpenFile(relative(name), readFlags|unix.O_DIRECTORY, 0)
	if err != nil {
		return directory{}, rooted(err)
	}
	return directory{t, f}, nil
}

// directoryOf is the directory of that name, which was opened as f. It owns f.
func (t *Tree) directoryOf(f *os.File, _ string) (directory, error) { return directory{t, f}, nil }

func (d directory) close() { d.file.Close() }

// do makes a system call, again if a signal interrupted it.
func (d directory) do(call string, f func(fd int) error) error {
	if err := d.tree.check(call); err != nil {
		return err
	}
	return control(d.file, f)
}

// control makes a system call on a file that cannot be closed meanwhile.
func control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	if raw.Control(func(fd uintptr) {
		for err = unix.EINTR; err == unix.EINTR; {
			err = f(int(fd))
		}
	}) != nil {
		return fs.ErrClosed
	}
	return err
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
		return control(to.dir.file, func(newfd int) error { return unix.Renameat(fd, base, newfd, to.base) })
	})
}

// renameNew renames unless the new name is there: fs.ErrExist. errNoRenameNew: the file system cannot.
func (d directory) renameNew(base string, to place) error {
	err := d.do("rename", func(fd int) error {
		return control(to.dir.file, func(newfd int) error {
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
