//go:build linux

package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
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

var (
	long        = flag.Duration("cluster.long", 0, "how long the history lasts; 0: until enough has happened")
	seedFlag    = flag.Uint64("cluster.seed", 0, "seed of the histories; 0: another one each time")
	withFigures = flag.Int("cluster.figures", 0, "rounds of the measurements of failovers; 0: none")
)

// patience is how long what a test waits for may take.
const patience = 2 * time.Minute

// The account that most clients log in with.
const (
	account  = "phoneacc"
	password = "secret"
)

// dir has the built programs.
var dir string

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given { // all tests wait, for other processes or for time to pass
		_ = flag.Set("test.parallel", "4")
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) (status int) {
	var err error
	if dir, err = os.MkdirTemp("", "ftplockd-cluster-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	status = m.Run()
	if err := goleak.Find(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// plainBinary is the ftplockd that is shipped, steppedBinary one whose clocks go as a file says.
var (
	plainBinary   = sync.OnceValues(func() (string, error) { return build("ftplockd") })
	steppedBinary = sync.OnceValues(func() (string, error) { return build("ftplockd-stepped", "-tags", "testclock") })
)

// build builds the server, with the race detector if the tests have it.
func build(name string, flags ...string) (string, error) {
	if err := sources(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	to := filepath.Join(dir, name)
	args := append([]string{"build", "-o", to}, flags...)
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(ctx, "go", append(args, "../../cmd/ftplockd")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return to, nil
}

// sources tells the go command on what the tests depend besides themselves: it takes down what files a test looks at, and
// would take the result of an earlier run for that of another server.
var sources = sync.OnceValue(func() error {
	return filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go") || d.Name() == "go.mod" || d.Name() == "go.sum" || d.Name() == "example.toml":
			if _, err = os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				return nil // it was renamed just now
			}
		}
		return err
	})
})

// passwordHash is a quick one.
var passwordHash = sync.OnceValue(func() string {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		panic(err)
	}
	return string(hash)
})

// environment is ours without what users of the server set.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "FTP_") || strings.HasPrefix(v, "FTPLOCKD_")
	})
}

// await waits for something that nobody tells of.
func await(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: did not happen within %v", what, patience)
		}
	}
}
