package main

import (
	"bytes"
	"os"
	"strconv"

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

// reaps reports whether a process is the service manager of a user, which takes in the orphans of its sessions (PR_SET_CHILD_SUBREAPER; there
// is no asking a process whether it does).
func reaps(pid int) bool {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return err == nil && string(bytes.TrimSpace(name)) == "systemd"
}
