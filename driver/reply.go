package driver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// answers has the reply to each error. The first match counts. matches returns the text of the error that it matched, without the errors
// around it: these may contain names of the tree or addresses.
var answers = []struct {
	matches     func(error) (text string, ok bool)
	code        int
	text, cause string // as in a refusal; text "": the text that matches returned
}{
	{refusedJobWhileSuspended, 451, "", "suspended"},
	{as[*job.Error], 550, "", ""},
	{suspended, 451, "", "suspended"},
	{as[tls.RecordHeaderError], 426, "the data connection does not begin with TLS, although PROT P is in force", ""}, // curl before 8.0 does so on active connections
	{as[*lock.TooManyError], 550, "", "max-locks"},
	{is(control.ErrAborted), 426, "aborted by ABOR", "aborted"},
	{is(control.ErrQuit), 426, "QUIT came before the upload was complete; ALLO announces its length", "quit"},
	{is(control.ErrHungUp), 426, "the client hung up before the transfer was confirmed", "hung-up"},
	{is(control.ErrStopped), 426, "the server ended the session", "stopped"},
	{is(lock.ErrUncertain), 451, "the server cannot tell whether that happened; check before you try again", ""},
	{is(lock.ErrClosed), 421, "the server is shutting down", ""},
	{is(lock.ErrNoParent), 550, "the directory above it does not exist", ""},
	{is(lock.ErrNotDirectory), 550, "a file has that name", ""},
	{is(lock.ErrNotEmpty), 550, "the directory is not empty: remove what is in it first", ""},
	{is(lock.ErrFull), 452, "no space left", "disk-full"},
	{as[*lock.TimeoutError], 550, "", "timeout"},
	{as[*lock.LimitError], 550, "", "limit"},
	{as[*lock.DelayedError], 550, "", "delayed"},
	{as[*lock.QueuedError], 550, "", "queued"},
	{as[*lock.HeldError], 550, "", "held"},
	{as[*lock.HostError], 550, "", "held"},
	{as[*lock.NotYoursError], 550, "", ""},
	{as[*lock.LostError], 550, "", ""},
	{is(lock.ErrHeld), 550, "", "held"},
	{is(lock.ErrNotHeld, lock.ErrNotYours, job.ErrAutomatic, lock.ErrMembers, lock.ErrStale, lock.ErrNoRule), 550, "", ""},
	{is(files.ErrNotDurable), 451, "done, but it may not survive a loss of power", ""},
	{is(files.ErrShrunk), 451, "the file has become shorter meanwhile", ""},
	{is(files.ErrChanged), 550, "was changed, renamed or removed during the upload: try again", "changed"},
	{is(files.ErrSwept), 451, "the server lost the upload: another server took over, or a program removed it; try again", "swept"},
	{is(files.ErrMoved), 451, "a directory above it was moved meanwhile", "moved"},
	{is(files.ErrName, syscall.ENAMETOOLONG), 553, "the server cannot store such a name", ""},
	{is(files.ErrReserved), 553, "that name is reserved", ""},
	{is(files.ErrEscapes), 550, "a link there leads out of the tree", ""},
	{is(files.ErrNotRegular), 550, "not a regular file", ""},
	{is(files.ErrOffset), 554, "REST beyond the end of the file", ""}, // RFC 3659 section 5.3 has no code; vsftpd sends 550, proftpd 554
	{is(files.ErrNoRoomToCopy), 452, "no room for the copy of the file that APPE and REST work on", "disk-full"},
	{is(syscall.ENOSPC), 452, "no space left", "disk-full"},
	{is(syscall.EDQUOT), 452, "the quota is used up", "disk-full"},
	{is(syscall.EFBIG), 452, "larger than a file may be", ""},
	{is(syscall.EBUSY), 450, "is in use", ""},
	{is(syscall.ESTALE), 451, "was removed on another machine: try again", ""},
	{is(syscall.ENOTEMPTY), 550, "the directory is not empty", ""},
	{is(syscall.EISDIR), 550, "is a directory", ""},
	{is(syscall.ENOTDIR), 550, "a path component is not a directory", ""},
	{is(syscall.ELOOP), 550, "too many links", ""},
	{is(syscall.EXDEV), 550, "cannot be moved to another file system", ""},
	{is(syscall.EROFS), 550, "the file system is read-only", ""},
	{is(syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed), 426, "the data connection was cut", "broken"},
	{is(io.ErrUnexpectedEOF), 426, "the data connection ended without a close_notify of TLS", "broken"},
	{is(context.Canceled), 426, "aborted", ""},
	{is(fs.ErrNotExist), 550, "no such file or directory", ""},
	{is(fs.ErrExist), 550, "is there already", ""},
	{is(fs.ErrPermission), 550, "permission denied", ""},
	{is(fs.ErrInvalid), 553, "invalid file name", ""},
}

// is returns a function that matches the errors that wrap one of the targets.
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

// as matches the errors that wrap an E.
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

