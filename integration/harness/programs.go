package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"
)

// Patience is how long a reply, or what a test waits for, may take.
const Patience = 2 * time.Minute

// The account that most clients log in with.
const (
	Account  = "phoneacc"
	Password = "secret"
)

// Main runs a package's tests, so many at once unless the command line says how many: most wait, for other processes or for time to pass. prepare
// is called first, with a directory for what is built.
func Main(m *testing.M, parallel string, prepare func(dir string) error) (status int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", parallel)
	}
	dir, err := os.MkdirTemp("", "ftplockd-integration-")
	defer os.RemoveAll(dir)
	if err == nil {
		err = prepare(dir)
	}
	if err == nil {
		status = m.Run()
	}
	if err == nil && status == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// Build builds a program, with the race detector if the tests have it.
func Build(program, to string, flags ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	args := append([]string{"build", "-o", to}, flags...)
	if RaceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(ctx, "go", append(args, program)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// Sources tells the go command on what the tests depend besides themselves: it takes down what files a test looks at, and would take the result
// of an earlier run for that of another server. root is where the repository is.
func Sources(root string) error {
	return filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		switch {
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" && name != "integration/testdata" || d.Name() == "ftplockd-data"):
			return filepath.SkipDir
		case strings.HasPrefix(name, "examples/") || strings.HasPrefix(name, "integration/testdata/") || strings.HasSuffix(name, ".go") ||
			d.Name() == "go.mod" || d.Name() == "go.sum" || d.Name() == "example.toml":
			_, err = os.Stat(path)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil // it was renamed just now
		}
		return err
	})
}

// Environment is ours without what users of the server, of netlock and of the examples set: tests say it themselves.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "NETLOCK_") || strings.HasPrefix(v, "FTP_") || strings.HasPrefix(v, "FTPLOCKD_")
	})
}

// Need skips a test whose client is not installed, or fails it where all clients must be.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			Missing(t, p+" is not installed")
		}
	}
}

// Missing skips a test, or fails it where nothing may be missing.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("FTPLOCKD_REQUIRE_CLIENTS") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// Await waits for something that nobody tells of, such as a file on disk.
func Await(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !happened(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: did not happen within %v", what, Patience)
		}
	}
}

// Accounts is the part of a configuration that has the accounts: Account, "other", those that are named, and the administrator "boss".
func Accounts(more ...string) string {
	var b strings.Builder
	for _, name := range slices.Concat([]string{Account, "other"}, more, []string{"boss"}) {
		fmt.Fprintf(&b, "\n[[account]]\nname = %q\npassword = %q\nmax_locks = 0\nadmin = %v\n", name, passwordHash(), name == "boss")
	}
	return b.String()
}

// passwordHash is a quick one: of many accounts, checked under the race detector.
var passwordHash = sync.OnceValue(func() string {
	hash, err := bcrypt.GenerateFromPassword([]byte(Password), bcrypt.MinCost)
	if err != nil {
		panic(err)
	}
	return string(hash)
})
