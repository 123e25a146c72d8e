package hostdir

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// identified is a FileInfo as the served tree has it.
type identified struct {
	fs.FileInfo
	path string
}

func (i identified) Sys() any {
	var birth int64
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, i.path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &stat); err == nil && stat.Mask&unix.STATX_BTIME != 0 {
		birth = stat.Btime.Sec*1e9 + int64(stat.Btime.Nsec)
	}
	known := i.FileInfo.Sys().(*syscall.Stat_t)
	return identityOf{known.Ino, birth, uint64(known.Nlink)}
}

type identityOf struct {
	inode uint64
	birth int64
	links uint64
}

func (i identityOf) Links() uint64 { return i.links }

func (i identityOf) Identity() (inode uint64, birth int64) { return i.inode, i.birth }
