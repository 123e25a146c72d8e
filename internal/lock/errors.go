package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// The errors of this package. ErrHeld matches [fs.ErrExist], ErrNotHeld and ErrNoParent match [fs.ErrNotExist].
var (
	ErrHeld          error = &matchingError{"held", fs.ErrExist}
	ErrNotHeld       error = &matchingError{"not held", fs.ErrNotExist}
	ErrNoParent      error = &matchingError{"the directory above it does not exist", fs.ErrNotExist}
	ErrNotYours      error = &matchingError{"not yours", fs.ErrPermission}
	ErrStale               = errors.New("the lock has another token by now")
	ErrMembers             = errors.New("there are locks below it")
	ErrNotEmpty            = errors.New("its directory is not empty")
	ErrDirectoryGone       = errors.New("its directory was removed on the server")
	ErrNotDirectory        = errors.New("a file has that name")
	ErrNoRule              = errors.New("no rule makes that name a lock")
	ErrFull                = errors.New("the disk of the locks is full")
	ErrUncertain           = errors.New("the result is unknown")
	ErrClosed              = errors.New("the log is closed")
	ErrEnded               = errors.New("the session has ended")
)

// The reasons why a free lock was not granted, beside ErrFull and a *SuspendedError, see delayOf.
var (
	errExcluded        error = &matchingError{"its files or a directory above it are being changed", ErrHeld}
	errDirectoryChange error = &matchingError{"its directory is being made or removed", ErrHeld}
	errNoRoom          error = &matchingError{"the server could not record a grant in time", ErrHeld}
	errReloading       error = &matchingError{"the server is reloading its configuration", ErrHeld}
)

// errDiskPanicked is the result of a change of a directory during which the disk panicked.
var errDiskPanicked = errors.New("the disk panicked")

// matchingError is an error that matches another one.
type matchingError struct {
	text string
	is   error
}

func (e *matchingError) Error() string        { return e.text }
func (e *matchingError) Is(target error) bool { return target == e.is }

// HostError reports that a directory without a hold has the name: a program on the host made it. It matches ErrHeld.
type HostError struct {
	Name  Name
	Since time.Time // its modification time
}

func (e *HostError) Error() string {
	return "held by host since " + e.Since.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

// Unwrap makes the error match ErrHeld.
func (e *HostError) Unwrap() error { return ErrHeld }

// SuspendedError reports that this server may not change locks now, nor report their holders: it cannot prove that no other server
// does so. Nothing was changed. See [Options.Valid].
type SuspendedError struct{ Reason string }

func (e *SuspendedError) Error() string { return "not now: " + e.Reason + "; nothing was changed" }

// HeldError reports that a lock is held. That may be a lock below the name of the call, see [Session.Exclude].
type HeldError struct {
	Refusal
	Holder Owner         // the owner of its hold; of several, of the oldest
	Note   string        // of that hold
	Token  Token         // its token
	Held   time.Duration // since it was acquired
	Expiry
	Below bool // the lock lies below the name of the call
}

// Error is of the form "held by phoneacc@10.0.0.5 for 12s, expires in 5m48s", with Idle "... expires in 23h59m48s or 30m0s
// after its last sign of life", with a position "held by phoneacc@10.0.0.5 for 12s; place 1 of 2 in the queue, expires in 5m48s".
// A note follows the owner: "held by ci@10.0.0.7 (web3 4711 backup.sh) for 2s". Error contains the name of the lock only with Below, and no
// time for a directory of the host.
func (e *HeldError) Error() string {
	text := "held by " + e.Holder.String() + e.NoteText() + " for " + seconds(e.Held)
	if e.Below {
		text = string(e.Name) + " below it is " + text
	}
	if text = e.Position.appendTo(text); e.Holder.Account == HostAccount { // the reaper ends it, see hostdir
		return text
	}
	return text + ", " + e.Expiry.Text() // the longest part comes last, since a client may cut a long reply
}

// NoteText returns the note as Error contains it: " (web3 4711 backup.sh)", or "" without a note.
func (e *HeldError) NoteText() string {
	if e.Note == "" {
		return ""
	}
	return " (" + e.Note + ")"
}

// DelayedError reports that a lock was taken away from its holder a short time ago, and that no client gets it
// yet (lock_delay).
type DelayedError struct {
	Refusal
	Remaining time.Duration // until it can be acquired
}

func (e *DelayedError) Error() string {
	return e.Position.appendTo("cannot be acquired for " + seconds(e.Remaining) + ": it was taken away from its holder")
}

// NotYoursError reports that another client holds the lock that a session wanted to release, renew
// or use. It matches ErrNotYours.
type NotYoursError struct {
	Name        Name
	Holder      Owner
	Held        time.Duration // since it was acquired
	OtherJobKey bool          // the session's account holds it with another job key
	Elsewhere   bool          // the session's account holds it from another address, and the rule requires the same one (ReleaseAddress)
}

// Error is of the form "not yours: held by phoneacc@10.0.0.5 for 12s".
func (e *NotYoursError) Error() string {
	text := "not yours: held by " + e.Holder.String() + " for " + seconds(e.Held)
	switch {
	case e.OtherJobKey:
		text += ", your account but another job key"
	case e.Elsewhere:
		text += ", your account but another address"
	}
	return text
}

// Unwrap makes the error match ErrNotYours.
func (e *NotYoursError) Unwrap() error { return ErrNotYours }

// TooManyError reports that an account holds as many locks as it may. It matches fs.ErrPermission.
type TooManyError struct{ Max int }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("this account holds %d locks, as many as it may", e.Max)
}

