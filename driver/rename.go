package driver

import (
	"errors"
	"io/fs"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// mayMoveFrom is RNFR.
func (c *client) mayMoveFrom(view string) (fs.FileInfo, error) {
	n, info, err := c.movable(view)
	if err == nil {
		_, err = c.mayChange(c.conn.Command(), n)
	}
	return info, err
}

// movable is alterable for RNFR and RNTO. It refuses a directory that locks need, or below which locks are held, by programs on the host
// too.
func (c *client) movable(view string) (lock.Name, fs.FileInfo, error) {
	n, info, err := c.alterable(view, c.resolve)
	if err != nil || !info.IsDir() {
		return n, info, err
	}
	if err := c.stays(n); err != nil {
		return n, info, err
	}
	if c.table().HeldWithin(n) {
		return n, info, errLocksBelow
	}
	found, err := c.server.hosts(c.server.context, n, 1)
	if len(found) > 0 {
		err = errLocksBelow
	}
	return n, info, err
}

// rename is RNTO.
func (c *client) rename(fromView, toView string) error {
	from, info, err := c.movable(fromView)
	if err != nil {
		return err
	}
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
	if _, err := c.mayChange(c.conn.Command(), from, to); err != nil {
		return err
	}
	if err := c.openLocks(to); err != nil {
		return err
	}
	if info.IsDir() && to != from && to.Within(from) {
		return errIntoItself
	}
	// Also for a file: by now a directory with locks in it may have its name.
	if err := c.undisturbed([]lock.Name{from, to}, func() error { return c.renameProtected(from, to, info) }); err != nil {
		return err
	}
	return c.server.tree.Last(string(to), string(from)) // here, where no other session waits for it
}

// renameProtected renames. A directory, or a link that may lead to one, is renamed while no change of a protected file is under way.
func (c *client) renameProtected(from, to lock.Name, info fs.FileInfo) error {
	if !c.locks.Concerned(from) && !c.locks.Concerned(to) {
		return c.server.tree.Rename(string(from), string(to))
	}
	publish := func(titles []lock.Title) error {
		err := c.server.tree.Move(string(from), string(to), func() error { return c.mayStill(titles) })
		if err == nil {
			c.server.publishedAs(titles[0], lock.NoteRenamed+string(to), lock.Publication{Path: from})
			c.server.publishedAs(titles[1], "renamed from "+string(from), lock.Publication{Path: to})
		}
		return err
	}
	if info.Mode().IsRegular() {
		return c.changing([]lock.Name{from, to}, publish)
	}
	writes := []lock.Write{{Path: from}, {Path: to}}
	return c.shown(c.locks.Write(c.server.context, writes, func(titles []lock.Title) error {
		if !c.server.lockLayout() {
			return errChangesUnderWay
		}
		defer c.server.layout.Unlock()
		if err := errors.Join(c.unmoved(from), c.unmoved(to)); err != nil {
			return err
		}
		if info.IsDir() {
			if err := c.protectedBelow(from, to); err != nil {
				return err
			}
		}
		if err := c.mayStill(titles); err != nil {
			return err
		}
		return publish(titles)
	}))
}

// changesWithin is how long the renaming of a directory waits for changes of protected files that are under way.
const changesWithin = 2 * time.Second

var errChangesUnderWay = &refusal{code: 450, text: "protected files are being changed: try again"}

// lockLayout locks the layout if that succeeds soon. It does not queue for the mutex: a change that hangs, on a network file system
// for example, would then delay all others.
func (s *Server) lockLayout() bool {
	for end := time.Now().Add(changesWithin); !s.layout.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
