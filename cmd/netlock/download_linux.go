package main

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// unnamed makes a file without a name, which ends with its last descriptor unless it is linked. Not every file system can.
func unnamed(dir string, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(dir, os.O_WRONLY|unix.O_TMPFILE, mode)
}

// link gives such a file a name.
func link(f *os.File, name string) error {
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
}
