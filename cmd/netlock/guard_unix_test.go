//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestGuardKillsItsGroupUnlessAllIsWell(t *testing.T) {
	for name, c := range map[string]struct {
		told  func(group int) string
		kills bool
	}{
		"killed":                     {func(g int) string { return fmt.Sprintln(g) }, true},
		"killed while it said so":    {func(g int) string { return fmt.Sprintln(g) + "all" }, true},
		"all is well":                {func(g int) string { return fmt.Sprintln(g) + allWell }, false},
		"killed before it knew":      {func(int) string { return "" }, false},
		"half a number":              {func(g int) string { return fmt.Sprint(g) }, false},
		"no command was ever there":  {func(int) string { return allWell }, false},
		"a number that means others": {func(int) string { return "1\n" }, false},
	} {
		cmd := exec.Command("/bin/sleep", "100")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := guarding(strings.NewReader(c.told(cmd.Process.Pid))); err != nil {
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
