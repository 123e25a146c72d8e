package driver

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"syscall"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

func (c *client) table() *lock.Table { return c.server.table }

// resolve returns the name of a path: below the account's home, with the links in its parent resolved. The last element need not exist: a
// lock may have no directory on disk.
func (c *client) resolve(view string) (lock.Name, error) {
	if files.Hidden(view) {
		return "", files.ErrReserved
	}
	return c.server.resolve(lock.Name(inTree(c.account.Home, view)))
}

// follow is resolve that also follows a link at the end.
func (c *client) follow(view string) (lock.Name, error) {
	n, err := c.resolve(path.Join(view, "x"))
	return n.Parent(), err
}

// resolve resolves the links in the parent of a name, also in locks.
func (s *Server) resolve(n lock.Name) (lock.Name, error) {
	resolved, err := s.tree.Resolve(path.Clean("/" + string(n)))
	return lock.Name(resolved), err
}

// isNeeded reports whether n is the fixed part of a rule's glob, or a directory above one (the /locks of /locks/**).
func (c *client) isNeeded(n lock.Name) bool {
	return slices.ContainsFunc(c.table().Rules().Prefixes(), func(p lock.Name) bool { return p.Within(n) })
}

// checkFixed returns an error for the directories that no command removes, renames or changes the mode of.
func (c *client) checkFixed(n lock.Name) error {
	switch {
	case n == "/" || string(n) == inTree(c.account.Home, "/"):
		return errRoot
	case c.isNeeded(n):
		return errNeeded
	}
	return nil
}

// isLockName reports whether a rule makes n the name of a lock.
func (c *client) isLockName(n lock.Name) bool {
	_, ok := c.table().Rules().For(n)
	return ok
}

// actsAsLock reports whether commands treat n as a lock:
//
//   - n is held; after a reload, perhaps no rule matches it;
//   - a rule matches n, and nothing has the name: the lock is free;
//   - a rule matches n, locks have directories, and a program on the host made one of that name. Only then host is not nil: a
//     *lock.HostError.
//
// The name of a file is no lock. If locks have no directories, neither is that of a directory. err is one of the tree.
func (c *client) actsAsLock(n lock.Name) (is bool, host, err error) {
	if c.table().Held(n) {
		return true, nil, nil
	}
	if !c.isLockName(n) {
		return false, nil, nil
	}
	info, err := c.server.tree.Lstat(string(n))
	switch {
	case isNothing(err):
		return true, nil, nil
	case err != nil:
		return false, nil, err
	case c.server.directories && info.IsDir():
		return true, &lock.HostError{Name: n, Since: info.ModTime()}, nil
	}
	return false, nil, nil
}

// isNothing reports whether err means that nothing can have the path: it is missing, or a path component is a file.
func isNothing(err error) bool { return isNotThere(err) || errors.Is(err, syscall.ENOTDIR) }

// checkHostLocks returns a *lock.ProtectedError if n lies in a lock of a program on the host, and in no held lock inside that one. If it cannot
// find that out, it returns the error of the tree. If there is a link in n, the error may be wrong: resolve n.
func (c *client) checkHostLocks(n lock.Name) error {
	for dir := n.Parent(); c.server.directories && dir != "/"; dir = dir.Parent() {
		if c.table().Held(dir) {
			return nil
		}
		switch _, host, err := c.actsAsLock(dir); {
		case err != nil:
			return err
		case host != nil:
			return &lock.ProtectedError{Path: n, Lock: dir, Why: host, Inside: true}
		}
	}
	return nil
}

// linkTargets returns the targets of the names that are symbolic links, without those of links that lead nowhere or out of the tree.
func (c *client) linkTargets(names ...lock.Name) (targets []lock.Name, err error) {
	for _, n := range names {
		info, err := c.server.tree.Lstat(string(n))
		switch {
		case isNothing(err):
			continue
		case err != nil:
			return nil, err
		case info.Mode()&fs.ModeSymlink == 0:
			continue
		}
		switch inside, err := c.server.resolve(n + "/x"); {
		case err == nil:
			targets = append(targets, inside.Parent())
		case isNothing(err), errors.Is(err, files.ErrEscapes), errors.Is(err, syscall.ELOOP):
		default:
			return nil, err
		}
	}
	return targets, nil
}

// excludingLockOf calls change. If a rule makes n the name of a lock, no session can acquire the lock while change runs. If the lock is
// held, excludingLockOf returns errIsLock and does not call change.
func (c *client) excludingLockOf(n lock.Name, change func() error) error {
	if !c.isLockName(n) {
		return change()
	}
	return c.excludingLocks([]lock.Name{n}, change)
}

// excludingLocksThroughLinks calls change, which moves, removes or replaces the names, while no lock is held or granted at or below the names.
// For the names that are links it excludes locks at or below their targets, too: a client may have acquired such a lock through the link.
func (c *client) excludingLocksThroughLinks(names []lock.Name, change func() error) error {
	targets, err := c.linkTargets(names...)
	if err != nil {
		return err
	}
	return c.excludingLocks(slices.Concat(names, targets), func() error {
		now, err := c.linkTargets(names...)
		switch {
		case err != nil:
			return err
		case !slices.Equal(now, targets):
			return errMovedLink
		}
		return change()
	})
}

// isEmpty reports whether a directory can be read and contains nothing.
func (c *client) isEmpty(n lock.Name) bool {
	dir, err := c.server.tree.Open(string(n))
	if err != nil {
		return false
	}
	defer dir.Close()
	_, err = dir.Readdirnames(1)
	return err == io.EOF
}

// liesInLock reports whether a held lock contains n.
func (c *client) liesInLock(n lock.Name) bool {
	for n != "/" {
		if n = n.Parent(); c.table().Held(n) {
			return true
		}
	}
	return false
}

// isStatus reports whether view is the path of the status file.
func (c *client) isStatus(view string) bool {
	f := c.server.settings.Load().FTP.StatusFile
	return f != "" && view == f
}

// mayCreate returns an error if the account may not make or replace a file of that name. A file may have the name of a lock that is not
// held.
func (c *client) mayCreate(n lock.Name, view string) error {
	switch {
	case c.isStatus(view):
		return errReserved
	case n == "/":
		return errIsDir
	case c.table().Held(n):
		return errIsLock
	case !c.account.Writes():
		return errReadOnly
	}
	return nil
}

// alterable resolves a path by resolve or follow, and returns its name and description. It returns an error for locks, for the status file,
// and if the account may not change files.
func (c *client) alterable(view string, resolve func(string) (lock.Name, error)) (lock.Name, fs.FileInfo, error) {
	if c.isStatus(view) {
		return "", nil, errReserved
	}
	n, err := resolve(view)
	if err != nil {
		return "", nil, err
	}
	info, err := c.lstat(n)
	if err == nil && info.IsDir() {
		var isLock bool
		if isLock, _, err = c.actsAsLock(n); isLock {
			err = errIsLock
		}
	}
	if err == nil && !c.account.Writes() {
		err = errReadOnly
	}
	return n, info, err
}
