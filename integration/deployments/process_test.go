//go:build linux

package deployments

import (
	"os"
	"syscall"
	"testing"
)

// ownGroup puts a program and its children into a process group, which ends with the test.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}
