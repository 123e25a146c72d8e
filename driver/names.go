package driver

import (
	"io/fs"
	"path"
	"slices"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

func (c *client) table() *lock.Table { return c.server.table }

// resolve finds the Name of a path: the account's home added, the links in its parent
// resolved. What does not exist keeps its name: a lock need not have a directory on disk.
func (c *client) resolve(view string) (lock.Name, error) {
	if files.Hidden(view) {
		return "", files.ErrReserved
	}
	return c.server.resolve(lock.Name(c.account.inTree(view)))
}

// follow is resolve with a link of the last name followed as well.
func (c *client) follow(view string) (lock.Name, error) {
	n, err := c.resolve(path.Join(view, "x"))
	return n.Parent(), err
}

// resolve resolves the links among the parents of a name, those that lie in locks included.
func (s *Server) resolve(n lock.Name) (lock.Name, error) {
	resolved, err := s.tree.Resolve(path.Clean("/" + string(n)))
	return lock.Name(resolved), err
}

// isNeeded reports whether locks are made below n by its very name (the /locks of /locks/**).
func (c *client) isNeeded(n lock.Name) bool {
	return slices.ContainsFunc(c.table().Rules().Prefixes(), func(p lock.Name) bool { return p.Within(n) })
}

// stays says why a directory is not removed or renamed and keeps its mode: nobody could go on afterwards.
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

// isLock reports whether n is a lock rather than something else whose name a rule matches.
// Without directories a real directory of such a name was there before the rule and is no lock; with them one in which
// something lies is none.
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

// mayCreate says whether a file of that name may come to be, or be replaced. A file may have a lock's name, while nobody holds
// that.
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
