//go:build !linux

package integration

import "syscall"

// tied gives a child process a group of its own; only Linux can also end it with the process that started it.
func tied(group bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: group} }
