//go:build unix

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestGuardKillsTheGroupOfWhomNothingMoreIsHeard(t *testing.T) {
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
		cmd := exec.Command("/bin/sh", "-c", "sleep 100 & sleep 100 & echo here; wait")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout = w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		lines := bufio.NewReader(out)
		if line, err := lines.ReadString('\n'); err != nil {
			t.Fatal(line, err)
		}
		if err := guarding(strings.NewReader(c.told(cmd.Process.Pid))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !c.kills {
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM); err != nil {
				t.Errorf("%s: the group is gone: %v", name, err)
			}
		}
		if _, err := lines.ReadByte(); err == nil { // the end of the last of them
			t.Errorf("%s: it says more", name)
		}
		want := syscall.SIGTERM
		if c.kills {
			want = syscall.SIGKILL
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(); got != want {
			t.Errorf("%s: ended by %v, want %v", name, got, want)
		}
		out.Close()
	}
}
