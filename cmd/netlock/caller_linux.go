package main

import (
	"bytes"
	"os"
	"strconv"
)

// reaps reports whether a process is the service manager of a user, which takes in the orphans of its sessions (PR_SET_CHILD_SUBREAPER; there
// is no asking a process whether it does).
func reaps(pid int) bool {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return err == nil && string(bytes.TrimSpace(name)) == "systemd"
}
