//go:build unix

package journal

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// LockDir locks a directory with flock for as long as the result is open. The kernel unlocks it when the process ends, however it ends. The
// error is ErrInUse if the directory is locked already. Another error may mean that the file system locks no directories, as NFS.
func LockDir(path string) (io.Closer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if f, err = flock(f); err != nil {
		return nil, err // no *os.File that is nil in the interface
	}
	return f, nil
}

// lockFile is LockDir for a file, which it makes if necessary.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return flock(f)
}

// flock locks an open file. It closes the file if that fails.
func flock(f *os.File) (*os.File, error) {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return f, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			f.Close()
			return nil, ErrInUse
		default:
			f.Close()
			return nil, fmt.Errorf("flock %s: %w", f.Name(), err)
		}
	}
}
