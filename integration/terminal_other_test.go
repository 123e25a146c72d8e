//go:build !linux

package integration

import (
	"os/exec"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

type terminal struct{ shown *harness.LogBuffer }

func (*terminal) types(string) error { return nil }

func onTerminal(t testing.TB, _ *exec.Cmd) *terminal {
	harness.Missing(t, "the terminals of this test need Linux")
	return nil
}
