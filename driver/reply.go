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

// answer is how an error is reported: the code of RFC 959, the text, and for events the cause in one word.
type answer struct {
	code  int
	text  string // "" in the table: the error's own
	cause string // "": "other"
}

// answers is searched from the top; the first match decides. A match returns the text of the error that matched. Errors around it are not shown:
// their text may contain names of the tree or addresses.
var answers = []struct {
	matches func(error) (text string, ok bool)
	answer
}{
	{as[*lock.JobError], answer{550, "", ""}},
	{suspended, answer{451, "", "suspended"}},
	{as[tls.RecordHeaderError], answer{426, "PROT P was said, but the data connection does not begin with TLS", ""}}, // curl before 8.0 does so on active connections
	{as[*lock.TooManyError], answer{550, "", "max-locks"}},
	{is(control.ErrAborted), answer{426, "aborted by ABOR", "aborted"}},
	{is(control.ErrQuit), answer{426, "QUIT came before the upload was complete; ALLO announces its length", "quit"}},
	{is(control.ErrHungUp), answer{426, "the client hung up before the transfer was confirmed", "hung-up"}},
	{is(control.ErrStopped), answer{426, "the server ended the session", "stopped"}},
	{is(lock.ErrUncertain), answer{451, "the server cannot tell whether that happened; look before you try again", ""}},
	{is(lock.ErrClosed), answer{421, "the server is shutting down", ""}},
	{is(lock.ErrNoParent), answer{550, "no such directory to make it in", ""}},
	{is(lock.ErrNotDirectory), answer{550, "a file has that name", ""}},
	{is(lock.ErrNotEmpty), answer{550, "the directory is not empty: remove what is in it first", ""}},
	{is(lock.ErrOccupied), answer{550, "a directory that is not empty has that name, so it is no lock", ""}},
	{as[*lock.TimeoutError], answer{550, "", "timeout"}},
	{as[*lock.LimitError], answer{550, "", "limit"}},
	{as[*lock.DelayedError], answer{550, "", "delayed"}},
	{as[*lock.QueuedError], answer{550, "", "queued"}},
	{as[*lock.HeldError], answer{550, "", "held"}},
	{as[*lock.HostError], answer{550, "", "held"}},
	{as[*lock.NotYoursError], answer{550, "", ""}},
	{as[*lock.LostError], answer{550, "", ""}},
	{is(lock.ErrHeld), answer{550, "", "held"}},
	{is(lock.ErrNotHeld, lock.ErrNotYours, lock.ErrAutomatic, lock.ErrMembers, lock.ErrStale, lock.ErrNoRule), answer{550, "", ""}},
	{is(files.ErrNotDurable), answer{451, "published, but it may not survive a loss of power", ""}},
	{is(files.ErrShrunk), answer{451, "the file has become shorter meanwhile", ""}},
	{is(files.ErrChanged), answer{550, "was changed, renamed or removed during the upload: try again", "changed"}},
	{is(files.ErrSwept), answer{451, "what was sent is gone: another server has taken over, or somebody removed it; try again", "swept"}},
	{is(files.ErrMoved), answer{451, "a directory above it was moved meanwhile", "moved"}},
	{is(files.ErrName, syscall.ENAMETOOLONG), answer{553, "the server cannot store such a name", ""}},
	{is(files.ErrReserved), answer{553, "that name is reserved", ""}},
	{is(files.ErrEscapes), answer{550, "a link there leads out of the tree", ""}},
	{is(files.ErrNotRegular), answer{550, "is no regular file", ""}},
	{is(files.ErrOffset), answer{554, "REST beyond the end of the file", ""}}, // RFC 3659 section 5.3 has no code; vsftpd sends 550, proftpd 554
	{is(lock.ErrFull, syscall.ENOSPC), answer{452, "no space left", "disk-full"}},
	{is(syscall.EDQUOT), answer{452, "the quota is used up", "disk-full"}},
	{is(syscall.EFBIG), answer{452, "larger than a file may be", ""}},
	{is(syscall.EBUSY), answer{450, "is in use", ""}},
	{is(syscall.ESTALE), answer{451, "was removed on another machine: try again", ""}},
	{is(syscall.ENOTEMPTY), answer{550, "the directory is not empty", ""}},
	{is(syscall.EISDIR), answer{550, "is a directory", ""}},
	{is(syscall.ENOTDIR), answer{550, "a part of the path is no directory", ""}},
	{is(syscall.ELOOP), answer{550, "too many links", ""}},
	{is(syscall.EXDEV), answer{550, "cannot be moved to another file system", ""}},
	{is(syscall.EROFS), answer{550, "the file system is read-only", ""}},
	{is(syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed), answer{426, "the data connection was cut", "broken"}},
	{is(io.ErrUnexpectedEOF), answer{426, "the data connection ended without a close_notify of TLS", "broken"}},
	{is(context.Canceled), answer{426, "aborted", ""}},
	{is(fs.ErrNotExist), answer{550, "no such file or directory", ""}},
	{is(fs.ErrExist), answer{550, "is there already", ""}},
	{is(fs.ErrPermission), answer{550, "permission denied", ""}},
	{is(fs.ErrInvalid), answer{553, "not a possible name", ""}},
}

