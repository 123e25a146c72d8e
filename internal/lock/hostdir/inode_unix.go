//go:build unix

package hostdir

import (
	"io/fs"
	"syscall"
)

// inode returns the inode number; 0 if the file system did not say.
func inode(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Ino)
	}
	return 0
}
