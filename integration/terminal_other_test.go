//go:build !linux

package integration

import (
	"os"
	"os/exec"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

type terminal struct {
	keys  *os.File
	shown *harness.LogBuffer
}

func onTerminal(t testing.TB, _ *exec.Cmd) *terminal {
	harness.Missing(t, "the terminals of this test need Linux")
	return nil
}
