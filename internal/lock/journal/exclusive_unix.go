//go:build unix

package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// exclusive takes the lock file of a state directory, for as long as the returned file is open. The
// kernel gives it back when the process ends, however it ends.
func exclusive(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		pid, _ := io.ReadAll(io.LimitReader(f, 20))
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another ftplockd (pid %s) uses this state directory", strings.TrimSpace(string(pid)))
		}
		return nil, fmt.Errorf("flock %s: %w", path, err)
	}
	if err := sign(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// sign writes who has the lock file, for the one who is refused.
func sign(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return err
}