// Unwrap makes the error match fs.ErrPermission.
func (e *TooManyError) Unwrap() error { return fs.ErrPermission }

// LostError reports that the session held the lock and that it was taken away. It
// matches ErrNotYours if the lock is held now, otherwise ErrNotHeld.
type LostError struct {
	Name  Name
	Token Token         // of the hold that was lost
	Cause Cause         // CauseExpire, CauseIdle, CauseBreak, CauseDisconnect or CauseHostGone
	Limit time.Duration // the age or idle time that it exceeded
	By    Owner         // with CauseBreak: the administrator
	Note  string        // why
	At    Instant       // time of the end
	Ago   time.Duration // time since then
	Held  bool          // the lock is held now, by another hold
}

// Error is of the form "taken away 12s ago: older than 6m0s".
func (e *LostError) Error() string {
	return "taken away " + seconds(e.Ago) + " ago: " + e.Why()
}

// Why returns why the lock was taken away, such as "older than 6m0s".
func (e *LostError) Why() string {
	switch e.Cause {
	case CauseExpire:
		if e.Note != "" {
			return e.Note + ", older than " + e.Limit.String()
		}
		return "older than " + e.Limit.String()
	case CauseIdle:
		return "no sign of life for " + e.Limit.String()
	case CauseBreak:
		if e.Note == "" {
			return "broken by " + e.By.String()
		}
		return "broken by " + e.By.String() + ", " + e.Note
	case CauseDisconnect:
		return "its connection ended"
	}
	return "removed on the server"
}

// Unwrap makes the error match ErrNotHeld or ErrNotYours.
func (e *LostError) Unwrap() error {
	if e.Held {
		return ErrNotYours
	}
	return ErrNotHeld
}

func seconds(d time.Duration) string { return max(d, 0).Round(time.Second).String() }

// QueuePosition is a position in the queue for a lock.
type QueuePosition struct {
	At int // from 1; 0: it is not in the queue
	Of int // the number of sessions in the queue
}

// appendTo appends the position to a text.
func (p QueuePosition) appendTo(text string) string {
	switch {
	case p.At > 0:
		return fmt.Sprintf("%s; place %d of %d in the queue", text, p.At, p.Of)
	case p.Of > 0:
		return fmt.Sprintf("%s; %d in the queue", text, p.Of)
	}
	return text
}

// Refusal has the common fields of the errors for a client that may have a position in the queue. They match ErrHeld.
type Refusal struct {
	Name     Name // of the lock
	Position QueuePosition
}

// Unwrap makes the error match ErrHeld.
func (r *Refusal) Unwrap() error { return ErrHeld }

func (r *Refusal) setPosition(p QueuePosition) { r.Position = p }

// waitableError is an error with a Refusal: the session may get the lock later.
type waitableError interface {
	error
	setPosition(QueuePosition)
}

// QueuedError reports that clients that came earlier get the lock first.
type QueuedError struct {
	Refusal
	Next Owner // of the first session in the queue
}

func (e *QueuedError) Error() string {
	return e.Position.appendTo("others came earlier, " + e.Next.String() + " is next")
}

// LimitError reports that there are as many locks of the rule beside the name as its limit allows.
type LimitError struct {
	Refusal
	Limit int
}

func (e *LimitError) Error() string {
	return e.Position.appendTo(fmt.Sprintf("the limit of %d locks is reached", e.Limit))
}

// TimeoutError reports that the waiting of a session ended without the lock. It wraps Err.
type TimeoutError struct {
	Waited time.Duration
	Err    error // why it would have to wait longer
}

func (e *TimeoutError) Error() string { return "waited " + seconds(e.Waited) + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *TimeoutError) Unwrap() error { return e.Err }
