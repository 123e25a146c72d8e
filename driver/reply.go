package driver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"syscall"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// answer is one error's place among the replies: the code of RFC 959 and the words.
type answer struct {
	is   error
	code int
	text string // "" is what lockText says
}

// answers is searched from the top; the first match decides. The errors of package lock and the
// refusals of this package carry texts made for clients, and match what stands further down.
var answers = []answer{
	{control.ErrAborted, 426, "aborted by ABOR"},
	{control.ErrQuit, 426, "QUIT came before the upload was complete; ALLO announces its length"},
	{control.ErrHungUp, 426, "the client hung up before the transfer was confirmed"},
	{control.ErrStopped, 426, "the server ended the session"},
	{lock.ErrUncertain, 451, "the server cannot tell whether that happened; look before you try again"},
	{lock.ErrClosed, 421, "the server is shutting down"},
	{lock.ErrNoParent, 550, "no such directory to make it in"},
	{lock.ErrNotDirectory, 550, "a file has that name"},
	{lock.ErrNotEmpty, 550, "the directory is not empty: remove what is in it first"},
	{lock.ErrOccupied, 550, "a directory that is not empty has that name, so it is no lock"},
	{lock.ErrHeld, 550, ""},
	{lock.ErrNotHeld, 550, ""},
	{lock.ErrNotYours, 550, ""},
	{lock.ErrAutomatic, 550, ""},
	{lock.ErrMembers, 550, ""},
	{lock.ErrStale, 550, ""},
	{lock.ErrNoRule, 550, ""},
	{lock.ErrFull, 452, "no space left"},
	{files.ErrNotDurable, 451, "published, but it may not survive a loss of power"},
	{files.ErrShrunk, 451, "the file has become shorter meanwhile"},
	{files.ErrChanged, 550, "was changed, renamed or removed during the upload: try again"},
	{files.ErrSwept, 451, "what was sent is gone: another server has taken over, or somebody removed it; try again"},
	{files.ErrMoved, 451, "a directory above it was moved meanwhile"},
	{files.ErrName, 553, "the server cannot store such a name"},
	{files.ErrReserved, 553, "that name is reserved"},
	{files.ErrEscapes, 550, "a link there leads out of the tree"},
	{files.ErrNotRegular, 550, "is no regular file"},
	{files.ErrOffset, 554, "REST beyond the end of the file"}, // RFC 3659 section 5.3 has no code; vsftpd says 550, proftpd 554
	{syscall.ENOSPC, 452, "no space left"},
	{syscall.EDQUOT, 452, "the quota is used up"},
	{syscall.EFBIG, 452, "larger than a file may be"},
	{syscall.ENAMETOOLONG, 553, "the server cannot store such a name"},
	{syscall.EBUSY, 450, "is in use"},
	{syscall.ESTALE, 451, "was removed on another machine: try again"},
	{syscall.ENOTEMPTY, 550, "the directory is not empty"},
	{syscall.EISDIR, 550, "is a directory"},
	{syscall.ENOTDIR, 550, "a part of the path is no directory"},
	{syscall.ELOOP, 550, "too many links"},
	{syscall.EXDEV, 550, "cannot be moved to another file system"},
	{syscall.EROFS, 550, "the file system is read-only"},
	{syscall.ECONNRESET, 426, "the data connection was cut"},
	{syscall.EPIPE, 426, "the data connection was cut"},
	{net.ErrClosed, 426, "the data connection was cut"},
	{io.ErrUnexpectedEOF, 426, "the data connection ended without a close_notify of TLS"},
	{context.Canceled, 426, "aborted"},
	{fs.ErrNotExist, 550, "no such file or directory"},
	{fs.ErrExist, 550, "is there already"},
	{fs.ErrPermission, 550, "permission denied"},
	{fs.ErrInvalid, 553, "not a possible name"},
}

// done is the reply to a command that did what it was to do with a path.
func done(code int, view, what string) control.Reply {
	return control.Reply{Code: code, Text: view + " " + what}
}

// say has the client told r, or why the command failed, and returns the error for the library. Without r's code a
// success is told in the library's words.
func (c *client) say(cmd *control.Command, view string, r control.Reply, err error) error {
	if err != nil {
		r = c.replyFor(view, err)
	}
	if r.Code != 0 {
		cmd.Say(r)
	}
	return err
}

