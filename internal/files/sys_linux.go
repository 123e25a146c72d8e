package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// system makes the system calls of a tree. All of them are relative to a descriptor of a directory,
// so that nothing that is renamed or linked meanwhile can lead them elsewhere.
//
// openat2 with RESOLVE_BENEATH does in one call what os.Root does with one call for each element of
// a path; where it is missing (gVisor, old seccomp filters) os.Root does it.
type system struct {
	rootfd int
	root   *os.Root
	plain  bool // there is no openat2
	// devices is what identity has learned of file systems.
	devices *devices
	// before is called ahead of each call with its name; an error is returned in place of the call.
	// Only tests set it.
	before func(call string) error
}

// How directories are opened in which something is done, and those that are synced too.
const (
	dirFlags  = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	syncFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
)

func newSystem(rootfd int, root *os.Root) system {
	s := system{rootfd: rootfd, root: root, devices: &devices{}}
	fd, err := s.beneath(".", dirFlags, 0, 0)
	switch err {
	case nil:
		unix.Close(fd)
	case unix.ENOSYS, unix.EPERM:
		s.plain = true
	}
	return s
}

// check is the place where tests put their faults.
func (s *system) check(call string) error {
	if s.before == nil {
		return nil
	}
	return s.before(call)
}

// retry makes a call again that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// open opens an FTP path; links are followed as far as they stay in the tree.
func (s *system) open(name string, flags int, mode uint32) (int, error) {
	if err := s.check("open"); err != nil {
		return -1, err
	}
	if s.plain {
		return s.openRoot(relative(name), flags, mode)
	}
	return s.beneath(relative(name), flags, mode, 0)
}

// openNoLinks opens an FTP path unless there is a link in it: ELOOP.
func (s *system) openNoLinks(name string, flags int) (int, error) {
	if err := s.check("open"); err != nil {
		return -1, err
	}
	if s.plain {
		return -1, unix.ELOOP
	}
	return s.beneath(relative(name), flags, 0, unix.RESOLVE_NO_SYMLINKS)
}

func (s *system) beneath(rel string, flags int, mode uint32, resolve uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Mode:    uint64(mode),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | resolve,
	}
	for {
		fd, err := unix.Openat2(s.rootfd, rel, &how)
		switch err {
		case unix.EINTR, unix.EAGAIN: // EAGAIN: something was renamed while ".." was looked up
			continue
		case unix.EXDEV:
			return -1, ErrEscapes
		}
		return fd, err
	}
}

