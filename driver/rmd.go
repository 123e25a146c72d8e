package driver

import (
	"cmp"
	"errors"
	"io/fs"
	"syscall"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// removeOrRelease is RMD. It releases the lock whose name is the path as the client sent it, even if a link has replaced a directory of the
// path. The lock table removes the lock's directory from the disk and logs the release. Only if no lock of that name is held, the links are
// resolved: the path may lead to another lock, or be the path of a directory.
func (c *client) removeOrRelease(cmd *control.Command, view string) (control.Reply, error) {
	n := lock.Name(inTree(c.account.Home, view))
	released := done(250, view, "released")
	err := c.release(n)
	if err != lock.ErrNotHeld { // without errors.Is: a *lock.LostError matches ErrNotHeld, too, and is a refusal
		return released, c.explainNotEmpty(n, err)
	}
	resolved, rerr := c.resolve(view)
	if rerr != nil {
		return control.Reply{}, rerr
	}
	if resolved != n {
		n = resolved
		err = c.release(n)
	}
	if err != lock.ErrNotHeld {
		return released, c.explainNotEmpty(n, err)
	}
	switch isLock, host, failed := c.actsAsLock(n); {
	case failed != nil:
		return control.Reply{}, failed
	case isLock:
		return control.Reply{}, cmp.Or(host, err)
	}
	if err := c.removeDirectory(cmd, n, view); err != nil {
		return control.Reply{}, c.explainNotEmpty(n, err)
	}
	return done(250, view, "removed"), c.server.tree.MakeDurable(string(n)) // a sync; no other session waits for it
}

// release releases a lock of the session, or an automatic lock of its job that the job has acquired by MKD, too.
func (c *client) release(n lock.Name) error {
	if mine, err := c.jobs.Release(c.server.context, n); mine {
		return err
	}
	return c.locks.Release(c.server.context, n)
}

// removeDirectory is RMD of a directory that is not a lock.
func (c *client) removeDirectory(cmd *control.Command, n lock.Name, view string) error {
	switch fixed := c.checkFixed(n); {
	case c.isStatus(view):
		return errReserved
	case fixed != nil:
		return fixed
	case !c.account.Writes():
		return errReadOnly
	}
	if info, err := c.lstat(n); err == nil && !info.IsDir() {
		if info.Mode()&fs.ModeSymlink != 0 {
			return errIsLink
		}
		return errNotDir
	}
	if _, err := c.prepareChange(cmd, n); err != nil {
		return err
	}
	return c.excludingLocks([]lock.Name{n}, func() error {
		return c.changeAndRecord(n, "directory removed", func(files.Check) error { return c.server.tree.RemoveDir(string(n)) })
	})
}

// explainNotEmpty returns errUnfinished in place of err if a directory is not empty although listings show nothing in it.
func (c *client) explainNotEmpty(n lock.Name, err error) error {
	notEmpty := errors.Is(err, lock.ErrNotEmpty) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) // POSIX allows both
	if notEmpty && c.isEmpty(n) {
		return errUnfinished
	}
	return err
}

// excludingLocks calls change while no lock is held or granted at or below the names. If a lock is held there, it returns errIsLock or
// errLocksBelow.
func (c *client) excludingLocks(names []lock.Name, change func() error) error {
	err := c.holderAt(names[0]).Exclude(c.server.context, names, change)
	var held *lock.HeldError
	switch {
	case !errors.As(err, &held):
		return err
	case held.Below:
		return errLocksBelow
	}
	return errIsLock
}
