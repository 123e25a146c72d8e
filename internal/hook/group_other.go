//go:build !unix

package hook

import (
	"os"
	"os/exec"
)

// inGroup does nothing: here the program alone is killed, not the processes that it started.
func inGroup(*exec.Cmd) {}

func killGroup(p *os.Process) error { return p.Kill() }