// openRoot does the same by os.Root. It has no O_PATH for links and directories alike.
func (s *system) openRoot(rel string, flags int, mode uint32) (int, error) {
	if flags&unix.O_PATH != 0 {
		flags = flags&^unix.O_PATH | unix.O_NONBLOCK
	}
	f, err := s.root.OpenFile(rel, flags, fs.FileMode(mode))
	if err != nil {
		err = bare(err)
		var errno syscall.Errno
		if !errors.As(err, &errno) && !errors.Is(err, fs.ErrClosed) {
			return -1, ErrEscapes // the only error that os.Root makes itself has no name
		}
		return -1, err
	}
	defer f.Close()
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

func (s *system) createat(dir int, base string, mode fs.FileMode) (fd int, err error) {
	if err := s.check("create"); err != nil {
		return -1, err
	}
	err = retry(func() (e error) {
		fd, e = unix.Openat(dir, base, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(mode.Perm()))
		return e
	})
	return fd, err
}

// openat opens something in dir that is not a link.
func (s *system) openat(dir int, base string, flags int) (fd int, err error) {
	if err := s.check("open"); err != nil {
		return -1, err
	}
	err = retry(func() (e error) {
		fd, e = unix.Openat(dir, base, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return e
	})
	return fd, err
}

func (s *system) mkdirat(dir int, base string, mode fs.FileMode) error {
	if err := s.check("mkdir"); err != nil {
		return err
	}
	return retry(func() error { return unix.Mkdirat(dir, base, uint32(mode.Perm())) })
}

func (s *system) rmdirat(dir int, base string) error {
	if err := s.check("rmdir"); err != nil {
		return err
	}
	return retry(func() error { return unix.Unlinkat(dir, base, unix.AT_REMOVEDIR) })
}

func (s *system) unlinkat(dir int, base string) error {
	if err := s.check("unlink"); err != nil {
		return err
	}
	return retry(func() error { return unix.Unlinkat(dir, base, 0) })
}

func (s *system) renameat(dir int, base string, newdir int, newbase string) error {
	if err := s.check("rename"); err != nil {
		return err
	}
	return retry(func() error { return unix.Renameat(dir, base, newdir, newbase) })
}

// renameNew renames unless the new name is there: EEXIST. EINVAL, ENOSYS: the file system cannot.
func (s *system) renameNew(dir int, base string, newdir int, newbase string) error {
	if err := s.check("rename"); err != nil {
		return err
	}
	return retry(func() error { return unix.Renameat2(dir, base, newdir, newbase, unix.RENAME_NOREPLACE) })
}

func (s *system) linkat(dir int, base string, newdir int, newbase string) error {
	if err := s.check("link"); err != nil {
		return err
	}
	return retry(func() error { return unix.Linkat(dir, base, newdir, newbase, 0) })
}

func (s *system) readlinkat(dir int, base string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, base, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// lstatat describes base itself, not what a link leads to.
func (s *system) lstatat(dir int, base, name string) (*info, error) {
	if err := s.check("stat"); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		return nil, err // without having made an info: often nothing is what is looked for
	}
	return &info{name: name, st: *(*syscall.Stat_t)(unsafe.Pointer(&st))}, nil
}

// vacant reports whether nothing has that name.
func (s *system) vacant(dir int, base string) bool {
	_, err := s.lstatat(dir, base, base)
	return err == unix.ENOENT
}

func (s *system) fstat(fd int, name string) (*info, error) {
	if err := s.check("stat"); err != nil {
		return nil, err
	}
	i := &info{name: name}
	if err := retry(func() error { return syscall.Fstat(fd, &i.st) }); err != nil {
		return nil, err
	}
	return i, nil
}

func (s *system) fsync(fd int) error {
	if err := s.check("fsync"); err != nil {
		return err
	}
	return retry(func() error { return unix.Fsync(fd) })
}

func (s *system) fchmod(fd int, mode uint32) error {
	if err := s.check("chmod"); err != nil {
		return err
	}
	return retry(func() error { return unix.Fchmod(fd, mode) })
}

func (s *system) fchown(fd, uid, gid int) error {
	if err := s.check("chown"); err != nil {
		return err
	}
	return retry(func() error { return unix.Fchown(fd, uid, gid) })
}

// chmodPath changes the mode of what an O_PATH descriptor stands for.
func (s *system) chmodPath(fd int, mode uint32) error {
	if s.plain {
		return s.fchmod(fd, mode)
	}
	if err := s.check("chmod"); err != nil {
		return err
	}
	err := unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if err == unix.EOPNOTSUPP { // fchmodat2 came with Linux 6.6
		return bare(os.Chmod(procPath(fd), fs.FileMode(mode)))
	}
	return err
}

// chtimesPath sets the times of what an O_PATH descriptor stands for; a zero time is left as it is.
func (s *system) chtimesPath(fd int, atime, mtime time.Time) error {
	if err := s.check("chtimes"); err != nil {
		return err
	}
	ts := []unix.Timespec{timespec(atime), timespec(mtime)}
	err := unix.UtimesNanoAt(fd, "", ts, unix.AT_EMPTY_PATH)
	if err == unix.EINVAL { // AT_EMPTY_PATH came with Linux 5.8
		return unix.UtimesNanoAt(unix.AT_FDCWD, procPath(fd), ts, 0)
	}
	return err
}

func timespec(t time.Time) unix.Timespec {
	if t.IsZero() {
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	}
	return unix.NsecToTimespec(t.UnixNano())
}

func (s *system) space(fd int) (uint64, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(fd, &st) }); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// eachEntry calls f with the name and the type (DT_DIR, or DT_UNKNOWN) of each entry of an open directory but "." and
// "..", until an error.
func eachEntry(fd int, f func(name string, kind uint8) error) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		for b := buf[:n]; len(b) > 0; {
			name, kind, size := direntAt(b)
			b = b[size:]
			if name == "." || name == ".." {
				continue
			}
			if err := f(name, kind); err != nil {
				return err
			}
		}
	}
}

// direntAt reads the struct linux_dirent64 at the beginning of b, see getdents64(2).
func direntAt(b []byte) (name string, kind uint8, size int) {
	const reclen, kindAt, nameAt = 16, 18, 19
	size = int(binary.NativeEndian.Uint16(b[reclen:]))
	text, _, _ := bytes.Cut(b[nameAt:size], []byte{0})
	return string(text), b[kindAt], size
}
