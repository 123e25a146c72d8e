package main

import (
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// childAttributes has the kernel kill the command when its netlock is killed, because no process watches the lock then.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// groupAlive reports whether the group has a process that can run. A zombie cannot. It stays in the group until its parent waits for it, which
// process 1 of a container may do late or never. While the group has a zombie, no other group gets its number.
func (c *child) groupAlive() bool {
	if unix.Kill(-c.pid, 0) != nil {
		return false
	}
	all, err := procfs.AllProcs()
	if err != nil {
		return true // no /proc: the limit of awaitGroup ends the wait
	}
	for _, p := range all {
		s, err := p.Stat()
		// The first thread of a process can be a zombie while others run.
		if err == nil && s.PGRP == c.pid && (s.State != "Z" && s.State != "X" || s.NumThreads > 1) {
			return true
		}
	}
	return false
}
