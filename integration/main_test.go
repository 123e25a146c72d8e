package integration

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// long asks for the long counts, which take many minutes.
var long = flag.Bool("long", false, "long counts: more rounds, more clients, more kills")

// binary is the ftplockd that all tests run, netlock the other program. TestMain sets them before the first of them.
var binary, netlock string

// The account that most tests log in with.
const (
	account  = "phoneacc"
	password = "secret"
)

// childEnv makes this test binary be one of the Go clients of child_test.go instead of running tests.
const childEnv = "FTPLOCKD_INTEGRATION_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		os.Exit(runChild(name, os.Args[1:]))
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given { // most tests wait, for other processes or for time to pass
		_ = flag.Set("test.parallel", "6")
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ftplockd-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary, netlock = filepath.Join(dir, "ftplockd"), filepath.Join(dir, "netlock")
	if err := errors.Join(build(binary), buildProgram("../cmd/netlock", netlock)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status := m.Run()
	if err := goleak.Find(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// build builds the server, with the race detector if the tests have it.
func build(to string, flags ...string) error { return buildProgram("../cmd/ftplockd", to, flags...) }

func buildProgram(program, to string, flags ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	args := append([]string{"build", "-o", to}, flags...)
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(ctx, "go", append(args, program)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// sources tells the go command on what the tests depend besides themselves: it takes down what files a test looks at, and
// would take the result of an earlier run for that of another server.
var sources = sync.OnceValue(func() error {
	return filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" && path != "../integration/testdata" || d.Name() == "ftplockd-data"):
			return filepath.SkipDir
		case strings.HasPrefix(path, "../examples/") || strings.HasPrefix(path, "../integration/testdata/") || strings.HasSuffix(path, ".go") || d.Name() == "go.mod" || d.Name() == "go.sum" || d.Name() == "example.toml":
			_, err = os.Stat(path)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil // it was renamed just now
		}
		return err
	})
})

// count is how often a test does something: few times, or with -long often.
func count(few, often int) int {
	if *long {
		return often
	}
	return few
}

// need skips a test whose client is not installed, or fails it where all clients must be.
func need(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing(t, p+" is not installed")
		}
	}
}

func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("FTPLOCKD_REQUIRE_CLIENTS") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// environment is ours without what users of the server, of netlock and of the examples set: tests say it themselves.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "NETLOCK_") || strings.HasPrefix(v, "FTP_") || strings.HasPrefix(v, "FTPLOCKD_")
	})
}

// command prepares a program that ends with the test, at the latest after a minute (with -long: half an hour).
func command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(count(1, 30))*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = tied(false)
	cmd.Env = append(environment(), "HOME="+t.TempDir(), "GORACE=atexit_sleep_ms=0", "PYTHONDONTWRITEBYTECODE=1")
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

// finish runs a prepared program to its end. Whatever is not set of its outputs is in the result.
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

// mustRun runs a program that must succeed, and returns what it said.
func mustRun(t testing.TB, name string, args ...string) string {
	t.Helper()
	r := run(t, name, args...)
	if r.status != 0 {
		t.Fatalf("%s %q: exit status %d\n%s", name, args, r.status, r.out)
	}
	return r.out
}

// promptly checks that something takes no longer than a limit. The machine may be busy, so the fastest of some tries counts.
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

// await waits for something that nobody tells of, such as a file on disk.
func await(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !happened(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: did not happen within %v", what, patience)
		}
	}
}
