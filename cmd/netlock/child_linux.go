package main

import "syscall"

// childAttributes has the kernel end a command whose netlock was killed: nobody would look after its lock.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
