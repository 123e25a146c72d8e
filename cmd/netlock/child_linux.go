package main

import "syscall"

// childAttributes has the kernel kill the command when its netlock is killed, because no process watches the lock then.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
