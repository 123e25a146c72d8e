package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// ErrInUse is the error of LockDir for a directory that is locked already.
var ErrInUse = errors.New("in use")

// exclusive is a locked state directory. The directory itself is locked, and the file "lock" in it: a program may remove that file, and NFS
// locks no directories.
type exclusive struct {
	directory io.Closer // nil: the file system locks no directories
	file      *os.File
}

// lock locks the state directory until the result is closed or the process ends. The error matches ErrInUse if another server uses it.
func (d stateDir) lock() (*exclusive, error) {
	x := new(exclusive)
	var err error
	if x.directory, err = LockDir(string(d)); err == ErrInUse {
		return nil, d.inUseError()
	}
	if x.file, err = lockFile(d.path("lock")); err == ErrInUse {
		err = d.inUseError()
	}
	if err == nil {
		err = writePID(x.file)
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// Close unlocks the state directory.
func (x *exclusive) Close() error {
	var errs []error
	if x.file != nil {
		errs = append(errs, x.file.Close())
	}
	if x.directory != nil {
		errs = append(errs, x.directory.Close())
	}
	return errors.Join(errs...)
}

// inUseError returns the error for a state directory that another server uses. The file "lock" has the process id of that server, unless a
// program removed the file.
func (d stateDir) inUseError() error {
	pid := ""
	if text, err := os.ReadFile(d.path("lock")); err == nil {
		pid = fmt.Sprintf(" (pid %s)", strings.TrimSpace(string(text)))
	}
	return fmt.Errorf("state %s is %w: another ftplockd%s uses this directory: stop it, or give this server another state directory", d, ErrInUse, pid)
}

// writePID writes the id of this process into the lock file, for the error of a second server.
func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return err
}

// InUse returns an error that matches ErrInUse if another process has locked a state directory. It writes nothing. Open checks it again.
func InUse(state string) error {
	d := stateDir(state)
	if directory, err := LockDir(state); err == nil {
		defer directory.Close()
	} else if err == ErrInUse {
		return d.inUseError()
	}
	if _, err := os.Stat(d.path("lock")); errors.Is(err, fs.ErrNotExist) {
		return nil // no server was ever started here
	}
	file, err := LockDir(d.path("lock"))
	if err == nil {
		return file.Close()
	}
	if err == ErrInUse {
		return d.inUseError()
	}
	return nil // Open reports other errors
}
