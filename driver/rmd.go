package driver

import (
	"cmp"
	"errors"
	"syscall"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// removeOrRelease is RMD.
func (c *client) removeOrRelease(cmd *control.Command, view string) (control.Reply, error) {
	n, own, err := c.nameToRelease(view)
	switch {
	case err != nil:
		return control.Reply{}, err
	case !own && !c.isLock(n):
		return done(250, view, "removed"), c.notEmpty(n, c.removeDirectory(n, view))
	}
	if err := c.locks.Release(c.server.context, n); err != nil {
		if err == lock.ErrNotHeld {
			err = cmp.Or(c.hostsLock(n), err)
		}
		return control.Reply{}, c.notEmpty(n, err)
	}
	return done(250, view, "released"), nil
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

// errUnfinished is for a directory in which clients see nothing.
var errUnfinished = &refusal{text: "an unfinished upload lies in it: wait for its end", is: syscall.ENOTEMPTY}

// notEmpty returns a better reason for err if a directory is not empty although listings show nothing in it.
func (c *client) notEmpty(n lock.Name, err error) error {
	if (isNotEmpty(err) || errors.Is(err, lock.ErrNotEmpty)) && c.isEmpty(n) {
		return errUnfinished
	}
	return err
}

// nameToRelease finds the Name that RMD of a path means, and whether the session's own lock has it. A session that took a
// lock by that very path means that one, also if the path has become a link's meanwhile; so nothing is looked up.
func (c *client) nameToRelease(view string) (n lock.Name, own bool, err error) {
	n = lock.Name(c.account.inTree(view))
	if c.locks.Acquired(n) {
		return n, true, nil
	}
	n, err = c.resolve(view)
	return n, false, err
}

// removeDirectory is RMD of what is no lock.
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
	err = c.undisturbed([]lock.Name{n}, func() error {
		return c.alter(n, "directory removed", func() error { return c.server.tree.RemoveDir(string(n)) })
	})
	if errors.Is(err, syscall.ENOTDIR) {
		if info, serr := c.lstat(n); serr == nil && !info.IsDir() {
			return errNotDir
		}
	}
	return err
}

// undisturbed runs change while nothing is held at or below the names.
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
