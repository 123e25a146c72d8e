package files

import (
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The flags of open.
const (
	openDirectories = unix.O_RDONLY | unix.O_DIRECTORY
	openReading     = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY // does not wait for the writer of a pipe
	openTarget      = unix.O_PATH                                     // only describes it
)

// directory is an open directory of the tree, for one goroutine. Its methods act in this directory, even if it is renamed, and
// follow no link.
type directory struct {
	tree *Tree
	name string   // the clean FTP path when it was opened
	fd   int      // without a file
	file *os.File // if not nil, it owns the descriptor; an *os.File costs one more system call
}

// openAs opens a clean name, by one system call where the kernel has openat2. It follows links within the tree. With
// plain a link in the name is ELOOP.
func (t *Tree) openAs(name string, flags int, plain bool) (directory, error) {
	if err := t.injectedFault("open"); err != nil {
		return directory{}, err
	}
	fd, err := t.openat2(name, flags, plain)
	switch err {
	case nil:
		return directory{t, name, fd, nil}, nil
	case unix.ENOSYS, unix.EPERM, unix.EAGAIN: // an old kernel, a sandbox that refuses the call, a rename at the same time
		f, err := t.openStepwise(name, flags, plain)
		if err != nil {
			return directory{}, err
		}
		return directory{t, name, -1, f}, nil
	case unix.EXDEV:
		err = ErrEscapes
	}
	return directory{}, err
}

// asFile returns the directory as a file, whose entries can be read.
func (d *directory) asFile() *os.File {
	if d.file == nil {
		d.file = os.NewFile(uintptr(d.fd), d.name)
	}
	return d.file
}

// close closes the directory. It must be called once.
func (d directory) close() {
	if d.file != nil {
		d.file.Close()
	} else {
		unix.Close(d.fd)
	}
}

func (t *Tree) openat2(name string, flags int, plain bool) (fd int, err error) {
	if err := t.injectedFault("openat2"); err != nil {
		return -1, err
	}
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_BENEATH}
	if plain {
		how.Resolve |= unix.RESOLVE_NO_SYMLINKS
	}
	err = call(t.top, func(top int) error {
		fd, err = unix.Openat2(top, relative(name), &how)
		return err
	})
	return fd, err
}

// isPlain reports whether there is no link in the part of a clean name that exists.
func (t *Tree) isPlain(name string) bool {
	fd, err := t.openat2(name, unix.O_PATH, true)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil || missing(err)
}

// IsFree reports whether nothing has the name, and its directory exists and has no link in its path. It returns false, too, if
// this takes more than two system calls.
func (t *Tree) IsFree(name string) bool {
	name, err := clean(name)
	if err != nil {
		return false
	}
	fd, err := t.openat2(name, unix.O_PATH|unix.O_NOFOLLOW, true)
	if err == nil {
		unix.Close(fd)
	}
	dir, _ := split(name)
	return err == unix.ENOENT && call(t.top, func(top int) error { // the directory may be missing
		return unix.Faccessat(top, relative(dir)+"/.", unix.F_OK, 0)
	}) == nil
}

// call makes a system call with the descriptor of an open file. A closed file is fs.ErrClosed.
func call(f *os.File, do func(fd int) error) (err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return fs.ErrClosed
	}
	if raw.Control(func(fd uintptr) { err = retry(int(fd), do) }) != nil {
		return fs.ErrClosed
	}
	return err
}

// retry makes a system call, and again if a signal interrupts it.
func retry(fd int, do func(fd int) error) (err error) {
	for err = unix.EINTR; err == unix.EINTR; {
		err = do(fd)
	}
	return err
}

// do makes a system call with the descriptor of the directory.
func (d directory) do(name string, f func(fd int) error) error {
	if err := d.tree.injectedFault(name); err != nil {
		return err
	}
	return d.use(f)
}

func (d directory) use(f func(fd int) error) error {
	if d.file != nil {
		return call(d.file, f)
	}
	return retry(d.fd, f)
}

func (d directory) syncNames() error { return d.use(unix.Fsync) }

// lstat describes the file of a name, or the link itself; "." is the directory.
func (d directory) lstat(base string) (i *info, err error) {
	err = d.do("stat", func(fd int) error {
		i, err = statx(fd, base, unix.AT_SYMLINK_NOFOLLOW)
		return err
	})
	return i, err
}

// describe describes an open file.
func describe(f *os.File, name string) (i *info, err error) {
	err = call(f, func(fd int) error {
		i, err = statx(fd, "", unix.AT_EMPTY_PATH)
		return err
	})
	if err != nil {
		return nil, err
	}
	i.name = name
	return i, nil
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

// fileMode converts the mode of stat(2), as package os does, without the set-id and sticky bits, which clients do not see.
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

// same reports whether two names are of one file.
func (i *info) same(o *info) bool {
	return i.details.device == o.details.device && i.details.inode == o.details.inode
}

// create makes a file for writing. The name must be free.
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

// makeDir makes a directory. The name must be free. The same call sets a sticky bit, where the file system keeps one.
func (d directory) makeDir(base string, perm fs.FileMode) error {
	mode := uint32(perm.Perm())
	if perm&fs.ModeSticky != 0 {
		mode |= unix.S_ISVTX
	}
	return d.do("mkdir", func(fd int) error { return unix.Mkdirat(fd, base, mode) })
}

// removeDir removes an empty directory, and nothing else.
func (d directory) removeDir(base string) error {
	return d.do("rmdir", func(fd int) error { return unix.Unlinkat(fd, base, unix.AT_REMOVEDIR) })
}

// removeFile removes a file or a link, never a directory: EISDIR.
func (d directory) removeFile(base string) error {
	return d.do("unlink", func(fd int) error { return unix.Unlinkat(fd, base, 0) })
}

// rename renames. A file replaces a file in one step. The system refuses a file over a directory, and a directory over a file.
func (d directory) rename(base string, to place) error {
	return d.do("rename", func(fd int) error {
		return to.dir.use(func(newfd int) error { return unix.Renameat(fd, base, newfd, to.base) })
	})
}

// renameNew renames unless something has the new name: fs.ErrExist. If the file system cannot do this it returns errNoRenameNew.
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

// retain implements Tree.Retain for the file that i describes.
func (d directory) retain(base string, i *info) (release func()) {
	kept := -1
	if i.mode.IsRegular() && i.size >= retainFrom {
		_ = d.use(func(fd int) (err error) {
			kept, err = unix.Openat(fd, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			return err
		})
	}
	if kept < 0 {
		return func() {}
	}
	return func() { unix.Close(kept) }
}

// space returns how many bytes the process may still write in the directory's file system.
func (d directory) space() (uint64, error) {
	var st unix.Statfs_t
	err := d.do("space", func(fd int) error { return unix.Fstatfs(fd, &st) })
	return st.Bavail * uint64(st.Bsize), err
}

// startWriteBack starts to write a part of a file to the disk, and does not wait for the end. An error concerns the later sync.
func startWriteBack(f *os.File, offset, bytes int64) {
	_ = call(f, func(fd int) error { return unix.SyncFileRange(fd, offset, bytes, unix.SYNC_FILE_RANGE_WRITE) })
}

// awaitWriteBack waits until a part of a file is written to the disk. It reports an error that the later sync then does not report any more.
func awaitWriteBack(f *os.File, offset, bytes int64) error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	return call(f, func(fd int) error { return unix.SyncFileRange(fd, offset, bytes, all) })
}
