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
	h, adopted, err := c.acquire(cmd, n)
	if errors.Is(err, lock.ErrNoParent) && c.remakeRoot(n.Parent()) {
		h, adopted, err = c.acquire(cmd, n)
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
	return control.Reply{Code: 257, Text: quotedPath(view) + c.granted(h, adopted)}, nil
}

// isOthers reports whether the name is held and the session does not speak for it.
func (c *client) isOthers(n lock.Name) bool {
	if !c.table().Held(n) {
		return false
	}
	_, err := c.locks.SpeaksFor(n)
	return err != nil
}

// acquire acquires the lock of a name, perhaps after it has waited for it.
func (c *client) acquire(cmd *control.Command, n lock.Name) (h lock.Hold, adopted lock.Token, err error) {
	ctx := c.server.context
	h, adopted, waiting, err := c.locks.AcquireOrWait(ctx, n, c.conn.Wake)
	if waiting != nil {
		h, err = c.await(cmd, waiting)
	}
	if err != nil || c.server.directories || adopted != 0 || h.Directory != (lock.DirectoryID{}) { // mkdir has looked, or the lock is there
		return h, adopted, err
	}
	// From the grant on no lock or directory above it goes away.
	err = c.fits(n)
	if err == fs.ErrExist && c.locks.MakeDirectory(ctx, n) == nil { // a crash had left it; the lock has a new one
		err = nil
	}
	if err != nil {
		return h, adopted, errors.Join(err, c.locks.Undo(ctx, n, h.Token))
	}
	return h, adopted, nil
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

// fits returns why there cannot be a lock of the name without a directory: something real has it, or its parent does not exist. It
// opens the parent, and looks at the name once.
func (c *client) fits(n lock.Name) error {
	dir, err := c.server.tree.Open(string(n.Parent()))
	if isNotThere(err) || errors.Is(err, syscall.ENOTDIR) {
		if c.table().Held(n.Parent()) { // a lock that has no directory yet
			return nil
		}
		return lock.ErrNoParent
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	in, ok := dir.(looker)
	if !ok {
		return lock.ErrNoParent
	}
	info, err := in.Lstat(n.Base())
	switch {
	case isNotThere(err):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fs.ErrExist
	}
	return lock.ErrNotDirectory
}

// remakeRoot makes a directory again that a rule has its locks in, if somebody on the server's machine has removed it. It reports
// whether it did.
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

// openLocks makes the directories of the locks that n lies in, so that there is a place for it. The session may write there.
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

// makeDirectory is MKD of what is no lock.
func (c *client) makeDirectory(n lock.Name) error {
	if !c.account.Write {
		return errReadOnly
	}
	if _, err := c.mayWrite(n); err != nil {
		return err
	}
	if err := c.openLocks(n); err != nil {
		return err
	}
	if err := c.alter(n, "directory made", func() error { return c.server.tree.Mkdir(string(n), 0o777) }); err != nil {
		return err
	}
	return c.server.tree.Last(string(n)) // when nobody waits for it any more
}

// quotedPath is a path as RFC 959 page 63 and appendix II have it: in quotes, quotes in it doubled.
func quotedPath(view string) string { return `"` + strings.ReplaceAll(view, `"`, `""`) + `"` }

// granted is what stands behind the path in the 257 of a lock. There is no quote in it: Net::FTP's pattern for the path goes
// to the last one. The token comes first, then the token of the hold that was adopted: a client that adopts reads from it
// that no other hold came between. What is cut off with a long path is the expiry.
func (c *client) granted(h lock.Hold, adopted lock.Token) string {
	text := " locked, token " + strconv.FormatUint(uint64(h.Token), 10)
	if adopted != 0 {
		text += ", adopted from token " + strconv.FormatUint(uint64(adopted), 10)
	}
	return text + ", " + h.Expiry(c.server.clock.Now()).Text()
}
