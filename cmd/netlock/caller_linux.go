package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// processHandle is a file that can be read when the process has ended; nil where there is none: before Linux 5.3, or for a parent in
// another process id namespace.
func processHandle(pid int) *os.File {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "pidfd")
}
