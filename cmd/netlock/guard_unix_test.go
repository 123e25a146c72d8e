//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestGuardKillsItsGroupUnlessDismissed(t *testing.T) {
	for name, c := range map[string]struct {
		sent  func(group int) string
		kills bool
	}{
		"killed":                     {func(g int) string { return fmt.Sprintln(g) }, true},
		"killed in its last message": {func(g int) string { return fmt.Sprintln(g) + dismissal[:3] }, true},
		"dismissed":                  {func(g int) string { return fmt.Sprintln(g) + dismissal }, false},
		"killed before the number":   {func(int) string { return "" }, false},
		"half a number":              {func(g int) string { return fmt.Sprint(g) }, false},
		"the command did not start":  {func(int) string { return dismissal }, false},
		"the number of all groups":   {func(int) string { return "1\n" }, false},
	} {
		cmd := exec.Command("/bin/sleep", "100")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := runGuard(strings.NewReader(c.sent(cmd.Process.Pid))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !c.kills {
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM); err != nil {
				t.Errorf("%s: the group is gone: %v", name, err)
			}
		}
		want := syscall.SIGTERM
		if c.kills {
			want = syscall.SIGKILL
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(); got != want {
			t.Errorf("%s: ended by %v, want %v", name, got, want)
		}
	}
}
