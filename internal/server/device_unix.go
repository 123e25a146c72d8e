//go:build unix

package server

import (
	"io/fs"
	"syscall"
)

// device returns the number of the file system.
func device(info fs.FileInfo) uint64 { return uint64(info.Sys().(*syscall.Stat_t).Dev) }
