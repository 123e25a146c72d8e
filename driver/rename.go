package driver

import (
	"errors"
	"io/fs"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// mayMoveFrom is RNFR: it says whether the thing may be renamed at all.
func (c *client) mayMoveFrom(view string) (fs.FileInfo, error) {
	n, info, err := c.movable(view)
	if err == nil {
		err = c.mayChange(c.conn.Command(), n)
	}
	if err == nil {
		_, err = c.mayWrite(n)
	}
	return info, err
}

// movable says what it is that lies there, and whether it may be renamed.
func (c *client) movable(view string) (lock.Name, fs.FileInfo, error) {
	if c.isStatus(view) {
		return "", nil, errReserved
	}
	n, err := c.resolve(view)
	if err != nil {
		return "", nil, err
	}
	info, err := c.lstat(n)
	if err != nil {
		return "", nil, err
	}
	if info.IsDir() {
		err = c.stays(n)
	}
	switch {
	case err != nil:
	case info.IsDir() && c.isLock(n):
		err = errIsLock
	case info.IsDir() && c.table().HeldWithin(n):
		err = errLocksBelow
	case info.IsDir():
		err = c.hostLocksBelow(n)
	case !c.account.Write:
		err = errReadOnly
	}
	return n, info, err
}

// hostLocksBelow refuses a directory below which a program on the host made directories with the names of locks.
func (c *client) hostLocksBelow(n lock.Name) error {
	found, err := c.server.hosts(c.server.context, n, 1)
	if err == nil && len(found) > 0 {
		return errLocksBelow
	}
	return err
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
	if err := c.mayChange(c.conn.Command(), from, to); err != nil {
		return err
	}
	if _, err := c.mayWrite(to); err != nil {
		return err
	}
	if err := c.openLocks(to); err != nil {
		return err
	}
	if info.IsDir() && to != from && to.Within(from) {
		return errIntoItself
	}
	// A file too: by now a directory with locks in it may have its name.
	if err := c.undisturbed([]lock.Name{from, to}, func() error { return c.renameProtected(from, to, info) }); err != nil {
		return err
	}
	return c.server.tree.Last(string(to), string(from)) // when nobody waits for it any more
}

// renameProtected is what RNTO does to the tree. A directory, or a link that may lead to one, moves while nobody is in the
// middle of a change.
func (c *client) renameProtected(from, to lock.Name, info fs.FileInfo) error {
	apply := func() error { return c.server.tree.Rename(string(from), string(to)) }
	if !c.locks.Concerned(from) && !c.locks.Concerned(to) {
		return apply()
	}
	publish := func(titles []lock.Title) error {
		err := apply()
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

var errChangesUnderWay = &refusal{code: 450, text: "protected files are being changed: try again", is: fs.ErrPermission}

// lockLayout locks the layout if that succeeds soon. It does not queue for it: a change that hangs, with a network file system
// for example, would hold up all others behind it.
func (s *Server) lockLayout() bool {
	for end := time.Now().Add(changesWithin); !s.layout.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
