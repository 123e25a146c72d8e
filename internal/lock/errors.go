package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// The errors of this package. ErrHeld matches [fs.ErrExist], ErrNotHeld and ErrNoParent match [fs.ErrNotExist].
var (
	ErrHeld          error = &kind{"held", fs.ErrExist}
	ErrNotHeld       error = &kind{"not held", fs.ErrNotExist}
	ErrNoParent      error = &kind{"no such directory to make it in", fs.ErrNotExist}
	ErrNotYours      error = &kind{"not yours", fs.ErrPermission}
	ErrStale               = errors.New("the lock has another token by now")
	ErrMembers             = errors.New("there are locks below it")
	ErrNotEmpty            = errors.New("its directory is not empty")
	ErrOccupied      error = &kind{"a directory that is not empty has that name, so it is no lock", fs.ErrExist}
	ErrDirectoryGone       = errors.New("its directory was removed on the server")
	ErrNotDirectory        = errors.New("a file has that name")
	ErrNoRule              = errors.New("no rule makes that name a lock")
	ErrFull                = errors.New("the disk of the locks is full")
	ErrUncertain           = errors.New("the result is unknown")
	ErrClosed              = errors.New("the log is closed")
	ErrEnded               = errors.New("the session has ended")
)

// kind is an error that matches another one.
type kind struct {
	text string
	is   error
}

func (k *kind) Error() string        { return k.text }
func (k *kind) Is(target error) bool { return target == k.is }

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

// HeldError reports that a lock is held. It is not always the lock that the client asked for, see [Table.Exclude].
type HeldError struct {
	Refusal
	Holder Owner         // whose it is; of several, the oldest
	Token  Token         // its token
	Held   time.Duration // since it was acquired
	Expiry
	Below bool // the lock lies below the name that was asked for
}

// Error is of the form "held by phoneacc@10.0.0.5 for 12s, expires in 5m48s", with Idle "... expires in 23h59m48s or 30m0s
// after its last sign of life", with a place "held by phoneacc@10.0.0.5 for 12s; place 1 of 2 in the queue, expires in 5m48s"; the name of the lock is in it only if it is not the one that was asked for.
func (e *HeldError) Error() string {
	text := "held by " + e.Holder.String() + " for " + seconds(e.Held)
	if e.Below {
		text = string(e.Name) + " below it is " + text
	}
	return e.Place.after(text) + ", " + e.Expiry.Text() // what is longest comes last: replies are cut there
}

// DelayedError reports that a lock was taken away from its holder a short time ago, and that no client gets it
// yet (lock_delay).
type DelayedError struct {
	Refusal
	Remaining time.Duration // until it can be acquired
}

func (e *DelayedError) Error() string {
	return e.Place.after("kept back for " + seconds(e.Remaining) + " after it was taken away")
}

// NotYoursError reports that another client holds the lock that a session wanted to release, renew
// or use. It matches ErrNotYours.
type NotYoursError struct {
	Name      Name
	Holder    Owner
	Since     Time          // when it was acquired
	Held      time.Duration // since then
	Elsewhere bool          // it is the session's own account that holds it, from another address, and the rule wants the same (ReleaseAddress)
}

// Error is of the form "not yours: held by phoneacc@10.0.0.5 for 12s".
func (e *NotYoursError) Error() string {
	text := "not yours: held by " + e.Holder.String() + " for " + seconds(e.Held)
	if e.Elsewhere {
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
	By    Owner         // the administrator who broke it
	Note  string        // why
	At    Instant       // when
	Ago   time.Duration // how long ago that is
	Held  bool          // the lock is held now, by another hold
}

// Error is of the form "taken away 12s ago: older than 6m0s".
func (e *LostError) Error() string {
	return "taken away " + seconds(e.Ago) + " ago: " + e.why()
}

func (e *LostError) why() string {
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
