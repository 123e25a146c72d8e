package driver

import (
	"io/fs"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// removeFile is DELE: files only.
func (c *client) removeFile(view string) error {
	n, _, err := c.alterable(view, c.resolve)
	if err != nil {
		return err
	}
	if _, err := c.mayChange(c.conn.Command(), n); err != nil {
		return err
	}
	if err := c.alter(n, "removed", func(check files.Check) error { return c.server.tree.RemoveFile(string(n), check) }); err != nil {
		return err
	}
	return c.server.tree.Last(string(n))
}

// change is MFMT and SITE CHMOD: it sets the time or the mode of the file or directory that a path leads to. It refuses locks.
func (c *client) change(view string, apply func(lock.Name) error) error {
	n, info, err := c.alterable(view, c.follow)
	if err == nil {
		_, err = c.mayChange(c.conn.Command(), n)
	}
	switch {
	case err != nil:
		return err
	case !c.isLockName(n):
		return c.changeProtected(n, info, apply)
	}
	// A file with the name of a lock: another session may remove it and acquire the lock at any moment.
	return c.undisturbed([]lock.Name{n}, func() error { return c.changeProtected(n, info, apply) })
}

// changeProtected is change by the holder, if a lock protects the file.
func (c *client) changeProtected(n lock.Name, info fs.FileInfo, apply func(lock.Name) error) error {
	return c.alter(n, lock.NoteTimes, func(files.Check) error {
		if c.table().Rules().Protects() && !info.IsDir() && links(info) > 1 {
			return errHardLinks
		}
		return apply(n)
	})
}
