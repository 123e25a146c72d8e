//go:build unix

package hook

import (
	"os"
	"os/exec"
	"syscall"
)

// inGroup has a program run in a process group of its own.
func inGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills a program together with the processes of its group.
func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }
