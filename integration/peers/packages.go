//go:build linux

package peers

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
)

// installation is the place of a peer's files.
type installation struct {
	prefix    string   // before their paths; "" if it is installed
	libraries []string // environment for those that are not installed
}

// path returns where a file of the package is.
func (i installation) path(file string) string { return filepath.Join(i.prefix, file) }

// find looks for a program that is installed, or was unpacked before.
func find(program string, packages []string) (i installation, err error) {
	if os.Getuid() != 0 {
		return i, errors.New("it needs root")
	}
	if isProgram(program) {
		return i, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return i, err
	}
	i.prefix = filepath.Join(cache, "ftplockd-peers", strings.Join(packages, "+"))
	if !isProgram(i.path(program)) {
		return i, errMissing
	}
	libraries, err := filepath.Glob(filepath.Join(i.prefix, "usr/lib/*-linux-gnu"))
	i.libraries = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	return i, err
}

var errMissing = errors.New("it is not installed")

// get finds a program, or downloads the Debian packages, which may conflict with each other or with what is installed, and
// unpacks them below the user's cache directory.
func get(ctx context.Context, program string, packages []string) (installation, error) {
	i, err := find(program, packages)
	if !errors.Is(err, errMissing) {
		return i, err
	}
	if err := unpack(ctx, i.prefix, packages); err != nil {
		return i, err
	}
	return find(program, packages)
}

// unpack puts the packages into a new directory, whole or not at all.
func unpack(ctx context.Context, dir string, packages []string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	if err := in(ctx, temporary, "apt-get", append([]string{"-q", "download"}, packages...)...); err != nil {
		return fmt.Errorf("it is not installed, and Debian's package could not be had: %w", err)
	}
	archives, err := filepath.Glob(filepath.Join(temporary, "*.deb"))
	if err != nil {
		return err
	}
	files := filepath.Join(temporary, "files")
	for _, archive := range archives {
		if err := in(ctx, temporary, "dpkg", "-x", archive, files); err != nil {
			return err
		}
	}
	err = os.Rename(files, dir)
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist) {
		return nil // another process was faster
	}
	return err
}

// in runs a command in a directory.
func in(ctx context.Context, dir, command string, args ...string) error {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%s: %w: %s", command, err, lines[len(lines)-1])
	}
	return nil
}

func isProgram(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
