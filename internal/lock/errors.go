package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// ErrEnded is returned to a session that was closed.
var ErrEnded = errors.New("the session has ended")

// SuspendedError says that this server may not change locks now, nor say who holds one: it cannot prove that no other server does
// so. Nothing was changed. See [Options.Valid].
type SuspendedError struct{ Reason string }

func (e *SuspendedError) Error() string { return "not now: " + e.Reason + "; nothing was changed" }

func isSuspended(err error) bool {
	var suspended *SuspendedError
	return errors.As(err, &suspended)
}

// HeldError says that somebody holds a lock, which is not always the one that was asked for, see [Table.Exclude].
type HeldError struct {
	Refusal
	Holder Owner         // whose it is; of several, the oldest
	Token  Token         // its token
	Held   time.Duration // since it was acquired
	Expiry
	Below bool // the lock lies below the name that was asked for
}

// Error is of the form "held by phoneacc@10.0.0.5 for 12s, expires in 5m48s", with Idle "... expires in 23h59m48s or 30m0s
// after its last sign of life", with a place "held by phoneacc@10.0.0.5 for 12s; place 1 of 2 in the queue, expires in
// 5m48s"; the name of the lock is in it only if it is not the one that was asked for.
func (e *HeldError) Error() string {
	text := "held by " + e.Holder.String() + " for " + seconds(e.Held)
	if e.Below {
		text = string(e.Name) + " below it is " + text
	}
	return e.Place.after(text) + ", " + e.Expiry.Text() // what is longest comes last: replies are cut there
}

// DelayedError says that a lock was taken away from its holder so lately that nobody gets it
// yet (lock_delay).
type DelayedError struct {
	Refusal
	Remaining time.Duration // until it can be acquired
}

func (e *DelayedError) Error() string {
	return e.Place.after("kept back for " + seconds(e.Remaining) + " after it was taken away")
}

// NotYoursError says that somebody else holds the lock that a session wanted to give back, renew
// or use. It matches ErrNotYours.
type NotYoursError struct {
	Name      Name
	Holder    Owner
	Held      time.Duration // since it was acquired
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

// TooManyError says that an account holds as many locks as it may. It matches fs.ErrPermission.
type TooManyError struct{ Max int }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("this account holds %d locks, as many as it may", e.Max)
}

// Unwrap makes the error match fs.ErrPermission.
func (e *TooManyError) Unwrap() error { return fs.ErrPermission }

// LostError says that the session held the lock and that it was taken away. It
// matches ErrNotHeld if nobody holds the lock now, and ErrNotYours if somebody does.
type LostError struct {
	Name  Name
	Token Token         // of the hold that was lost
	Cause Cause         // CauseExpire, CauseIdle, CauseBreak, CauseDisconnect, CauseHostGone or CauseUnknown
	Limit time.Duration // the age or idle time that it exceeded
	By    Owner         // who broke it
	Note  string        // why
	At    Instant       // when
	Ago   time.Duration // how long ago that is
	Held  bool          // somebody holds the lock now
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
	case CauseUnknown:
		return "the store of the locks does not have it any more, and nobody knows why"
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
