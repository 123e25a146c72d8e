package integration

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// long asks for the long counts, which take many minutes.
var long = flag.Bool("long", false, "long counts: more rounds, more clients, more kills")

// binary is the ftplockd that all tests run, netlock the other program. TestMain sets them before the first of them.
var binary, netlock string

// The account that most tests log in with.
const (
	account  = harness.Account
	password = harness.Password
)

// patience is the time limit of a reply, and of an event that a test waits for.
const patience = harness.Patience

// childEnv makes this test binary be one of the Go clients of child_test.go instead of running tests.
const childEnv = "FTPLOCKD_INTEGRATION_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		os.Exit(runChild(name, os.Args[1:]))
	}
	os.Exit(harness.Main(m, "6", func(dir string) error {
		binary, netlock = filepath.Join(dir, "ftplockd"), filepath.Join(dir, "netlock")
		return errors.Join(build(binary), harness.Build("../cmd/netlock", netlock))
	}))
}

// build builds the server.
func build(to string, flags ...string) error { return harness.Build("../cmd/ftplockd", to, flags...) }

var sources = sync.OnceValue(func() error { return harness.Sources("..") })

// count returns few, or with -long often.
func count(few, often int) int {
	if *long {
		return often
	}
	return few
}

// command prepares a program that ends with the test, at the latest after a minute (with -long: half an hour).
func command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(count(1, 30))*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = tied(false)
	cmd.Env = append(harness.Environment(), "HOME="+t.TempDir(), "GORACE=atexit_sleep_ms=0", "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// result is how a program ended.
type result struct {
	status int    // -1: by a signal
	out    string // standard output and error, as they came
}

// run runs a program to its end.
func run(t testing.TB, name string, args ...string) result {
	t.Helper()
	return finish(t, command(t, name, args...))
}

// finish runs a prepared program to its end. The result has the outputs that cmd does not set.
func finish(t testing.TB, cmd *exec.Cmd) result {
	t.Helper()
	var out bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &out
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Errorf("%s: %v", filepath.Base(cmd.Path), err)
		return result{status: -1, out: out.String()}
	}
	return result{status: cmd.ProcessState.ExitCode(), out: out.String()}
}

// mustRun runs a program that must succeed, and returns its output.
func mustRun(t testing.TB, name string, args ...string) string {
	t.Helper()
	r := run(t, name, args...)
	if r.status != 0 {
		t.Fatalf("%s %q: exit status %d\n%s", name, args, r.status, r.out)
	}
	return r.out
}

// promptly checks that try takes no longer than a limit. The machine may be busy, so the fastest of ten tries counts.
func promptly(t testing.TB, what string, limit time.Duration, try func() time.Duration) {
	t.Helper()
	fastest := time.Duration(math.MaxInt64)
	for range 10 {
		if fastest = min(fastest, try()); fastest <= limit {
			return
		}
	}
	t.Errorf("%s: %v at best, want %v", what, fastest, limit)
}

// writeFile writes a file that only we may read.
func writeFile(t testing.TB, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantFile checks what is in a file.
func wantFile(t testing.TB, file, want string) {
	t.Helper()
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s has %d bytes, %.100q, want %.100q; %v", file, len(got), got, want, err)
	}
}
