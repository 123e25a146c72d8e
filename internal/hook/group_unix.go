//go:build unix

package hook

import (
	"os"
	"os/exec"
	"syscall"
)

// inGroup makes a program run in its own process group.
func inGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills a program together with the processes of its group.
func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }
