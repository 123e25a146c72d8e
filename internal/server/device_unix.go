//go:build unix

package server

import (
	"io/fs"
	"syscall"
)

// device tells file systems from others.
func device(info fs.FileInfo) uint64 { return uint64(info.Sys().(*syscall.Stat_t).Dev) }
