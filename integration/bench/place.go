//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// place is a directory that servers' trees are made in, and the kind of file system that it is on.
type place struct{ dir, fs string }

// makePlaces makes a new directory in each of the directories. Those of them that are made are returned even with an error,
// for the caller to remove.
func makePlaces(dirs []string) (places []place, err error) {
	seen := make(map[string]int)
	for _, parent := range dirs {
		dir, err := os.MkdirTemp(parent, "ftplockd-bench-")
		if err != nil {
			return places, err
		}
		places = append(places, place{dir: dir})
		p := &places[len(places)-1]
		if p.dir, err = filepath.Abs(dir); err != nil {
			return places, err
		}
		if err := os.Chmod(p.dir, 0o755); err != nil { // the peers' sessions run as nobody
			return places, err
		}
		if p.fs, err = fileSystem(p.dir); err != nil {
			return places, err
		}
		if seen[p.fs]++; seen[p.fs] > 1 { // places are told apart by this name
			p.fs = fmt.Sprintf("%s (%d)", p.fs, seen[p.fs])
		}
	}
	return places, nil
}

func removePlaces(places []place) (err error) {
	for _, p := range places {
		err = errors.Join(err, os.RemoveAll(p.dir))
	}
	return err
}

const inMemory = "tmpfs"

// fileSystem names the kind of file system that a directory is on.
func fileSystem(dir string) (string, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	return fileSystemName(int64(s.Type)), nil
}

// fileSystemName names a type of statfs(2).
func fileSystemName(magic int64) string {
	switch magic {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.F2FS_SUPER_MAGIC:
		return "f2fs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	case unix.TMPFS_MAGIC:
		return inMemory
	}
	return fmt.Sprintf("file system %#x", magic)
}