// is matches an error that wraps one of the targets.
func is(targets ...error) func(error) (string, bool) {
	return func(err error) (string, bool) {
		for _, target := range targets {
			if errors.Is(err, target) {
				return target.Error(), true
			}
		}
		return "", false
	}
}

// as matches the errors of a type.
func as[E error](err error) (text string, ok bool) {
	var found E
	if ok = errors.As(err, &found); ok {
		text = found.Error()
	}
	return text, ok
}

// suspended matches a SuspendedError, after which a client may try again.
func suspended(err error) (text string, ok bool) {
	text, ok = as[*lock.SuspendedError](err)
	return text + ", try again", ok
}

// done is the reply to a command that succeeded: the path, and what happened to it.
func done(code int, view, what string) control.Reply {
	return control.Reply{Code: code, Text: view + " " + what}
}

// say replies r, or the reason why the command failed, and returns the error for the library. If r has no code, the library
// words the reply to a success.
func (c *client) say(cmd *control.Command, view string, r control.Reply, err error) error {
	if err != nil {
		r = c.replyFor(view, err)
	}
	if r.Code != 0 {
		cmd.Say(r)
	}
	return err
}

// replyFor returns the reply for an error: the code, the path as the client knows it, and the reason. No other function turns errors into
// replies. An error that is not in the table is 451; the log has its whole text.
func (c *client) replyFor(view string, err error) control.Reply {
	a, known := c.explain(err)
	var protected *lock.ProtectedError
	if errors.As(err, &protected) {
		c.tell(event.Event{Kind: event.Protect, Path: string(protected.Path), Lock: string(protected.Lock), Reason: a.text})
	}
	if !known {
		c.log.Error("command failed", "path", view, "err", err)
	}
	return control.Reply{Code: a.code, Path: view, Text: a.text}
}

// explain returns the answer for an error. known is false if the table has none.
func (c *client) explain(err error) (a answer, known bool) {
	var r *refusal
	if errors.As(err, &r) {
		return answer{cmp.Or(r.code, 550), r.text, cmp.Or(r.cause, "other")}, true
	}
	for _, row := range answers {
		if text, ok := row.matches(err); ok {
			return answer{row.code, cmp.Or(row.text, text), cmp.Or(row.cause, "other")}, true
		}
	}
	return answer{451, "the server failed to do that", "other"}, false
}

// unforeseen returns err if the table has no answer for it, such as too many open files or a disk that fails.
func (c *client) unforeseen(err error) error {
	if _, known := c.explain(err); known {
		return nil
	}
	return err // nil, too
}

// The refusals of this package. Each text says what would be right.
var (
	errReadOnly   = &refusal{text: "this account may not change files"}
	errWriteOnly  = &refusal{text: "this account may not read files"}
	errIsLock     = &refusal{text: "is a lock: MKD takes it, RMD gives it back, nothing else changes it"}
	errLockName   = &refusal{text: "is the name of a lock: only MKD makes it"}
	errLocksBelow = &refusal{text: "there are held locks below it"}
	errRoot       = &refusal{text: "is the root of the tree"}
	errNeeded     = &refusal{text: "locks are made below it: it stays"}
	errNotHolder  = &refusal{text: "only the lock's holder may do that"}
	errReserved   = &refusal{text: "is served by the server itself and cannot be changed"}
	errChanging   = &refusal{text: "is made anew each time: its size is not known beforehand"}
	errIntoItself = &refusal{text: "cannot be moved into itself"}
	errIsDir      = &refusal{text: "is a directory"}
	errNotDir     = &refusal{text: "is not a directory"}
	errUnfinished = &refusal{text: "an unfinished upload lies in it: wait for its end"}
	errNoSpace    = &refusal{code: 452, cause: "disk-full", text: "there is no space for so many bytes"}
	errMovedLink  = &refusal{code: 451, text: "a link in its path was changed at the same moment: try again"}
	errWithdrawn  = &refusal{cause: "withdrawn", text: "not waited for any longer", wraps: lock.ErrHeld}
	errModeBits   = &refusal{code: 501, text: "only permission bits can be set: an octal mode of at most 777"}
	errChmod      = &refusal{text: "this account may not change modes"}
)

// refusal is an error with a text for the client.
type refusal struct {
	code  int // of the reply; 0: 550
	text  string
	cause string // in one word; "": "other"
	wraps error  // may be nil
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.wraps }
