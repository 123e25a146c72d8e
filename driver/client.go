package driver

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"syscall"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/files"
	"github.com/ftplockd/ftplockd/lock"
)

// client is the tree and the locks as one logged-in session sees them: ftpserverlib's
// ClientDriver. Every change of a file or a lock that a client asks for goes through
// here, whichever part answers the command. All names are paths as the account
// sees them, absolute and cleaned; errors are made for replyFor.
type client struct {
	server  *Server
	session *session
	account Account
	locks   *lock.Session
}

var _ afero.Fs = (*client)(nil)

func (c *client) tree() *files.Tree  { return c.server.tree }
func (c *client) table() *lock.Table { return c.server.table }

// resolve finds the Name of a path: the account's home added, the links in its parent
// resolved. What does not exist keeps its name: a lock need not have a directory on disk.
func (c *client) resolve(view string) (lock.Name, error) {
	n, err := c.tree().Resolve(c.account.inTree(view))
	return lock.Name(n), err
}

// follow is resolve with a link of the last name followed as well.
func (c *client) follow(view string) (lock.Name, error) {
	n, err := c.tree().Resolve(path.Join(c.account.inTree(view), "x"))
	return lock.Name(n).Parent(), err
}

// lockAround finds the innermost held lock that n lies in, n itself not counted.
func (c *client) lockAround(n lock.Name) (lock.Status, bool) {
	for n != "/" {
		n = n.Parent()
		if s, held := c.table().Get(n); held {
			return s, true
		}
	}
	return lock.Status{}, false
}

// inLock reports whether n lies in a lock, n itself not counted. With directories the name alone makes
// one: the directory of a lock is there a moment before its hold stands, and after it has ended.
func (c *client) inLock(n lock.Name) bool {
	rules := c.table().Rules()
	for n != "/" {
		n = n.Parent()
		if c.table().Held(n) {
			return true
		}
		if _, ok := rules.For(n); ok && c.server.directories {
			return true
		}
	}
	return false
}

// isNeeded reports whether locks are made below n by its very name (the /locks of /locks/**).
func (c *client) isNeeded(n lock.Name) bool {
	return slices.ContainsFunc(c.table().Rules().Prefixes(), func(p lock.Name) bool { return p.Within(n) })
}

// isLockName reports whether a rule makes n a lock.
func (c *client) isLockName(n lock.Name) bool {
	_, ok := c.table().Rules().For(n)
	return ok
}

// status reports whether view names the status file.
func (c *client) isStatus(view string) bool {
	f := c.server.settings.Load().StatusFile
	return f != "" && view == f
}

// made says what MKD did.
type made struct {
	lock    bool // a lock was taken; otherwise a directory was made
	name    lock.Name
	hold    lock.Hold
	waiting *lock.Waiting // not nil: it waits for the lock
}

// ground is where a lock is to be made.
type ground struct {
	files.Spot
	removals uint64 // what server.removals was before the look
}

// survey looks where the thing with that path is to be made: at its name and, without directories, at what lies there. Of
// somebody else's lock it finds the name only: those who try in vain need no more. For who gets it all the same roofed looks.
func (c *client) survey(view string) (at ground, err error) {
	at.removals = c.server.removals.Load()
	if c.server.directories || c.isOthers(lock.Name(c.account.inTree(view))) { // with them the store looks
		n, err := c.resolve(view)
		at.Name = string(n)
		return at, err
	}
	at.Spot, err = c.tree().Find(c.account.inTree(view))
	return at, err
}

// isOthers reports whether the name is held and the session does not speak for it.
func (c *client) isOthers(n lock.Name) bool {
	if !c.table().Held(n) {
		return false
	}
	_, err := c.locks.SpeaksFor(n)
	return err != nil
}

// make is MKD: it takes the lock of that name, or makes a directory where no rule says lock.
func (c *client) make(ctx context.Context, view string) (made, error) {
	at, err := c.survey(view)
	if err != nil {
		return made{}, err
	}
	n := lock.Name(at.Name)
	if n == "/" || c.isStatus(view) {
		return made{}, fs.ErrExist
	}
	if !c.isLockName(n) {
		return made{}, c.makeDirectory(n)
	}
	if err := vacant(at.Spot); err != nil {
		return made{}, err
	}
	return c.acquire(ctx, at)
}

// acquire takes the lock of a name that is vacant, or begins to wait for it.
func (c *client) acquire(ctx context.Context, at ground) (made, error) {
	n := lock.Name(at.Name)
	h, waiting, err := c.locks.AcquireOrWait(ctx, n, c.session.conn.Wake)
	if err != nil && overdue(err) { // made on the host, and noticed only now
		c.table().Expire(ctx)
		h, waiting, err = c.locks.AcquireOrWait(ctx, n, c.session.conn.Wake)
	}
	if err == nil && waiting == nil && !c.stillRoofed(at) {
		err = c.roofed(ctx, n, h)
	}
	return made{lock: true, name: n, hold: h, waiting: waiting}, err
}

// overdue reports whether a lock was refused that a program on the host made so long ago that its time is over.
func overdue(err error) bool {
	var held *lock.HeldError
	return errors.As(err, &held) && held.Holder.Account == lock.HostAccount && !held.Never && held.Remaining <= 0
}

// stillRoofed reports whether the parent that was seen of a lock which has been taken since is there for sure, as
// far as clients are concerned: none of them has taken any directory away meanwhile, and from the grant on none can.
func (c *client) stillRoofed(at ground) bool {
	return at.Roofed && c.server.removals.Load() == at.removals
}

