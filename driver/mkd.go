package driver

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// makeOrAcquire implements MKD. Names of locks contain no symbolic links, so it first tries to acquire the path as the client sent it. Only if
// the table refuses that, and the lock is not held, it resolves the links: the path may lead to another lock, or be that of a directory. After
// an error such as lock.ErrUncertain the path is that of a lock, so that resolving changes nothing, and makeOrAcquire returns the error.
func (c *client) makeOrAcquire(cmd *control.Command, view string) (control.Reply, error) {
	n := lock.Name(inTree(c.account.Home, view))
	if n == "/" || c.isStatus(view) {
		return control.Reply{}, fs.ErrExist
	}
	h, adopted, err := c.acquire(cmd, n)
	if err != nil && !errors.Is(err, lock.ErrHeld) {
		resolved, rerr := c.resolve(view)
		switch {
		case rerr != nil:
			return control.Reply{}, rerr
		case !c.isLockName(resolved) && !c.table().Held(resolved): // after a reload, a held lock may have no rule
			return c.makeDirectory(cmd, resolved, view)
		case resolved != n, errors.Is(err, lock.ErrNoParent) && c.remakeRoot(resolved.Parent()): // remakeRoot makes the missing directory
			n = resolved
			h, adopted, err = c.acquire(cmd, n)
		}
	}
	if err != nil {
		err = c.protectedRefusal(err)
		refused, _ := c.explain(err) // the event has the text of the reply
		c.emit(event.Event{Kind: event.Refuse, Lock: string(n), Cause: refused.cause, Reason: refused.text})
		return control.Reply{}, err
	}
	if !h.Job { // a job keeps its automatic lock though the 257 is lost; an unused automatic lock ends by itself
		c.undoIfLost(cmd, h)
	}
	return control.Reply{Code: 257, Text: quotedPath(view) + c.granted(h, adopted)}, nil
}

// acquire acquires the lock of a name, and waits for it if its rule or SITE WAIT is set so. The lock table claims the name, makes the lock's
// directory on disk (or checks that the name is free there), logs the grant and waits for the sync of the log. adopted is the token
// of the job's earlier hold that this hold continues; 0: there was none.
func (c *client) acquire(cmd *control.Command, n lock.Name) (h lock.Hold, adopted lock.Token, err error) {
	if files.Hidden(string(n)) {
		return h, 0, files.ErrReserved
	}
	if err := c.checkHostLocks(n); err != nil {
		var in *lock.ProtectedError
		if !errors.As(err, &in) || !c.table().Rules().MembersAnyone(in.Lock) {
			return h, 0, err
		}
	}
	if h, mine := c.jobs.Take(n); mine {
		return h, 0, nil
	}
	h, adopted, waiting, err := c.locks.AcquireOrWait(c.server.context, n, c.conn.Wake)
	if waiting != nil {
		h, err = c.await(cmd.Wait, waiting)
	}
	if err == nil {
		c.jobs.Acquired(n) // also if the 257 is lost: then this session has ended, and the job loses no right by that
	}
	return h, adopted, err
}

// await waits for a lock by Command.Wait.
func (c *client) await(wait func(poll func() bool) error, waiting *lock.Waiting) (h lock.Hold, err error) {
	withdrawn := wait(func() (over bool) {
		h, over, err = waiting.Poll(c.server.context)
		return over
	})
	if withdrawn != nil {
		waiting.Withdraw()
		return lock.Hold{}, errWithdrawn
	}
	return h, err
}

// undoIfLost registers the release of the lock in case the client does not receive the 257.
func (c *client) undoIfLost(cmd *control.Command, h lock.Hold) {
	locks, log, name, token := c.locks, c.log, h.Name, h.Token // the session may have ended by then
	cmd.Lost(func() {
		err := locks.Undo(context.WithoutCancel(c.server.context), name, token)
		if err != nil && !errors.Is(err, lock.ErrStale) && !errors.Is(err, lock.ErrNotHeld) {
			log.Error("could not release a lock whose 257 the client did not receive", "lock", string(name), "token", token, "err", err)
		}
	})
}

// makeDirectory is MKD of a name that is not the name of a lock.
func (c *client) makeDirectory(cmd *control.Command, n lock.Name, view string) (control.Reply, error) {
	if !c.account.Writes() {
		return control.Reply{}, errReadOnly
	}
	if c.table().Rules().AutomaticRoot(n) { // programs send MKD of the root first, then list it, and compute their changes from the listing
		c.look(cmd, view)
	}
	if _, err := c.prepareChange(cmd, n); err != nil {
		return control.Reply{}, err
	}
	if err := c.makeLockDirectories(n); err != nil {
		return control.Reply{}, err
	}
	if err := c.changeAndRecord(n, "directory made", func(files.Check) error { return c.server.tree.Mkdir(string(n), 0o777) }); err != nil {
		return control.Reply{}, err
	}
	r := control.Reply{Code: 257, Text: quotedPath(view) + " created"}
	return r, c.server.tree.MakeDurable(string(n)) // a sync, after the change, so that no other session has to wait for it
}

// remakeRoot makes the directory of a rule's locks again, after a program on the host removed it. It reports whether it did.
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

// makeLockDirectories makes the missing directories of the held locks whose names lie above n. With directories = true a directory is missing only if
// the server could not make it when it started. Call prepareChange first.
//
// In a lock of a durable tree it syncs one directory, which usually has nothing to write: 0.15 ms, beside 3 ms for a small upload. Without
// held locks in the path it takes less than a microsecond.
func (c *client) makeLockDirectories(n lock.Name) error {
	in := n.Parent()
	if in == "/" {
		return nil
	}
	if err := c.makeLockDirectories(in); err != nil || !c.table().Held(in) {
		return err
	}
	if err := c.locks.MakeDirectory(c.server.context, in); err != nil {
		return err
	}
	return c.server.tree.MakeDurable(string(in)) // another session may have made it, and not synced it yet
}

// quotedPath returns a path as in RFC 959 page 63 and appendix II: in quotes, with quotes in it doubled.
func quotedPath(view string) string { return `"` + strings.ReplaceAll(view, `"`, `""`) + `"` }

// granted returns the text after the path in the 257 of a lock. It contains no quote, since Net::FTP's pattern for the path ends at the
// last one. The token comes first, so that a reply that is cut off after a long path lacks the expiry only. The token of an adopted hold
// shows a client that no other hold came between.
func (c *client) granted(h lock.Hold, adopted lock.Token) string {
	text := " locked, token " + strconv.FormatUint(uint64(h.Token), 10)
	if adopted != 0 {
		text += ", adopted from token " + strconv.FormatUint(uint64(adopted), 10)
	}
	return text + ", " + h.Expiry(c.server.clock.Now()).Text()
}
