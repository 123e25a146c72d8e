package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ftplockd/ftplockd/integration/harness"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"ftplockd": main})
}

// TestScripts runs the commands as a shell does; see testdata/script.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"status": harness.ExitStatus},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each command takes a second longer with -race
			return nil
		},
	})
}
