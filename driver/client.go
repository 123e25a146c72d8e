package driver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/files"
	"github.com/ftplockd/ftplockd/lock"
)

// The refusals that this layer makes itself. Each says what would be right.
var (
	errReadOnly   = &refusal{text: "this account may not change files", is: fs.ErrPermission}
	errWriteOnly  = &refusal{text: "this account may not read files", is: fs.ErrPermission}
	errIsLock     = &refusal{text: "is a lock: MKD takes it, RMD gives it back, nothing else changes it", is: fs.ErrPermission}
	errLockName   = &refusal{text: "is the name of a lock: only MKD makes it", is: fs.ErrPermission}
	errInsideLock = &refusal{text: "lies in a lock: there is room for its holder's notes and for further locks only", is: fs.ErrPermission}
	errLocksBelow = &refusal{text: "there are held locks below it", is: fs.ErrPermission}
	errRoot       = &refusal{text: "is the root of the tree", is: fs.ErrPermission}
	errNeeded     = &refusal{text: "locks are made below it: it stays", is: fs.ErrPermission}
	errNotHolder  = &refusal{text: "only the lock's holder may do that", is: fs.ErrPermission}
	errReserved   = &refusal{text: "is served by the server itself and cannot be changed", is: fs.ErrPermission}
	errChanging   = &refusal{text: "is made anew each time: its size is not known beforehand", is: fs.ErrPermission}
	errUnsafeName = &refusal{code: 553, text: "holds a character that no path can have", is: fs.ErrInvalid}
	errIntoItself = &refusal{text: "cannot be moved into itself", is: fs.ErrInvalid}
	errIsDir      = &refusal{text: "is a directory", is: fs.ErrInvalid}
	errNotDir     = &refusal{text: "is not a directory", is: fs.ErrInvalid}
	errChmod      = &refusal{text: "this account may not change modes", is: fs.ErrPermission}
)

// refusal is an error whose text is meant for the client.
type refusal struct {
	code int // of the reply; 0: 550
	text string
	is   error
}

func (r *refusal) Error() string        { return r.text }
func (r *refusal) Is(target error) bool { return target == r.is }

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
		if _, held := c.table().Get(n); held {
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
	lock bool // a lock was taken; otherwise a directory was made
	name lock.Name
	hold lock.Hold
}

// make is MKD: it takes the lock of that name, or makes a directory where no rule says lock.
func (c *client) make(ctx context.Context, view string) (made, error) {
	n, err := c.resolve(view)
	if err != nil {
		return made{}, err
	}
	if n == "/" || c.isStatus(view) {
		return made{}, fs.ErrExist
	}
	if !c.isLockName(n) {
		return made{}, c.makeDirectory(n)
	}
	if !c.server.directories {
		if err := c.vacant(n); err != nil {
			return made{}, err
		}
	}
	h, err := c.locks.Acquire(ctx, n)
	if err == nil && !c.server.directories {
		err = c.undoUnlessRoofed(ctx, n, h)
	}
	return made{lock: true, name: n, hold: h}, err
}

// undoUnlessRoofed gives back a lock without a directory if there is no directory that it could lie in.
// It looks after the grant: from then on no lock or directory above it goes away.
func (c *client) undoUnlessRoofed(ctx context.Context, n lock.Name, h lock.Hold) error {
	info, err := c.lstat(n.Parent())
	if err == nil && info.IsDir() {
		return nil
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		err = lock.ErrNoParent
	}
	return errors.Join(err, c.locks.Undo(ctx, n, h.Token))
}

// vacant refuses the name of a lock without a directory if something real lies there.
func (c *client) vacant(n lock.Name) error {
	info, err := c.tree().Lstat(string(n))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return lock.ErrNoParent
	case err != nil:
		return err
	case info.IsDir():
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
		err := c.tree().Mkdir(string(n), 0o777)
		if err == nil {
			c.published(titles[0], n, "directory made")
		}
		return err
	})
}

