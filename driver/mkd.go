package driver

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// makeOrAcquire is MKD.
func (c *client) makeOrAcquire(cmd *control.Command, view string) (control.Reply, error) {
	n := lock.Name(c.account.inTree(view))
	others := c.isOthers(n) // a client that tries in vain needs no look at the disk
	var err error
	if !others {
		n, err = c.resolve(view)
	}
	switch {
	case err != nil:
		return control.Reply{}, err
	case n == "/" || c.isStatus(view):
		return control.Reply{}, fs.ErrExist
	case !c.isLockName(n) && !c.table().Held(n): // one that a reload has left without a rule is a lock until it ends
		if err := c.makeDirectory(n); err != nil {
			return control.Reply{}, err
		}
		return control.Reply{Code: 257, Text: quotedPath(view) + " created" + c.hint(n, lock.Name(c.account.inTree(view)))}, nil
	}
	if !others && !c.server.directories { // with directories the store looks
		if err := c.unoccupied(n); err != nil {
			return control.Reply{}, err
		}
	}
	h, err := c.acquire(cmd, n)
	if errors.Is(err, lock.ErrNoParent) && c.remakeRoot(n.Parent()) {
		h, err = c.acquire(cmd, n)
	}
	if err != nil {
		c.tellRefused(n, err)
		return control.Reply{}, c.shown(err)
	}
	locks, log := c.locks, c.log // the session may have ended by then
	cmd.Lost(func() {
		err := locks.Undo(context.WithoutCancel(c.server.context), n, h.Token)
		if err != nil && !errors.Is(err, lock.ErrStale) && !errors.Is(err, lock.ErrNotHeld) {
			log.Error("could not release a lock whose 257 the client did not receive", "lock", string(n), "token", h.Token, "err", err)
		}
	})
	return control.Reply{Code: 257, Text: quotedPath(view) + c.granted(h)}, nil
}

// isOthers reports whether the name is held and the session does not speak for it.
func (c *client) isOthers(n lock.Name) bool {
	if !c.table().Held(n) {
		return false
	}
	_, err := c.locks.SpeaksFor(n)
	return err != nil
}

// acquire takes the lock of a name, perhaps after it has waited for it.
func (c *client) acquire(cmd *control.Command, n lock.Name) (lock.Hold, error) {
	ctx := c.server.context
	h, waiting, err := c.locks.AcquireOrWait(ctx, n, c.conn.Wake)
	if err != nil && overdue(err) { // a program on the host made it, and that is noticed only now
		c.table().ExpireName(ctx, n)
		h, waiting, err = c.locks.AcquireOrWait(ctx, n, c.conn.Wake)
	}
	if waiting != nil {
		h, err = c.await(cmd, waiting)
	}
	if err != nil || c.server.directories { // with directories the store has looked
		return h, err
	}
	// From the grant on no lock or directory above it goes away.
	if err := c.fits(n); err != nil {
		return h, errors.Join(err, c.locks.Undo(ctx, n, h.Token))
	}
	return h, nil
}

// await lets the command wait for its turn. The client withdraws it by hanging up or by another command.
func (c *client) await(cmd *control.Command, waiting *lock.Waiting) (h lock.Hold, err error) {
	withdrawn := cmd.Wait(func() (over bool) {
		h, over, err = waiting.Poll(c.server.context)
		return over
	})
	if withdrawn != nil {
		waiting.Withdraw()
		return lock.Hold{}, errWithdrawn
	}
	return h, err
}

// overdue reports whether a lock was refused that a program on the host made so long ago that its time is over.
func overdue(err error) bool {
	var held *lock.HeldError
	return errors.As(err, &held) && held.Holder.Account == lock.HostAccount && !held.Never && held.Remaining <= 0
}

// unoccupied refuses a name that something real has.
func (c *client) unoccupied(n lock.Name) error {
	info, err := c.server.tree.Lstat(c.server.disk(n))
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return lock.ErrNoParent
	case isNotThere(err):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fs.ErrExist
	}
	return lock.ErrNotDirectory
}

// fits says why there cannot be a lock of the name without a directory: something real has it, or its parent does not exist.
func (c *client) fits(n lock.Name) error {
	if err := c.unoccupied(n); err != nil {
		return err
	}
	info, err := c.lstat(n.Parent()) // it may be a lock
	if err == nil && !info.IsDir() || isNotThere(err) || errors.Is(err, syscall.ENOTDIR) {
		return lock.ErrNoParent
	}
	return err
}

// remakeRoot makes a directory again that a rule has its locks in, if somebody on the server's machine has removed it. It reports
// whether it did.
func (c *client) remakeRoot(dir lock.Name) bool {
	if !c.isNeeded(dir) {
		return false
	}
	err := c.server.tree.MkdirAll(c.server.disk(dir), 0o755)
	if err != nil {
		c.log.Error("the directory of a [[lock]] rule is gone and cannot be made again", "directory", string(dir), "err", err)
		return false
	}
	c.log.Warn("the directory of a [[lock]] rule was gone and was made again", "directory", string(dir))
	return true
}

// makeDirectory is MKD of what is no lock.
func (c *client) makeDirectory(n lock.Name) error {
	if !c.account.Write {
		return errReadOnly
	}
	if _, err := c.mayWrite(n); err != nil {
		return err
	}
	if err := c.openInside(n); err != nil {
		return err
	}
	if err := c.alter(n, "directory made", func() error { return c.server.tree.Mkdir(c.server.disk(n), 0o777) }); err != nil {
		return err
	}
	return c.server.tree.Last(c.server.disk(n)) // when nobody waits for it any more
}

// quotedPath is a path as RFC 959 page 63 and appendix II have it: in quotes, quotes in it doubled.
func quotedPath(view string) string { return `"` + strings.ReplaceAll(view, `"`, `""`) + `"` }

// granted is what stands behind the path in the 257 of a lock. There is no quote in it: Net::FTP's pattern for the path goes
// to the last one. The token comes first, then the token of the hold that was adopted: a client that adopts reads from it
// that no other hold came between. What is cut off with a long path is the expiry.
func (c *client) granted(h lock.Hold) string {
	text := " locked, token " + strconv.FormatUint(uint64(h.Token), 10)
	if h.Adopted != 0 {
		text += ", adopted from token " + strconv.FormatUint(uint64(h.Adopted), 10)
	}
	return text + ", " + h.Expiry(c.server.clock.Now()).Text()
}
