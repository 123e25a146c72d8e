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

// openLockFile locks the lock file of a state directory for as long as the returned file is open. The kernel unlocks it when the process
// ends, however it ends.
func openLockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		err = refusal(f, err)
		f.Close()
		return nil, err
	}
	if err := writePID(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// InUse returns an error if another process has opened the journal in a state directory. It writes nothing. Open checks it again.
func InUse(state string) error {
	f, err := os.Open(stateDir(state).path("lock"))
	if err != nil {
		return nil // no server was ever started here; Open reports other errors
	}
	defer f.Close() // unlocks it
	if err := flock(f); err != nil {
		return refusal(f, err)
	}
	return nil
}

// refusal returns the error for a lock file that cannot be locked.
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

// writePID writes the id of this process into the lock file, for the error of a second server.
func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return err
}
