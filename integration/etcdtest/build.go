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
	"time"
)

// server is the package of etcd's command, which the module in the directory of that name requires.
const server = "go.etcd.io/etcd/server/v3"

// get returns where etcd is. It is built once for each version and kept below the user's cache directory.
func get(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	project, err := goCommand(ctx, ".", "list", "-m", "-f", "{{.Dir}}", "github.com/ftplockd/ftplockd")
	if err != nil {
		return "", err
	}
	module := filepath.Join(project, "integration", "etcdtest", "server")
	version, err := goCommand(ctx, module, "list", "-m", "-f", "{{.Version}}", server)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	program := filepath.Join(cache, "ftplockd-etcd", version, "etcd")
	return program, keep(program, func(to string) error {
		_, err := goCommand(ctx, module, "build", "-o", to, server)
		return err
	})
}

// keep has a file made unless it is there: whole or not at all, and by one process at a time.
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

// goCommand runs the go command in a directory and returns what it printed.
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