// roofed sees to it that a lock which was just taken lies in a directory, and is none itself but by name. If not it is given back.
// It looks after the grant: from then on no lock or directory above it goes away.
func (c *client) roofed(ctx context.Context, n lock.Name, h lock.Hold) error {
	if c.server.directories { // the store did
		return nil
	}
	err := c.fit(n)
	if err == nil {
		return nil
	}
	return errors.Join(err, c.locks.Undo(ctx, n, h.Token))
}

// fit says why there cannot be a lock of the name without a directory.
func (c *client) fit(n lock.Name) error {
	at, err := c.tree().Find(string(n))
	if err == nil {
		err = vacant(at)
	}
	if err != nil || at.Roofed {
		return err
	}
	info, err := c.lstat(n.Parent()) // it may lie in a lock
	if err == nil && !info.IsDir() || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return lock.ErrNoParent
	}
	return err
}

// vacant refuses the name of a lock without a directory if something real lies there.
func vacant(at files.Spot) error {
	switch {
	case errors.Is(at.Err, syscall.ENOTDIR):
		return lock.ErrNoParent
	case at.Err != nil:
		return at.Err
	case at.Info == nil:
		return nil
	case at.Info.IsDir():
		return fs.ErrExist
	default:
		return lock.ErrNotDirectory
	}
}

func (c *client) makeDirectory(n lock.Name) error {
	if c.inLock(n) {
		return errInsideLock
	}
	if !c.account.Write {
		return errReadOnly
	}
	return c.changing(c.session.context(), []lock.Name{n}, func(titles []lock.Title) error {
		err := c.tree().MkdirLasting(string(n), 0o777)
		if err == nil {
			c.published(titles[0], n, "directory made")
		}
		return err
	})
}

// unmade says what RMD did.
type unmade struct {
	lock    bool // a lock was given back; otherwise a directory was removed
	name    lock.Name
	holds   []lock.Hold   // that stood
	again   int           // how many more RMDs it needs
	waiting *lock.Waiting // not nil: it waits for the lock's members to go
}

// unmake is RMD: it gives a lock back, or removes an empty directory.
func (c *client) unmake(ctx context.Context, view string) (unmade, error) {
	n, own, err := c.released(view)
	if err != nil {
		return unmade{}, err
	}
	if own || c.isLock(n) {
		u := unmade{lock: true, name: n, holds: c.server.leaving(n)}
		if u.again, u.waiting, err = c.release(ctx, n); err == nil && u.waiting == nil {
			c.server.dropNotes(n, u.holds)
		}
		return u, err
	}
	return unmade{}, c.removeDirectory(ctx, n, view)
}

// released finds the Name that RMD of a path means, and whether the session's own lock has it. A session that took a lock by
// that very path means that one, also if the path has become a link's meanwhile; so nothing is looked up.
func (c *client) released(view string) (n lock.Name, own bool, err error) {
	n = lock.Name(c.account.inTree(view))
	if c.locks.Acquired(n) {
		return n, true, nil
	}
	n, err = c.resolve(view)
	return n, false, err
}

// removeDirectory is RMD of what is no lock.
func (c *client) removeDirectory(ctx context.Context, n lock.Name, view string) error {
	switch {
	case c.isStatus(view):
		return errReserved
	case n == "/":
		return errRoot
	case c.isNeeded(n):
		return errNeeded
	case c.inLock(n):
		return errInsideLock
	case !c.account.Write:
		return errReadOnly
	}
	err := c.undisturbed(ctx, []lock.Name{n}, func() error { return c.changeToNone(ctx, n) })
	if errors.Is(err, syscall.ENOTDIR) {
		if info, serr := c.lstat(n); serr == nil && !info.IsDir() {
			return errNotDir
		}
	}
	return err
}

func (c *client) changeToNone(ctx context.Context, n lock.Name) error {
	return c.changing(ctx, []lock.Name{n}, func(titles []lock.Title) error {
		if c.server.stages.below(n) {
			return errStagedBelow
		}
		err := c.tree().Rmdir(string(n))
		if err == nil {
			c.published(titles[0], n, "directory removed")
		}
		return err
	})
}

// isLock reports whether n is a lock rather than something else whose name a rule matches.
// Without directories a real directory of such a name was there before the rule and is no lock.
func (c *client) isLock(n lock.Name) bool {
	if c.table().Held(n) {
		return true
	}
	if !c.isLockName(n) {
		return false
	}
	info, err := c.tree().Lstat(string(n))
	if err != nil {
		return true
	}
	return info.IsDir() && c.server.directories
}

// undisturbed runs change while nothing is held at or below the names.
func (c *client) undisturbed(ctx context.Context, names []lock.Name, change func() error) error {
	err := c.table().Exclude(ctx, names, func() error {
		defer c.server.removals.Add(1)
		return change()
	})
	var held *lock.HeldError
	switch {
	case !errors.As(err, &held):
		return err
	case held.Below:
		return errLocksBelow
	}
	return errIsLock
}

// enter is CWD: it says whether the session may make that its working directory.
func (c *client) enter(view string) error {
	if c.isStatus(view) {
		return errNotDir
	}
	n, err := c.follow(view)
	if err != nil {
		return err
	}
	info, err := c.lstat(n)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return errNotDir
	case !c.isLock(n):
		return nil
	}
	return c.enterLock(n)
}

// enterLock refuses those who do not speak for the lock, and would take its directory for their own.
func (c *client) enterLock(n lock.Name) error {
	if rule, ok := c.table().Rules().For(n); ok && rule.AllowCwd {
		return nil
	}
	s, held := c.table().Get(n)
	if !held {
		return errNotHolder
	}
	if _, err := c.locks.SpeaksFor(n); err != nil {
		return &lock.HeldError{
			Name: n, Holder: s.Holds[0].Owner, Token: s.Holds[0].Token,
			Held: s.Held, Remaining: s.Remaining, Never: s.Never,
		}
	}
	return nil
}
