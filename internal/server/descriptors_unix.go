//go:build unix

package server

import "syscall"

// openFiles returns how many files the process may have open, or 0 if that is not known. Package os has raised the soft limit to the hard
// one.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return uint64(limit.Cur)
}
