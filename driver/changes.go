package driver

import (
	"context"
	"io/fs"

	"github.com/ftplockd/ftplockd/lock"
)

// delete is DELE: files and notes only.
func (c *client) delete(ctx context.Context, view string) error {
	if c.isStatus(view) {
		return errReserved
	}
	n, err := c.resolve(view)
	if err != nil {
		return err
	}
	if s, inside := c.lockAround(n); inside {
		return c.deleteNote(n, s)
	}
	if _, err := c.alterable(n); err != nil {
		return err
	}
	prepared := false
	err = c.changing(ctx, []lock.Name{n}, func(titles []lock.Title) error {
		if prepared = titles[0].Commit == lock.CommitRelease; prepared {
			return c.stageRemoval(n, titles[0])
		}
		err := c.tree().Unlink(string(n))
		if err == nil {
			c.published(titles[0], n, "removed")
		}
		return err
	})
	if err != nil || prepared { // what is prepared lasts when it is published
		return err
	}
	return c.tree().Last(string(n))
}

func (c *client) deleteNote(n lock.Name, around lock.Status) error {
	if _, held := c.table().Get(n); held {
		return errIsLock
	}
	h, err := c.noteHold(n, around)
	if err != nil {
		return err
	}
	return c.server.notes.remove(h.Token, n.Base())
}

// noteHold finds the hold whose notes this session may write.
func (c *client) noteHold(n lock.Name, around lock.Status) (lock.Hold, error) {
	if n.Parent() != around.Name {
		return lock.Hold{}, errInsideLock
	}
	h, err := c.locks.SpeaksFor(around.Name)
	switch {
	case err != nil:
		return lock.Hold{}, errNotHolder
	case !c.account.Write:
		return lock.Hold{}, errReadOnly
	}
	return h, nil
}

// mayMoveFrom is RNFR: it says whether the thing may be renamed at all.
func (c *client) mayMoveFrom(view string) error {
	n, _, err := c.movable(view)
	if err == nil {
		_, err = c.mayWrite(n)
	}
	return err
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
	switch {
	case err != nil:
		return "", nil, err
	case n == "/":
		err = errRoot
	case info.IsDir() && c.isNeeded(n):
		err = errNeeded
	case info.IsDir() && c.isLock(n):
		err = errIsLock
	case c.inLock(n):
		err = errInsideLock
	case info.IsDir() && c.table().HeldWithin(n):
		err = errLocksBelow
	case !c.account.Write:
		err = errReadOnly
	}
	return n, info, err
}

// move is RNTO: a file replaces a file in one step; nothing replaces a directory or takes the name of a lock.
func (c *client) move(ctx context.Context, fromView, toView string) error {
	from, info, err := c.movable(fromView)
	if err != nil {
		return err
	}
	to, err := c.resolve(toView)
	if err != nil {
		return err
	}
	if err := c.mayCreate(to, toView); err != nil {
		return err
	}
	if info.IsDir() && to != from && to.Within(from) {
		return errIntoItself
	}
	// A file too: by now a directory with locks in it may have its name.
	prepared := false
	err = c.undisturbed(ctx, []lock.Name{from, to}, func() (err error) {
		prepared, err = c.rename(ctx, from, to, info)
		return err
	})
	if err != nil || prepared { // as in delete
		return err
	}
	return c.tree().Last(string(to), string(from)) // when nobody waits for it any more
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

// change gives the file or directory that a path leads to another time or mode. A lock keeps its own.
func (c *client) change(view string, apply func(changeable) error) error {
	if c.isStatus(view) {
		return errReserved
	}
	n, err := c.follow(view)
	if err != nil {
		return err
	}
	info, err := c.alterable(n)
	switch {
	case err != nil:
		return err
	case !c.isLockName(n):
		return c.changeProtected(c.session.context(), n, info, apply)
	}
	// A file that has a lock's name: it may go, and the lock be taken, at any moment.
	return c.undisturbed(c.session.context(), []lock.Name{n}, func() error {
		return c.changeProtected(c.session.context(), n, info, apply)
	})
}
