//go:build unix && !linux

package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes is empty: only the guard kills the command when its netlock is killed.
func childAttributes() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }

// groupAlive reports whether the group has a process. While it has, no other group gets its number.
func (c *child) groupAlive() bool { return unix.Kill(-c.pid, 0) == nil }
