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
		err = refusal(f, err)
		f.Close()
		return nil, err
	}
	if err := sign(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// InUse returns an error if another process has opened the journal in a state directory. It writes nothing; Open looks again.
func InUse(state string) error {
	f, err := os.Open(stateDir(state).path("lock"))
	if err != nil {
		return nil // nobody has, and if that is wrong Open says so
	}
	defer f.Close() // gives it back
	if err := flock(f); err != nil {
		return refusal(f, err)
	}
	return nil
}

// refusal says why the lock file cannot be had.
func refusal(f *os.File, err error) error {
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("flock %s: %w", f.Name(), err)
	}
	pid, _ := io.ReadAll(io.LimitReader(f, 20))
	return fmt.Errorf("another ftplockd (pid %s) uses this state directory", strings.TrimSpace(string(pid)))
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
