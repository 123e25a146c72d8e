package driver

import (
	"cmp"
	"io/fs"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// removeFile is DELE.
func (c *client) removeFile(view string) error {
	n, info, err := c.alterable(view, c.resolve)
	if err != nil {
		return err
	}
	if _, err := c.prepareChange(c.conn.Command(), n); err != nil {
		return err
	}
	defer c.server.tree.Retain(string(n))() // the kernel frees the blocks of the file only then, so that no other session waits for it
	remove := func() error {
		return c.changeAndRecord(n, "removed", func(check files.Check) error {
			return c.server.tree.RemoveFile(string(n), func() error { return cmp.Or(c.checkSameKind(n, info), check()) })
		})
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		err = c.excludingLocksThroughLinks([]lock.Name{n}, remove)
	} else {
		err = remove()
	}
	if err != nil {
		return err
	}
	return c.server.tree.MakeDurable(string(n)) // a sync; no other session waits for it
}

// setAttributes is MFMT and SITE CHMOD: apply sets the time or the mode of the file or directory to which the path leads. Locks are refused.
func (c *client) setAttributes(view string, apply func(lock.Name) error) error {
	n, info, err := c.alterable(view, c.follow)
	if err == nil {
		_, err = c.prepareChange(c.conn.Command(), n)
	}
	if err != nil {
		return err
	}
	return c.excludingLockOf(n, func() error { return c.applyAndRecord(n, info, apply) })
}

// applyAndRecord applies the change, and records it in the history if a lock protects the file.
func (c *client) applyAndRecord(n lock.Name, info fs.FileInfo, apply func(lock.Name) error) error {
	return c.changeAndRecord(n, lock.NoteAttributes, func(files.Check) error {
		if c.table().Rules().Protects() && !info.IsDir() && links(info) > 1 {
			return errHardLinks
		}
		if err := c.checkSameKind(n, info); err != nil { // a link would lead to another file
			return err
		}
		return apply(n)
	})
}
