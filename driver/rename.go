package driver

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// prepareMove is RNFR. RNTO calls it again, because the result may have changed since.
func (c *client) prepareMove(view string) (lock.Name, fs.FileInfo, error) {
	n, info, err := c.movable(view)
	if err == nil {
		_, err = c.prepareChange(c.conn.Command(), n)
	}
	return n, info, err
}

// movable is alterable for a rename. It refuses a directory that a rule needs, and one below which a client or a program on the host holds a
// lock.
func (c *client) movable(view string) (lock.Name, fs.FileInfo, error) {
	n, info, err := c.alterable(view, c.resolve)
	if err != nil || !info.IsDir() {
		return n, info, err
	}
	if err := c.checkFixed(n); err != nil {
		return n, info, err
	}
	if c.holderAt(n).HeldWithin(n) {
		return n, info, errLocksBelow
	}
	if c.server.directories {
		return n, info, c.checkHostLocksBelow(n)
	}
	return n, info, nil
}

// checkHostLocksBelow returns an error if a program on the host holds a lock at or below the directory, or if the search takes too long.
func (c *client) checkHostLocksBelow(n lock.Name) error {
	ctx, cancel := context.WithTimeout(c.server.context, c.server.bounds.search)
	defer cancel()
	found, err := c.server.hostDirectories(ctx, n, 1)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errTooMuchToSearch
	case err == nil && len(found) > 0:
		return errLocksBelow
	}
	return err
}

// rename is RNTO. Call prepareMove first.
func (c *client) rename(from lock.Name, info fs.FileInfo, toView string) error {
	to, err := c.resolve(toView)
	if err != nil {
		return err
	}
	switch err := c.mayCreate(to, toView); {
	case err != nil:
		return err
	case info.IsDir() && c.isLockName(to):
		return errLockName
	}
	if _, err := c.prepareChange(c.conn.Command(), to); err != nil {
		return err
	}
	if err := c.makeLockDirectories(to); err != nil {
		return err
	}
	if info.IsDir() && to != from && to.Within(from) {
		return errIntoItself
	}
	if info.IsDir() {
		// Most refusals come from here, and hold up no other session. The check is repeated in one step with the rename.
		if err := c.protectedBelow(from, to); err != nil {
			return err
		}
	}
	defer c.server.tree.Retain(string(to))() // the kernel frees the blocks of a replaced file after the step, so that no other session waits for that
	// For a file, too: by now, a directory with locks in it may have its name.
	if err := c.excludingLocksThroughLinks([]lock.Name{from, to}, func() error { return c.renameProtected(from, to, info) }); err != nil {
		return err
	}
	return c.server.tree.MakeDurable(string(to), string(from)) // a sync; no other session waits for it
}

// renameProtected renames. It renames a directory, or a link that may lead to one, while no change of a protected file is under way.
func (c *client) renameProtected(from, to lock.Name, info fs.FileInfo) error {
	move := func(permits []lock.Permit) error {
		err := c.server.tree.Move(string(from), string(to), func() error {
			return cmp.Or(c.checkSameKind(from, info), c.checkPermits(permits))
		})
		if err == nil {
			c.recordChange(permits[0], lock.NoteRenamed+string(to), lock.Publication{Path: from})
			c.recordChange(permits[1], "renamed from "+string(from), lock.Publication{Path: to})
		}
		return err
	}
	writes := []lock.Write{c.writeFor(from), c.writeFor(to)}
	if info.Mode().IsRegular() {
		return c.withPermits(writes, func() error { return c.checkUnmoved(from, to) }, move)
	}
	return c.protectedRefusal(c.locks.Write(c.server.context, writes, func(permits []lock.Permit) error {
		if permits == nil {
			return move(make([]lock.Permit, len(writes)))
		}
		if !c.server.lockLayout() {
			return errChangesUnderWay
		}
		defer c.server.layout.Unlock()
		err := c.checkUnmoved(from, to)
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			err = c.protectedBelow(from, to)
		case info.Mode()&fs.ModeSymlink != 0:
			err = c.checkLinkPlace(from, to)
		}
		if err != nil {
			return err
		}
		if err := c.checkPermits(permits); err != nil {
			return err
		}
		return move(permits)
	}))
}

// errTooMuchToSearch is a refusal, not a request to try again: a search of the same directory takes as long again.
var errTooMuchToSearch = &refusal{text: "too many files below it to search for locks: rename it on the server's machine"}

var errChangesUnderWay = &refusal{code: 450, text: "protected files are being changed: try again"}

// lockLayout locks the layout, and reports false if it cannot within bounds.changes. It does not queue for the mutex: if a change hangs, on a
// network file system for example, all other changes would wait behind it. Only MKD and RMD of locks at or below the names of the rename
// wait meanwhile, because Exclude and Write keep those locks as they are; the mutex of the table is free.
func (s *Server) lockLayout() bool {
	for end := time.Now().Add(s.bounds.changes); !s.layout.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
