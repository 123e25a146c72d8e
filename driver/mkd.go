package driver

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// makeOrAcquire is MKD. The lock table decides by the path as the client sent it: it claims the name, makes the lock's directory on the disk
// (or checks that the name is free there), and grants the lock. The name of a lock contains no links, so only a path that is not
// granted is resolved: it may lead to another lock, or to a name that is no lock's. A held lock stays refused without that.
func (c *client) makeOrAcquire(cmd *control.Command, view string) (control.Reply, error) {
	n := lock.Name(c.account.inTree(view))
	if n == "/" || c.isStatus(view) {
		return control.Reply{}, fs.ErrExist
	}
	h, adopted, err := c.acquire(cmd, n)
	if err != nil && !errors.Is(err, lock.ErrHeld) {
		resolved, rerr := c.resolve(view)
		switch {
		case rerr != nil:
			return control.Reply{}, rerr
		case !c.isLockName(resolved) && !c.table().Held(resolved): // a reload may have left a held lock without a rule
			return c.makeDirectory(resolved, view)
		case resolved != n, errors.Is(err, lock.ErrNoParent) && c.remakeRoot(resolved.Parent()):
			n = resolved
			h, adopted, err = c.acquire(cmd, n)
		}
	}
	if err != nil {
		c.tellRefused(n, err)
		return control.Reply{}, c.shown(err)
	}
	c.undoIfLost(cmd, h)
	return control.Reply{Code: 257, Text: quotedPath(view) + c.granted(h, adopted)}, nil
}

// undoIfLost releases the lock again if the client does not receive the 257.
func (c *client) undoIfLost(cmd *control.Command, h lock.Hold) {
	locks, log := c.locks, c.log // the session may have ended by then
	cmd.Lost(func() {
		err := locks.Undo(context.WithoutCancel(c.server.context), h.Name, h.Token)
		if err != nil && !errors.Is(err, lock.ErrStale) && !errors.Is(err, lock.ErrNotHeld) {
			log.Error("could not release a lock whose 257 the client did not receive", "lock", string(h.Name), "token", h.Token, "err", err)
		}
	})
}

// makeDirectory is MKD of a name that is no lock.
func (c *client) makeDirectory(n lock.Name, view string) (control.Reply, error) {
	if !c.account.Write {
		return control.Reply{}, errReadOnly
	}
	if c.table().Rules().AutomaticRoot(n) { // programs send it first, then list, and compute their changes from the listing
		c.look(c.conn.Command(), view)
	}
	if _, err := c.mayChange(c.conn.Command(), n); err != nil {
		return control.Reply{}, err
	}
	if err := c.openLocks(n); err != nil {
		return control.Reply{}, err
	}
	if err := c.alter(n, "directory made", func(files.Check) error { return c.server.tree.Mkdir(string(n), 0o777) }); err != nil {
		return control.Reply{}, err
	}
	r := control.Reply{Code: 257, Text: quotedPath(view) + " created" + c.hint(n, lock.Name(c.account.inTree(view)))}
	return r, c.server.tree.Last(string(n)) // here, where no other session waits for it
}

// acquire acquires the lock of a name. It may wait for it.
func (c *client) acquire(cmd *control.Command, n lock.Name) (h lock.Hold, adopted lock.Token, err error) {
	if files.Hidden(string(n)) {
		return h, 0, files.ErrReserved
	}
	h, adopted, waiting, err := c.locks.AcquireOrWait(c.server.context, n, c.conn.Wake)
	if waiting != nil {
		h, err = c.await(cmd, waiting)
	}
	return h, adopted, err
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

// remakeRoot makes the directory again in which a rule has its locks, after a program on the host removed it. It reports whether it did.
func (c *client) remakeRoot(dir lock.Name) bool {
	if !c.isNeeded(dir) {
		return false
	}
	err := c.server.tree.MkdirAll(string(dir), 0o755)
	if err != nil {
		c.log.Error("the directory of a [[lock]] rule is gone and cannot be made again", "directory", string(dir), "err", err)
		return false
	}
	c.log.Warn("the directory of a [[lock]] rule was gone and was made again", "directory", string(dir))
	return true
}

// openLocks makes the directories of the locks that n lies in, where these have none yet. Call mayChange before.
func (c *client) openLocks(n lock.Name) error {
	in := n.Parent()
	if c.server.directories || in == "/" {
		return nil
	}
	if err := c.openLocks(in); err != nil || !c.table().Held(in) {
		return err
	}
	return c.locks.MakeDirectory(c.server.context, in)
}

// quotedPath returns a path as in RFC 959 page 63 and appendix II: in quotes, with quotes in it doubled.
func quotedPath(view string) string { return `"` + strings.ReplaceAll(view, `"`, `""`) + `"` }

// granted returns what stands behind the path in the 257 of a lock. It contains no quote, since Net::FTP's pattern for the path ends at the
// last one. The token comes first, so that a reply that is cut off behind a long path lacks the expiry only. A client that adopts a lock
// learns from the token of the adopted hold that no other hold came between.
func (c *client) granted(h lock.Hold, adopted lock.Token) string {
	text := " locked, token " + strconv.FormatUint(uint64(h.Token), 10)
	if adopted != 0 {
		text += ", adopted from token " + strconv.FormatUint(uint64(adopted), 10)
	}
	return text + ", " + h.Expiry(c.server.clock.Now()).Text()
}
