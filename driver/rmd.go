package driver

import (
	"cmp"
	"errors"
	"syscall"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// removeOrRelease is RMD. It releases the lock whose name is the path as the client sent it, even if the path has led through a link since
// the grant. The lock table removes the lock's directory. If no lock of that name is held, the path is resolved: it may lead to another lock,
// or to a directory that is none.
func (c *client) removeOrRelease(view string) (control.Reply, error) {
	n := lock.Name(c.account.inTree(view))
	err := c.locks.Release(c.server.context, n)
	if err == lock.ErrNotHeld {
		resolved, rerr := c.resolve(view)
		if rerr != nil {
			return control.Reply{}, rerr
		}
		if resolved != n {
			n = resolved
			err = c.locks.Release(c.server.context, n)
		}
	}
	switch {
	case err == lock.ErrNotHeld && !c.isLock(n):
		return done(250, view, "removed"), c.notEmpty(n, c.removeDirectory(n, view))
	case err == lock.ErrNotHeld:
		return control.Reply{}, cmp.Or(c.hostsLock(n), err)
	}
	return done(250, view, "released"), c.notEmpty(n, err)
}

// hostsLock returns an error if a program on the host made a directory with the name of a lock that is not held.
func (c *client) hostsLock(n lock.Name) error {
	if !c.server.directories {
		return nil
	}
	if info, err := c.server.tree.Lstat(string(n)); err == nil && info.IsDir() {
		return &lock.HostError{Name: n, Since: info.ModTime()}
	}
	return nil
}

// notEmpty returns a better reason for err if a directory is not empty although listings show nothing in it.
func (c *client) notEmpty(n lock.Name, err error) error {
	notEmpty := errors.Is(err, lock.ErrNotEmpty) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) // POSIX allows both
	if notEmpty && c.isEmpty(n) {
		return errUnfinished
	}
	return err
}

// removeDirectory is RMD of a directory that is no lock.
func (c *client) removeDirectory(n lock.Name, view string) error {
	err := c.stays(n)
	switch {
	case c.isStatus(view):
		return errReserved
	case err != nil:
		return err
	case !c.account.Write:
		return errReadOnly
	}
	if _, err := c.mayChange(c.conn.Command(), n); err != nil {
		return err
	}
	err = c.undisturbed([]lock.Name{n}, func() error {
		return c.alter(n, "directory removed", func(files.Check) error { return c.server.tree.RemoveDir(string(n)) })
	})
	if errors.Is(err, syscall.ENOTDIR) {
		if info, serr := c.lstat(n); serr == nil && !info.IsDir() {
			return errNotDir
		}
	}
	return err
}

// undisturbed runs change while no lock is held or granted at or below the names.
func (c *client) undisturbed(names []lock.Name, change func() error) error {
	err := c.table().Exclude(c.server.context, names, change)
	var held *lock.HeldError
	switch {
	case !errors.As(err, &held):
		return err
	case held.Below:
		return errLocksBelow
	}
	return errIsLock
}
