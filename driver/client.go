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
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/files"
	"github.com/ftplockd/ftplockd/lock"
)

// The refusals that this layer makes itself. Each says what would be right.
var (
	errReadOnly   = &refusal{"this account may not change files", fs.ErrPermission}
	errWriteOnly  = &refusal{"this account may not read files", fs.ErrPermission}
	errIsLock     = &refusal{"is a lock: MKD takes it, RMD gives it back, nothing else changes it", fs.ErrPermission}
	errLockName   = &refusal{"is the name of a lock: only MKD makes it", fs.ErrPermission}
	errInsideLock = &refusal{"lies in a lock: there is room for notes and for further locks only", fs.ErrPermission}
	errLocksBelow = &refusal{"there are held locks below it", fs.ErrPermission}
	errNotHolder  = &refusal{"only the lock's holder may do that", fs.ErrPermission}
	errReserved   = &refusal{"is served by the server itself and cannot be changed", fs.ErrPermission}
	errUnsafeName = &refusal{"holds a carriage return", fs.ErrInvalid}
	errIsDir      = &refusal{"is a directory", fs.ErrInvalid}
	errNotDir     = &refusal{"is not a directory", fs.ErrInvalid}
	errChmod      = &refusal{"this account may not change modes", fs.ErrPermission}
)

// refusal is an error whose text is meant for the client.
type refusal struct {
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
// resolved. A lock that has no directory on disk is a directory all the same.
func (c *client) resolve(view string) (lock.Name, error) {
	return c.resolveInTree(c.account.inTree(view))
}

func (c *client) resolveInTree(p string) (lock.Name, error) {
	n, err := c.tree().Resolve(p)
	if err == nil || c.server.directories || p == "/" || !errors.Is(err, fs.ErrNotExist) {
		return lock.Name(n), err
	}
	parent, perr := c.resolveInTree(path.Dir(p))
	if perr != nil {
		return "", err
	}
	if _, held := c.table().Get(parent); !held {
		return "", err
	}
	return lock.Name(path.Join(string(parent), path.Base(p))), nil
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
	return made{lock: true, hold: h}, err
}

// vacant refuses the name of a lock without a directory if something real lies there.
func (c *client) vacant(n lock.Name) error {
	info, err := c.tree().Lstat(string(n))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fs.ErrExist
	default:
		return lock.ErrNotDirectory
	}
}

func (c *client) makeDirectory(n lock.Name) error {
	if _, inside := c.lockAround(n); inside {
		return errInsideLock
	}
	if !c.account.Write {
		return errReadOnly
	}
	return c.tree().Mkdir(string(n), 0o777)
}

// unmake is RMD: it gives a lock back, or removes an empty directory. It reports whether it was a lock.
func (c *client) unmake(ctx context.Context, view string) (wasLock bool, err error) {
	n, err := c.resolve(view)
	if err != nil {
		return false, err
	}
	if c.isLock(n) {
		s, _ := c.table().Get(n)
		if err := c.locks.Release(ctx, n); err != nil {
			return true, err
		}
		c.server.dropNotes(n, s.Holds)
		return true, nil
	}
	switch _, inside := c.lockAround(n); {
	case n == "/" || c.isStatus(view):
		return false, fs.ErrPermission
	case inside:
		return false, errInsideLock
	case !c.account.Write:
		return false, errReadOnly
	}
	return false, c.undisturbed(ctx, []lock.Name{n}, func() error { return c.tree().Rmdir(string(n)) })
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
	if errors.Is(err, lock.ErrHeld) {
		return errLocksBelow
	}
	return err
}

// delete is DELE: files and notes only.
func (c *client) delete(ctx context.Context, view string) error {
	n, err := c.resolve(view)
	if err != nil {
		return err
	}
	if c.isStatus(view) {
		return errReserved
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
	case !c.account.Write:
		return errReadOnly
	}
	return c.tree().Unlink(string(n))
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
	n, err := c.resolve(view)
	if err != nil {
		return err
	}
	info, err := c.lstat(n)
	if err != nil {
		return err
	}
	return c.movable(n, view, info)
}

func (c *client) movable(n lock.Name, view string, info fs.FileInfo) error {
	_, inside := c.lockAround(n)
	switch {
	case c.isStatus(view):
		return errReserved
	case info.IsDir() && (n == "/" || c.isLock(n)):
		return errIsLock
	case inside:
		return errInsideLock
	case info.IsDir() && c.table().HeldWithin(n):
		return errLocksBelow
	case !c.account.Write:
		return errReadOnly
	}
	return nil
}

