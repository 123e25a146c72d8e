//go:build unix

package hook

import (
	"os/exec"
	"syscall"
)

// inGroup has a program killed together with the processes that it started.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
