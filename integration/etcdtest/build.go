//go:build linux

package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// programs are the packages of etcd's commands. The module in the directory "server" requires them.
var programs = map[string]string{"etcd": "go.etcd.io/etcd/server/v3", "etcdctl": "go.etcd.io/etcd/etcdctl/v3", "etcdutl": "go.etcd.io/etcd/etcdutl/v3"}

// get returns the file of a program of etcd. It builds each version once, and keeps it in the user's cache directory.
func get(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	project, err := goCommand(ctx, ".", "list", "-m", "-f", "{{.Dir}}", "github.com/ftplockd/ftplockd")
	if err != nil {
		return "", err
	}
	module := filepath.Join(project, "integration", "etcdtest", "server")
	version, err := goCommand(ctx, module, "list", "-m", "-f", "{{.Version}}", programs[name])
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	program := filepath.Join(cache, "ftplockd-etcd", version, name)
	return program, keep(program, func(to string) error {
		_, err := goCommand(ctx, module, "build", "-o", to, programs[name])
		return err
	})
}

// need returns the file of a program of etcd. Without it, need skips the test, or fails it if clients are required.
func need(t testing.TB, name string) string {
	t.Helper()
	program, err := get(t.Context(), name)
	if err == nil {
		return program
	}
	if os.Getenv("FTPLOCKD_REQUIRE_CLIENTS") == "1" {
		t.Fatal("no ", name, ": ", err)
	}
	t.Skip("no ", name, ": ", err)
	return ""
}

// Archive makes an archive of etcd's programs in a directory, as etcd's project releases it.
func Archive(t testing.TB, dir string) {
	t.Helper()
	name := "etcd-v3.0.0-linux-amd64"
	tree := filepath.Join(t.TempDir(), name)
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	for program := range programs {
		if err := os.Symlink(need(t, program), filepath.Join(tree, program)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "tar", "--dereference", "-C", filepath.Dir(tree), "-I", "gzip -1", "-cf", filepath.Join(dir, name+".tar.gz"), name)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// keep calls make for a file that does not exist. One process does so at a time, and a failure leaves no file.
func keep(file string, make func(to string) error) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := make(file + ".new"); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// goCommand runs the go command in a directory and returns its output.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
