//go:build linux

package powerloss

import "golang.org/x/sys/unix"

// oldCall reports whether a call changes directories that only old architectures have. Go makes none of them.
func oldCall(number uint64) bool {
	switch number {
	case unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_MKDIR, unix.SYS_UNLINK, unix.SYS_RENAME, unix.SYS_LINK, unix.SYS_SYMLINK:
		return true
	}
	return false
}