// move is RNTO: a file replaces a file in one step; nothing replaces a directory or takes the name of a lock.
func (c *client) move(ctx context.Context, fromView, toView string) error {
	from, err := c.resolve(fromView)
	if err != nil {
		return err
	}
	to, err := c.resolve(toView)
	if err != nil {
		return err
	}
	info, err := c.lstat(from)
	if err != nil {
		return err
	}
	if err := c.movable(from, fromView, info); err != nil {
		return err
	}
	if err := c.mayCreate(to, toView); err != nil {
		return err
	}
	if !info.IsDir() {
		return c.tree().Rename(string(from), string(to))
	}
	return c.undisturbed(ctx, []lock.Name{from, to}, func() error { return c.tree().Rename(string(from), string(to)) })
}

// mayCreate says whether a file or directory of that name may come to be, by other means than MKD.
func (c *client) mayCreate(n lock.Name, view string) error {
	_, inside := c.lockAround(n)
	switch {
	case c.isStatus(view):
		return errReserved
	case n == "/":
		return errIsDir
	case inside:
		return errInsideLock
	case c.isLockName(n):
		return errLockName
	case !c.account.Write:
		return errReadOnly
	}
	return nil
}

// mayChange says whether the file of that name may be given another time or mode.
func (c *client) mayChange(view string) (lock.Name, error) {
	n, err := c.resolve(view)
	if err != nil {
		return "", err
	}
	info, err := c.lstat(n)
	if err != nil {
		return "", err
	}
	_, inside := c.lockAround(n)
	switch {
	case c.isStatus(view):
		return "", errReserved
	case info.IsDir() && c.isLock(n):
		return "", errIsLock
	case inside:
		return "", errInsideLock
	case !c.account.Write:
		return "", errReadOnly
	}
	return n, nil
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
	return c.tree().Lstat(string(n))
}

// stat is lstat with the last link followed.
func (c *client) stat(view string) (fs.FileInfo, error) {
	if c.isStatus(view) {
		return c.server.statusInfo(c.account), nil
	}
	n, err := c.resolve(view)
	if err != nil {
		return nil, err
	}
	info, err := c.lstat(n)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return c.tree().Stat(string(n))
	}
	return info, err
}

// list returns what a directory holds, unsorted: files, locks without a directory, notes, the status file.
func (c *client) list(view string) ([]entry, error) {
	n, err := c.resolve(view)
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
		byName[info.Name()] = entry{info.Name(), c.followed(n, info), "ftp"}
	}
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
		byName[s.Name.Base()] = entry{s.Name.Base(), lockInfo{s}, s.Holds[0].Owner.Account}
	}
	if dir, base := path.Split(c.server.settings.Load().StatusFile); base != "" && path.Clean(dir) == view {
		byName[base] = entry{base, c.server.statusInfo(c.account), "ftp"}
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
	info, err := c.stat(view)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return errNotDir
	}
	n, err := c.resolve(view)
	if err != nil || !c.isLock(n) {
		return err
	}
	s, held := c.table().Get(n)
	if rule, ok := c.table().Rules().For(n); ok && rule.AllowCwd {
		return nil
	}
	if !held {
		return errNotHolder
	}
	if _, err := c.locks.SpeaksFor(n); err != nil {
		return &lock.HeldError{Name: n, Holder: s.Holds[0].Owner, Token: s.Holds[0].Token, Held: s.Held, Remaining: s.Remaining, Never: s.Never}
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
	_, err := c.make(context.Background(), name)
	return err
}

// MkdirAll is refused: it would report an existing lock as taken.
func (c *client) MkdirAll(string, os.FileMode) error { return errIsLock }

// RemoveDir implements ftpserver.ClientDriverExtensionRemoveDir: RMD.
func (c *client) RemoveDir(name string) error {
	_, err := c.unmake(context.Background(), name)
	return err
}

// Remove implements afero.Fs: DELE.
func (c *client) Remove(name string) error { return c.delete(context.Background(), name) }

// RemoveAll is refused: nothing in the tree is ever removed recursively.
func (c *client) RemoveAll(string) error { return fs.ErrPermission }

// Rename implements afero.Fs: RNFR and RNTO.
func (c *client) Rename(from, to string) error { return c.move(context.Background(), from, to) }

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
	n, err := c.mayChange(name)
	if err != nil {
		return err
	}
	return c.tree().Chtimes(string(n), atime, mtime)
}

// Chmod implements afero.Fs: SITE CHMOD, for accounts that may.
func (c *client) Chmod(name string, mode os.FileMode) error {
	if !c.account.Chmod {
		return errChmod
	}
	n, err := c.mayChange(name)
	if err != nil {
		return err
	}
	return c.tree().Chmod(string(n), mode)
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
	return c.tree().Download(string(n), o)
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
