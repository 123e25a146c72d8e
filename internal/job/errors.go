package job

import (
	"fmt"
	"io/fs"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Cause is the reason of a refusal.
type Cause string

// The causes.
const (
	Stale Cause = "stale" // another job has changed files since this one looked
	Held  Cause = "held"  // another job was still changing files after the wait
	Lost  Cause = "lost"  // the lock was taken away from the job
	Other Cause = "other" // see Why
)

// Error reports that a job may not change files that an automatic lock protects. It matches fs.ErrPermission.
type Error struct {
	Cause  Cause
	By     lock.Owner // the other job, or the administrator that took the lock away
	Token  lock.Token // of its hold; 0: not known
	Files  int        // with Stale: the number of its changes; 0: not known
	Looked bool       // with Stale: this job has looked itself
	When   time.Time  // the last change; with Held the grant; with Lost the end
	Why    error      // with Lost and Other

	// Holder is the job that holds the lock while the reply is made, and Since the time of its grant. No holder: the lock is free.
	Holder lock.Owner
	Since  time.Time
}

// takenAway is the reason why a lock was taken away. Its text is made for a reply, because the end is observed with the table's mutex held.
type takenAway struct{ lost lock.LostError }

func (e *takenAway) Error() string { return e.lost.Why() }

// ErrAutomatic is the error of a client that releases a lock which its job holds automatically. It matches fs.ErrPermission.
var ErrAutomatic error = automaticError{}

type automaticError struct{}

func (automaticError) Error() string        { return "held automatically: it ends with its job, not by RMD" }
func (automaticError) Is(target error) bool { return target == fs.ErrPermission }

// maxText is the length of an error: with "550 ", a path and ": " a reply has about 128 bytes.
const maxText = 108

// Error says what happened and what helps, in few words where the names are long. Times are UTC.
func (e *Error) Error() string {
	if e.Holder != (lock.Owner{}) {
		return fmt.Sprintf("being changed by %s since %s; try when it is done", e.Holder, clock(e.Since))
	}
	const help = "; list first or wait 2m"
	var text, short string
	switch e.Cause {
	case Stale:
		since := ""
		if e.Looked {
			since = " since you looked"
		}
		files := fmt.Sprintf("%d files, ", e.Files)
		switch e.Files {
		case 0:
			files = ""
		case 1:
			files = "1 file, "
		}
		text = fmt.Sprintf("changed by %s (%suntil %s)%s", e.By, files, clock(e.When), since)
		short = fmt.Sprintf("changed by %s", e.By)
	case Held:
		text = fmt.Sprintf("was being changed by %s since %s", e.By, clock(e.When))
		short = fmt.Sprintf("was being changed by %s", e.By)
	case Lost:
		text = fmt.Sprintf("lock taken away at %s: %s", clock(e.When), e.Why)
		short = fmt.Sprintf("lock taken away at %s", clock(e.When))
	default:
		text, short = e.Why.Error(), "the first change of this job was refused"
	}
	if len(text)+len(help) > maxText {
		text = short
	}
	return text + help
}

func clock(t time.Time) string { return t.UTC().Format(time.TimeOnly) }

// Is makes the error match fs.ErrPermission.
func (e *Error) Is(target error) bool { return target == fs.ErrPermission }

// Unwrap returns Why.
func (e *Error) Unwrap() error { return e.Why }
