package locksmith

import (
	"errors"
	"fmt"
	"time"
)

// The sentinels that errors of this package match.
var (
	ErrHeld        = errors.New("held by somebody else")         // a *HeldError: Wait is over, or there was only one try
	ErrRefused     = errors.New("refused")                       // the server will never grant it like this: no such directory, no permission, a deadlock
	ErrLogin       = errors.New("login refused")                 // wrong account or password
	ErrUnreachable = errors.New("no FTP server answers there")   // unknown host, refused connection, no greeting in time, 421
	ErrTLS         = errors.New("TLS failed")                    // certificate, or a server without TLS
	ErrLost        = errors.New("the lock was lost")             // taken away, too old, or its directory is gone
	ErrUnknown     = errors.New("the lock's state is not known") // a reply was lost and could not be cleared up
)

// HeldError says who has the lock that was not had. It matches ErrHeld.
type HeldError struct {
	Path    string
	Waited  time.Duration
	Refusal Refusal // the last one
}

// Error is of the form "/phone_lock: held by phoneacc@10.0.0.5 for 12s; place 2 of 3 in the queue; waited 30s", with what the server
// said instead where it does not tell of the holder.
func (e *HeldError) Error() string {
	text := e.Path + ": " + e.Refusal.String()
	if e.Waited >= time.Second {
		text += "; waited " + e.Waited.Round(time.Second).String()
	}
	return text
}

// Unwrap makes the error match ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

// String is the refusal without the path: who holds the lock, for how long, and the place in the queue.
func (r Refusal) String() string {
	text := "held by somebody"
	switch {
	case r.Holder != "":
		text = "held by " + r.Holder
	case r.Reply != "" && r.Held == 0:
		text = "held by somebody (" + shortened(r.Reply) + ")"
	}
	if r.Holder != "" || r.Held > 0 {
		text += " for " + r.Held.Round(time.Second).String()
	}
	switch {
	case r.At > 0:
		text += fmt.Sprintf("; place %d of %d in the queue", r.At, r.Of)
	case r.Of > 0:
		text += fmt.Sprintf("; %d in the queue", r.Of)
	}
	return text
}
