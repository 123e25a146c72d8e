package driver

import (
	"errors"
	"io/fs"
	"path"
	"slices"

	"github.com/ftplockd/ftplockd/lock"
)

func (c *client) table() *lock.Table { return c.server.table }

// resolve finds the Name of a path: the account's home added, the links in its parent
// resolved. What does not exist keeps its name: a lock need not have a directory on disk.
func (c *client) resolve(view string) (lock.Name, error) {
	n, err := c.server.tree.Resolve(c.account.inTree(view))
	return lock.Name(n), err
}

// follow is resolve with a link of the last name followed as well.
func (c *client) follow(view string) (lock.Name, error) {
	n, err := c.server.tree.Resolve(path.Join(c.account.inTree(view), "x"))
	return lock.Name(n).Parent(), err
}

// lockAround finds the innermost held lock that n lies in, n itself not counted.
func (c *client) lockAround(n lock.Name) (lock.Status, bool) {
	for n != "/" {
		n = n.Parent()
		if s, held := c.table().Get(n); held {
			return s, true
		}
	}
	return lock.Status{}, false
}

// inLock reports whether n lies in a lock, n itself not counted. With directories the name alone makes
// one: the directory of a lock is there a moment before its hold stands, and after it has ended.
func (c *client) inLock(n lock.Name) bool {
	for n != "/" {
		n = n.Parent()
		if c.table().Held(n) || c.server.directories && c.isLockName(n) {
			return true
		}
	}
	return false
}

// isNeeded reports whether locks are made below n by its very name (the /locks of /locks/**).
func (c *client) isNeeded(n lock.Name) bool {
	return slices.ContainsFunc(c.table().Rules().Prefixes(), func(p lock.Name) bool { return p.Within(n) })
}

// isLockName reports whether a rule makes n a lock.
func (c *client) isLockName(n lock.Name) bool {
	_, ok := c.table().Rules().For(n)
	return ok
}

// isLock reports whether n is a lock rather than something else whose name a rule matches.
// Without directories a real directory of such a name was there before the rule and is no lock.
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
	return info.IsDir() && c.server.directories
}

// isStatus reports whether view names the status file.
func (c *client) isStatus(view string) bool {
	f := c.server.settings.Load().StatusFile
	return f != "" && view == f
}

// mayCreate says whether a file or directory of that name may come to be, by other means than MKD.
func (c *client) mayCreate(n lock.Name, view string) error {
	switch {
	case c.isStatus(view):
		return errReserved
	case n == "/":
		return errIsDir
	case c.inLock(n):
		return errInsideLock
	case c.isLockName(n):
		return errLockName
	case !c.account.Write:
		return errReadOnly
	}
	return nil
}

// mayReplace is mayCreate for uploads: a file that was there before a rule made its name a lock's may
// be written again.
func (c *client) mayReplace(n lock.Name, view string) error {
	err := c.mayCreate(n, view)
	if !errors.Is(err, errLockName) || !c.account.Write {
		return err
	}
	if info, serr := c.lstat(n); serr != nil || info.IsDir() {
		return err
	}
	return nil
}

// alterable says what lies there, and whether the account may remove or change it at all.
func (c *client) alterable(n lock.Name) (fs.FileInfo, error) {
	info, err := c.lstat(n)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir() && c.isLock(n):
		return nil, errIsLock
	case c.inLock(n):
		return nil, errInsideLock
	case !c.account.Write:
		return nil, errReadOnly
	}
	return info, nil
}