// unmake is RMD: it gives a lock back, or removes an empty directory. It reports whether it was a lock.
func (c *client) unmake(ctx context.Context, view string) (wasLock bool, err error) {
	n, err := c.resolve(view)
	if err != nil {
		return false, err
	}
	if c.isLock(n) {
		s, _ := c.table().Get(n)
		if err := c.release(ctx, n); err != nil {
			return true, err
		}
		c.server.dropNotes(n, s.Holds)
		return true, nil
	}
	switch {
	case c.isStatus(view):
		return false, errReserved
	case n == "/":
		return false, errRoot
	case c.isNeeded(n):
		return false, errNeeded
	case c.inLock(n):
		return false, errInsideLock
	case !c.account.Write:
		return false, errReadOnly
	}
	err = c.undisturbed(ctx, []lock.Name{n}, func() error { return c.removeDirectory(ctx, n) })
	if errors.Is(err, syscall.ENOTDIR) {
		if info, serr := c.lstat(n); serr == nil && !info.IsDir() {
			return false, errNotDir
		}
	}
	return false, err
}

func (c *client) removeDirectory(ctx context.Context, n lock.Name) error {
	return c.changing(ctx, []lock.Name{n}, func(titles []lock.Title) error {
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
	if _, held := c.table().Get(n); held {
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
	err := c.table().Exclude(ctx, names, change)
	var held *lock.HeldError
	switch {
	case !errors.As(err, &held):
		return err
	case held.Below:
		return errLocksBelow
	}
	return errIsLock
}

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
	info, err := c.lstat(n)
	switch {
	case err != nil:
		return err
	case info.IsDir() && c.isLock(n):
		return errIsLock
	case info.IsDir():
		return errIsDir
	case c.inLock(n):
		return errInsideLock
	case !c.account.Write:
		return errReadOnly
	}
	return c.changing(ctx, []lock.Name{n}, func(titles []lock.Title) error {
		if titles[0].Commit == lock.CommitRelease {
			return c.stageRemoval(n, titles[0])
		}
		err := c.tree().Unlink(string(n))
		if err == nil {
			c.published(titles[0], n, "removed")
		}
		return err
	})
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
	return c.undisturbed(ctx, []lock.Name{from, to}, func() error { return c.rename(ctx, from, to, info) })
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
	info, err := c.lstat(n)
	switch {
	case err != nil:
		return err
	case info.IsDir() && c.isLock(n):
		return errIsLock
	case c.inLock(n):
		return errInsideLock
	case !c.account.Write:
		return errReadOnly
	case !c.isLockName(n):
		return c.changeProtected(c.session.context(), n, info, apply)
	}
	// A file that has a lock's name: it may go, and the lock be taken, at any moment.
	return c.undisturbed(c.session.context(), []lock.Name{n}, func() error {
		return c.changeProtected(c.session.context(), n, info, apply)
	})
}

// lstat describes what a name stands for: a lock, a note, or what lies on disk. A lock's modification
// time is the moment when it was acquired.
func (c *client) lstat(n lock.Name) (fs.FileInfo, error) {
	if s, held := c.table().Get(n); held {
		return lockInfo{s}, nil
	}
	if s, inside := c.lockAround(n); inside && n.Parent() == s.Name {
		for _, h := range s.Holds {
			if info, err := c.server.notes.stat(h.Token, n.Base()); err == nil {
				return info, nil
			}
		}
	}
	return c.lstatFile(n)
}

// stat is lstat with the last link followed.
func (c *client) stat(view string) (fs.FileInfo, error) {
	c.server.layout.RLock()
	defer c.server.layout.RUnlock()
	if c.isStatus(view) {
		return c.server.statusInfo(c.account), nil
	}
	n, err := c.resolve(view)
	if err != nil {
		return nil, err
	}
	info, err := c.lstat(n)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return info, err
	}
	target, err := c.follow(view)
	if err != nil {
		return nil, err
	}
	info, err = c.lstat(target)
	if err != nil {
		return nil, err
	}
	return namedInfo{info, n.Base()}, nil
}

// list returns what a directory holds, unsorted: files, locks without a directory, notes, the status file.
func (c *client) list(view string) ([]entry, error) {
	c.server.layout.RLock()
	defer c.server.layout.RUnlock()
	n, err := c.follow(view)
	if err != nil {
		return nil, err
	}
	status, held := c.table().Get(n)
	infos, err := c.tree().ReadDir(string(n))
	if err != nil && !held {
		return nil, err
	}
	byName := make(map[string]entry, len(infos))
	for _, info := range infos {
		byName[info.Name()] = shown(info.Name(), c.followed(n, info))
	}
	c.amend(n, byName)
	for _, h := range status.Holds {
		written, err := c.server.notes.list(h.Token)
		if err != nil {
			return nil, err
		}
		for _, info := range written {
			byName[info.Name()] = entry{info.Name(), info, h.Owner.Account}
		}
	}
	for _, s := range c.table().Children(n) {
		byName[s.Name.Base()] = shown(s.Name.Base(), lockInfo{s})
	}
	if dir, base := path.Split(c.server.settings.Load().StatusFile); base != "" && path.Clean(dir) == view {
		byName[base] = shown(base, c.server.statusInfo(c.account))
	}
	entries := make([]entry, 0, len(byName))
	for _, e := range byName {
		entries = append(entries, e)
	}
	return entries, nil
}

// followed describes what a link leads to, as far as it leads inside the tree, so that clients which
// know no links see files and directories.
func (c *client) followed(dir lock.Name, info fs.FileInfo) fs.FileInfo {
	if info.Mode()&fs.ModeSymlink == 0 {
		return info
	}
	target, err := c.tree().Stat(path.Join(string(dir), info.Name()))
	if err != nil {
		return info
	}
	return namedInfo{target, info.Name()}
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

// readNote returns the text of a note, or false if the name is none.
func (c *client) readNote(n lock.Name) ([]byte, fs.FileInfo, bool) {
	s, inside := c.lockAround(n)
	if !inside || n.Parent() != s.Name {
		return nil, nil, false
	}
	for _, h := range s.Holds {
		if text, info, err := c.server.notes.get(h.Token, n.Base()); err == nil {
			return text, info, true
		}
	}
	return nil, nil, false
}

// lockInfo describes a lock as a directory.
type lockInfo struct{ status lock.Status }

func (l lockInfo) Name() string      { return l.status.Name.Base() }
func (l lockInfo) Size() int64       { return 0 }
func (l lockInfo) Mode() fs.FileMode { return fs.ModeDir | 0o755 }
func (l lockInfo) IsDir() bool       { return true }
func (l lockInfo) Sys() any          { return nil }

// ModTime is when the first of the holds that stand was acquired.
func (l lockInfo) ModTime() time.Time {
	return slices.MinFunc(l.status.Holds, func(a, b lock.Hold) int {
		return a.Acquired.Wall.Compare(b.Acquired.Wall)
	}).Acquired.Wall
}

// What follows is afero.Fs for ftpserverlib; each method is one of the operations above.

// Name implements afero.Fs.
func (c *client) Name() string { return "ftplockd" }

// Mkdir implements afero.Fs: MKD.
func (c *client) Mkdir(name string, _ os.FileMode) error {
	_, err := c.make(c.session.context(), name)
	return err
}

// MkdirAll is refused: it would report an existing lock as taken.
func (c *client) MkdirAll(string, os.FileMode) error { return errIsLock }

// RemoveDir implements ftpserver.ClientDriverExtensionRemoveDir: RMD.
func (c *client) RemoveDir(name string) error {
	_, err := c.unmake(c.session.context(), name)
	return err
}

// Remove implements afero.Fs: DELE.
func (c *client) Remove(name string) error { return c.delete(c.session.context(), name) }

// RemoveAll is refused: nothing in the tree is ever removed recursively.
func (c *client) RemoveAll(string) error { return fs.ErrPermission }

// Rename implements afero.Fs: RNFR and RNTO.
func (c *client) Rename(from, to string) error { return c.move(c.session.context(), from, to) }

// Stat implements afero.Fs.
func (c *client) Stat(name string) (os.FileInfo, error) { return c.stat(name) }

// ReadDir implements ftpserver.ClientDriverExtensionFileList.
func (c *client) ReadDir(name string) ([]os.FileInfo, error) {
	entries, err := c.list(name)
	infos := make([]os.FileInfo, len(entries))
	for i, e := range (listOptions{all: true}).arrange(entries) {
		infos[i] = e.info
	}
	return infos, err
}

// Chtimes implements afero.Fs: MFMT.
func (c *client) Chtimes(name string, atime, mtime time.Time) error {
	return c.change(name, func(f changeable) error { return f.Chtimes(atime, mtime) })
}

// Chmod implements afero.Fs: SITE CHMOD, for accounts that may.
func (c *client) Chmod(name string, mode os.FileMode) error {
	if !c.account.Chmod {
		return errChmod
	}
	return c.change(name, func(f changeable) error { return f.Chmod(mode) })
}

// Chown is refused: files belong to the server's user.
func (c *client) Chown(string, int, int) error { return fs.ErrPermission }

// Create implements afero.Fs; uploads go through GetHandle.
func (c *client) Create(string) (afero.File, error) { return nil, fs.ErrPermission }

// Open implements afero.Fs; downloads go through GetHandle.
func (c *client) Open(string) (afero.File, error) { return nil, fs.ErrPermission }

// OpenFile implements afero.Fs; transfers go through GetHandle.
func (c *client) OpenFile(string, int, os.FileMode) (afero.File, error) { return nil, fs.ErrPermission }

// GetAvailableSpace implements ftpserver.ClientDriverExtensionAvailableSpace: AVBL, in bytes.
func (c *client) GetAvailableSpace(dir string) (int64, error) {
	n, err := c.resolve(dir)
	if err != nil {
		return 0, err
	}
	space, err := c.tree().Space(string(n))
	return int64(min(space, math.MaxInt64)), err
}

// content opens what RETR sends: a file, a note, the status file.
func (c *client) content(view string, o files.DownloadOptions) (source, error) {
	if !c.account.Read {
		return nil, errWriteOnly
	}
	if c.isStatus(view) {
		return newText(c.server.statusText(c.account), o)
	}
	c.server.layout.RLock()
	defer c.server.layout.RUnlock()
	n, err := c.resolve(view)
	if err != nil {
		return nil, err
	}
	if text, _, ok := c.readNote(n); ok {
		return newText(text, o)
	}
	if info, err := c.lstat(n); err == nil && info.IsDir() {
		return nil, errIsDir
	}
	return c.openFile(n, o)
}

// source is what a download reads from. WriteTo sends the rest to the data connection.
type source interface {
	io.Reader
	io.WriterTo
	io.Closer
}

// text is content that is made rather than read from disk: a listing, a note, the status file.
type text struct {
	*bytes.Reader
	timeout time.Duration
}

func newText(content []byte, o files.DownloadOptions) (source, error) {
	if o.Offset > int64(len(content)) {
		return nil, files.ErrOffset
	}
	return &text{bytes.NewReader(content[o.Offset:]), o.Pace.Timeout}, nil
}

// WriteTo sends the text, bounded in time like every other transfer.
func (t *text) WriteTo(w io.Writer) (int64, error) {
	rest := make([]byte, t.Len())
	t.Read(rest) // fills it: a bytes.Reader gives what it has
	return paced{w, t.timeout}.write(w, rest)
}

func (t *text) Close() error { return nil }
