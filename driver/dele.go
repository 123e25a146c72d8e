package driver

import (
	"io/fs"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// removeFile is DELE: files only.
func (c *client) removeFile(view string) error {
	if c.isStatus(view) {
		return errReserved
	}
	n, err := c.resolve(view)
	if err != nil {
		return err
	}
	if _, err := c.alterable(n); err != nil {
		return err
	}
	if err := c.mayChange(c.conn.Command(), n); err != nil {
		return err
	}
	if err := c.alter(n, "removed", func() error { return c.server.tree.RemoveFile(string(n)) }); err != nil {
		return err
	}
	return c.server.tree.Last(string(n))
}

// change is MFMT and SITE CHMOD: it gives the file or directory that a path leads to another time or mode. A lock keeps its
// own.
func (c *client) change(view string, apply func(lock.Name) error) error {
	if c.isStatus(view) {
		return errReserved
	}
	n, err := c.follow(view)
	if err != nil {
		return err
	}
	info, err := c.alterable(n)
	if err == nil {
		err = c.mayChange(c.conn.Command(), n)
	}
	switch {
	case err != nil:
		return err
	case !c.isLockName(n):
		return c.changeProtected(n, info, apply)
	}
	// A file that has a lock's name: it may go, and the lock be taken, at any moment.
	return c.undisturbed([]lock.Name{n}, func() error { return c.changeProtected(n, info, apply) })
}

// changeProtected is change as its holder, if a lock protects the file.
func (c *client) changeProtected(n lock.Name, info fs.FileInfo, apply func(lock.Name) error) error {
	return c.alter(n, lock.NoteTimes, func() error {
		if c.table().Rules().Protects() && !info.IsDir() && links(info) > 1 {
			return errHardLinks
		}
		return apply(n)
	})
}
