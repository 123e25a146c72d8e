package files

import (
	"io/fs"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// info describes a file. Its Sys is a *syscall.Stat_t, as that of package os.
type info struct {
	name string
	st   syscall.Stat_t
}

var _ fs.FileInfo = (*info)(nil)

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.st.Size }
func (i *info) ModTime() time.Time { return time.Unix(i.st.Mtim.Unix()) }
func (i *info) IsDir() bool        { return i.kind() == unix.S_IFDIR }
func (i *info) Sys() any           { return &i.st }

func (i *info) kind() uint32    { return uint32(i.st.Mode) & unix.S_IFMT }
func (i *info) isLink() bool    { return i.kind() == unix.S_IFLNK }
func (i *info) isRegular() bool { return i.kind() == unix.S_IFREG }

func (i *info) same(o *info) bool { return i.st.Dev == o.st.Dev && i.st.Ino == o.st.Ino }

// Mode translates what stat(2) says, as package os does.
func (i *info) Mode() fs.FileMode {
	mode := fs.FileMode(i.st.Mode & 0o777)
	switch i.kind() {
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
	if i.st.Mode&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if i.st.Mode&unix.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if i.st.Mode&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// procPath is a name for an open file that leads nowhere else.
func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
