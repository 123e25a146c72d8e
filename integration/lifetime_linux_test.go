package integration

import "syscall"

// tied makes a child process end with the process that started it, so that a killed test leaves nothing behind.
// group gives it a process group of its own.
func tied(group bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: group}
}
