//go:build unix && !linux

package main

import "syscall"

// childAttributes is empty: only the guard kills the command when its netlock is killed.
func childAttributes() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }
