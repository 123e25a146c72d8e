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

// Patience is the time limit of a reply, and of an event that a test waits for.
const Patience = 2 * time.Minute

// The account that most clients log in with.
const (
	Account  = "phoneacc"
	Password = "secret"
)

// Main calls prepare with a directory for built programs, and runs the tests of a package. parallel is the default of the flag -parallel: most tests
// wait for other processes.
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

// Sources looks at each source of the server, because the go command records the files that a test looks at. Otherwise it would reuse the result of
// a test of an older server. root is the directory of the repository.
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
			return nil // it was renamed meanwhile
		}
		return err
	})
}

// Environment returns the environment without the variables of the server, netlock and the examples.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "NETLOCK_") || strings.HasPrefix(v, "FTP_") || strings.HasPrefix(v, "FTPLOCKD_")
	})
}

// Need skips a test if a program is not installed, or fails it if FTPLOCKD_REQUIRE_CLIENTS is 1.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			Missing(t, p+" is not installed")
		}
	}
}

// Missing skips a test for a reason, or fails it if FTPLOCKD_REQUIRE_CLIENTS is 1.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("FTPLOCKD_REQUIRE_CLIENTS") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// Await polls until happened returns true. Use it for events without a notification, such as a file on disk.
func Await(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !happened(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: did not happen within %v", what, Patience)
		}
	}
}

// Accounts returns the accounts of a configuration: Account, "other", the given names, and the administrator "boss".
func Accounts(more ...string) string {
	var b strings.Builder
	for _, name := range slices.Concat([]string{Account, "other"}, more, []string{"boss"}) {
		fmt.Fprintf(&b, "\n[[account]]\nname = %q\npassword = %q\nmax_locks = 0\nadmin = %v\n", name, passwordHash(), name == "boss")
	}
	return b.String()
}

// passwordHash returns a hash that is quick to check.
var passwordHash = sync.OnceValue(func() string {
	hash, err := bcrypt.GenerateFromPassword([]byte(Password), bcrypt.MinCost)
	if err != nil {
		panic(err)
	}
	return string(hash)
})