// replyFor is the one place where an error becomes a reply: code, the path as the client
// knows it, and the reason. It never shows a path of the server's machine.
// What nobody foresaw is 451, and logged with its whole text.
func (c *client) replyFor(view string, err error) control.Reply {
	code, text, known := c.explain(err)
	var protected *lock.ProtectedError
	if errors.As(err, &protected) {
		c.tell(event.Event{Kind: event.Protect, Path: string(protected.Path), Lock: string(protected.Lock), Reason: text})
	}
	if !known {
		c.log.Error("command failed", "path", view, "err", err)
	}
	return control.Reply{Code: code, Path: view, Text: text}
}

// explain returns the code and the text of an error, and whether it was foreseen.
func (c *client) explain(err error) (code int, text string, known bool) {
	var (
		r       *refusal
		plain   tls.RecordHeaderError
		tooMany *lock.TooManyError
		later   *lock.SuspendedError
		job     *lock.JobError
	)
	switch {
	case errors.As(err, &job):
		return 550, job.Error(), true
	case errors.As(err, &later):
		return 451, "not now: " + later.Reason + "; nothing was changed, try again", true
	case errors.As(err, &r):
		return cmp.Or(r.code, 550), r.text, true
	case errors.As(err, &plain): // curl before 8.0 does so on active connections
		return 426, "PROT P was said, but the data connection does not begin with TLS", true
	case errors.As(err, &tooMany):
		return 550, tooMany.Error(), true
	}
	for _, a := range answers {
		if errors.Is(err, a.is) {
			return a.code, cmp.Or(a.text, lockText(err, a.is)), true
		}
	}
	return 451, "the server failed to do that", false
}

// unforeseen is err if it is none that explain knows, such as too many open files or a disk that fails.
func (c *client) unforeseen(err error) error {
	if _, _, known := c.explain(err); known {
		return nil
	}
	return err // nil, too
}

// lockText is the text of an error of package lock, without what was wrapped around it: that may hold names of the
// tree or addresses.
func lockText(err, kind error) string {
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch e.(type) {
		case *lock.TimeoutError, *lock.HeldError, *lock.DelayedError, *lock.QueuedError, *lock.LimitError, *lock.NotYoursError, *lock.LostError, *lock.HostError:
			return e.Error()
		}
	}
	return kind.Error()
}

// The refusals that this layer makes itself. Each says what would be right.
var (
	errReadOnly   = &refusal{text: "this account may not change files", is: fs.ErrPermission}
	errWriteOnly  = &refusal{text: "this account may not read files", is: fs.ErrPermission}
	errIsLock     = &refusal{text: "is a lock: MKD takes it, RMD gives it back, nothing else changes it", is: fs.ErrPermission}
	errLockName   = &refusal{text: "is the name of a lock: only MKD makes it", is: fs.ErrPermission}
	errLocksBelow = &refusal{text: "there are held locks below it", is: fs.ErrPermission}
	errRoot       = &refusal{text: "is the root of the tree", is: fs.ErrPermission}
	errNeeded     = &refusal{text: "locks are made below it: it stays", is: fs.ErrPermission}
	errNotHolder  = &refusal{text: "only the lock's holder may do that", is: fs.ErrPermission}
	errReserved   = &refusal{text: "is served by the server itself and cannot be changed", is: fs.ErrPermission}
	errChanging   = &refusal{text: "is made anew each time: its size is not known beforehand", is: fs.ErrPermission}
	errIntoItself = &refusal{text: "cannot be moved into itself", is: fs.ErrInvalid}
	errIsDir      = &refusal{text: "is a directory", is: fs.ErrInvalid}
	errNotDir     = &refusal{text: "is not a directory", is: fs.ErrInvalid}
	errNoSpace    = &refusal{code: 452, text: "there is no space for so many bytes", is: syscall.ENOSPC}
	errMovedLink  = &refusal{code: 451, text: "a link in its path was changed at the same moment: try again", is: fs.ErrPermission}
	errWithdrawn  = &refusal{text: "not waited for any longer", is: lock.ErrHeld}
	errModeBits   = &refusal{code: 501, text: "only permission bits can be set: an octal mode of at most 777", is: fs.ErrPermission}
	errChmod      = &refusal{text: "this account may not change modes", is: fs.ErrPermission}
)

// refusal is an error whose text is meant for the client.
type refusal struct {
	code int // of the reply; 0: 550
	text string
	is   error

	protected *lock.ProtectedError // what it puts into words; nil: something else
}

func (r *refusal) Error() string        { return r.text }
func (r *refusal) Is(target error) bool { return target == r.is }

// As finds the ProtectedError, for events.
func (r *refusal) As(target any) bool {
	p, ok := target.(**lock.ProtectedError)
	if ok = ok && r.protected != nil; ok {
		*p = r.protected
	}
	return ok
}

// isNotEmpty reports whether an error says that something lies in a directory. POSIX allows both.
func isNotEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}
