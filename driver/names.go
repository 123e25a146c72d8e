package driver

import (
	"io/fs"
	"path"
	"slices"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

func (c *client) table() *lock.Table { return c.server.table }

// resolve returns the Name of a path: with the account's home in front, and the links in its parent
// resolved. It need not exist: a lock may have no directory on disk.
func (c *client) resolve(view string) (lock.Name, error) {
	if files.Hidden(view) {
		return "", files.ErrReserved
	}
	return c.server.resolve(lock.Name(c.account.inTree(view)))
}

// follow is resolve that also follows a link at the end.
func (c *client) follow(view string) (lock.Name, error) {
	n, err := c.resolve(path.Join(view, "x"))
	return n.Parent(), err
}

// resolve resolves the links among the parents of a name, also in locks.
func (s *Server) resolve(n lock.Name) (lock.Name, error) {
	resolved, err := s.tree.Resolve(path.Clean("/" + string(n)))
	return lock.Name(resolved), err
}

// isNeeded reports whether n is the fixed part of a rule's glob, or a directory above one (the /locks of /locks/**).
func (c *client) isNeeded(n lock.Name) bool {
	return slices.ContainsFunc(c.table().Rules().Prefixes(), func(p lock.Name) bool { return p.Within(n) })
}

// stays returns an error for the directories that no command removes, renames or changes the mode of: clients need them.
func (c *client) stays(n lock.Name) error {
	switch {
	case n == "/" || string(n) == c.account.inTree("/"):
		return errRoot
	case c.isNeeded(n):
		return errNeeded
	}
	return nil
}

// isLockName reports whether a rule makes n a lock.
func (c *client) isLockName(n lock.Name) bool {
	_, ok := c.table().Rules().For(n)
	return ok
}

// isLock reports whether n is a lock, held or free. A rule may also match the name of a file, of a directory that is not empty, or, if locks
// have no directories, of any directory: these are no locks.
func (c *client) isLock(n lock.Name) bool {
	if c.table().Held(n) {
		return true
	}
	if !c.isLockName(n) {
		return false
	}
	info, err := c.server.tree.Lstat(string(n))
	if err != nil {
		return true
	}
	return info.IsDir() && c.server.directories && c.isEmpty(n)
}

// liesInLock reports whether a path lies in a lock that is held.
func (c *client) liesInLock(view string) bool {
	n, err := c.resolve(view)
	for err == nil && n != "/" {
		if n = n.Parent(); c.table().Held(n) {
			return true
		}
	}
	return false
}

// isStatus reports whether view names the status file.
func (c *client) isStatus(view string) bool {
	f := c.server.settings.Load().StatusFile
	return f != "" && view == f
}

// mayCreate returns an error if no file of that name may be made or replaced. A file may have a lock's name while the lock is not
// held.
func (c *client) mayCreate(n lock.Name, view string) error {
	switch {
	case c.isStatus(view):
		return errReserved
	case n == "/":
		return errIsDir
	case c.table().Held(n):
		return errIsLock
	case !c.account.Write:
		return errReadOnly
	}
	return nil
}

// alterable returns what a path leads to, by resolve or by follow, if the account may change, rename or remove it at all.
func (c *client) alterable(view string, resolve func(string) (lock.Name, error)) (lock.Name, fs.FileInfo, error) {
	if c.isStatus(view) {
		return "", nil, errReserved
	}
	n, err := resolve(view)
	if err != nil {
		return "", nil, err
	}
	info, err := c.lstat(n)
	switch {
	case err != nil:
	case info.IsDir() && c.isLock(n):
		err = errIsLock
	case !c.account.Write:
		err = errReadOnly
	}
	return n, info, err
}
