package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestAnotherUserMayNotUseTheStateDirectory runs commands as a user who may not read the state directory.
func TestAnotherUserMayNotUseTheStateDirectory(t *testing.T) {
	r := startServer(t, "")
	state := r.dir + "/state"
	as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if os.Getuid() != 0 {
		as = nil
		if err := os.Chmod(state, 0); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(state, 0o700)
	}
	for _, name := range []string{"locks", "health", "history /locks/a", "break /locks/a"} {
		cmd := exec.Command("/proc/self/exe") // the test program, which runs as ftplockd by this name, see TestMain
		cmd.Args = append([]string{"ftplockd"}, append(strings.Fields(name), "--state", state)...)
		cmd.SysProcAttr = as
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != exitFailure || !strings.HasPrefix(string(out), "ftplockd: this user may not use the state directory "+state+": run the command as root") {
			t.Errorf("%s: %v: %s", name, cmd.ProcessState, out)
		}
	}
}