// refusedJobWhileSuspended matches the refusal of a job whose first change came during a suspension.
func refusedJobWhileSuspended(err error) (text string, ok bool) {
	text, ok = as[*job.Error](err)
	return text, ok && errors.As(err, new(*lock.SuspendedError))
}

// done is the reply to a command that succeeded: the path and the change.
func done(code int, view, what string) control.Reply {
	return control.Reply{Code: code, Text: view + " " + what}
}

// reply sets the reply to a command: r, or the reply to err. It returns err for the library. If err is nil and r has no code, the client
// gets the library's reply.
func (c *client) reply(cmd *control.Command, view string, r control.Reply, err error) error {
	if err != nil {
		r = c.replyFor(view, err)
	}
	if r.Code != 0 {
		cmd.Reply(r)
	}
	return err
}

// replyFor returns the reply to an error: the code, the path as the client sees it, and the reason. All commands
// that change or read the tree or a lock use it; logins and the parameters of SITE have replies of their own. For an error that is not in the table the code is 451, and the log gets its whole text.
func (c *client) replyFor(view string, err error) control.Reply {
	a, known := c.explain(err)
	var protected *lock.ProtectedError
	if errors.As(err, &protected) {
		c.emit(event.Event{Kind: event.Protect, Path: string(protected.Path), Lock: string(protected.Lock), Reason: a.text})
	}
	if !known {
		c.log.Error("command failed", "path", view, "err", err)
	}
	if held, ok := errors.AsType[*lock.HeldError](err); ok && held.Note != "" {
		a.text = fitNote(view, a.text, held)
	}
	return control.Reply{Code: a.code, Path: view, Text: a.text}
}

// fitNote shortens the text of a refusal with a note so that the reply fits into control.MaxReply. It removes the idle limit from the end, or
// else the note, and keeps the path and the rest.
func fitNote(view, text string, held *lock.HeldError) string {
	fits := func(text string) bool { return len("550 "+view+": "+text+"\r\n") <= control.MaxReply }
	_, idle, hasIdle := strings.Cut(held.Expiry.Text(), " or ")
	withoutIdle := strings.TrimSuffix(text, " or "+idle) + "..."
	switch {
	case fits(text):
		return text
	case hasIdle && fits(withoutIdle):
		return withoutIdle
	}
	return strings.Replace(text, held.NoteText(), "", 1)
}

// explain returns the refusal for an error, with code, text and cause. known is false if err is neither a refusal nor in the table.
func (c *client) explain(err error) (r refusal, known bool) {
	var own *refusal
	if known = errors.As(err, &own); known {
		r = *own
	}
	for i := 0; i < len(answers) && !known; i++ {
		row := answers[i]
		if r.text, known = row.matches(err); known {
			r = refusal{code: row.code, text: cmp.Or(row.text, r.text), cause: row.cause}
		}
	}
	if !known {
		r = refusal{code: 451, text: "the server failed to do that"}
	}
	r.code, r.cause = cmp.Or(r.code, 550), cmp.Or(r.cause, "other")
	return r, known
}

// unforeseen returns err if explain does not know it, such as too many open files or a disk that fails.
func (c *client) unforeseen(err error) error {
	if _, known := c.explain(err); known {
		return nil
	}
	return err // nil, too
}

// The refusals of several commands. Some texts name the command to send instead.
var (
	errReadOnly   = &refusal{text: "this account may not change files"}
	errWriteOnly  = &refusal{text: "this account may not read files"}
	errIsLock     = &refusal{text: "is a lock: only MKD acquires it and RMD releases it"}
	errLockName   = &refusal{text: "is the name of a lock: only MKD makes it"}
	errLocksBelow = &refusal{text: "there are held locks below it"}
	errRoot       = &refusal{text: "is the root of the tree"}
	errNeeded     = &refusal{text: "required by a lock rule"}
	errNotHolder  = &refusal{text: "only the lock's holder may do that"}
	errReserved   = &refusal{text: "is served by the server itself and cannot be changed"}
	errNoResume   = &refusal{code: 554, text: "generated on each read: send no REST"}
	errChanging   = &refusal{code: 504, text: "generated on each read: it has no fixed size"} // after a 550, curl sends no RETR
	errIntoItself = &refusal{text: "cannot be moved into itself"}
	errIsDir      = &refusal{text: "is a directory"}
	errNotDir     = &refusal{text: "is not a directory"}
	errIsLink     = &refusal{text: "is a link: DELE removes it, and not its target"}
	errUnfinished = &refusal{text: "an unfinished upload lies in it: wait for its end"}
	errMovedLink  = &refusal{code: 451, text: "a link in its path was changed at the same moment: try again"}
	errReplaced   = &refusal{code: 451, text: "was replaced at the same moment: try again"}
	errWithdrawn  = &refusal{cause: "withdrawn", text: "the wait ended: another command came, or the session ends", wraps: lock.ErrHeld}
	errChmod      = &refusal{text: "this account may not change modes"}
)

// refusal is an error with its reply.
type refusal struct {
	code  int    // of RFC 959; 0: 550
	text  string // of the reply
	cause string // in one word, for events; "": "other"
	wraps error  // may be nil
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.wraps }
