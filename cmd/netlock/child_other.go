//go:build unix && !linux

package main

import "syscall"

// childAttributes is empty: a command outlives a netlock that was killed.
func childAttributes() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }
