package lock

import (
	"fmt"
	"time"
)

// Place is a position in the queue for a lock.
type Place struct {
	At int // from 1; 0: it has no place yet
	Of int // how many are in the queue
}

// after appends the place to a text.
func (p Place) after(text string) string {
	switch {
	case p.At > 0:
		return fmt.Sprintf("%s; place %d of %d in the queue", text, p.At, p.Of)
	case p.Of > 0:
		return fmt.Sprintf("%s; %d in the queue", text, p.Of)
	}
	return text
}

// Refusal has the common fields of the errors for a client that may have a place in the queue. They match ErrHeld.
type Refusal struct {
	Name  Name // which lock
	Place Place
}

// Unwrap makes the error match ErrHeld.
func (r *Refusal) Unwrap() error { return ErrHeld }

func (r *Refusal) setPlace(p Place) { r.Place = p }

// refusal is an error with a Refusal.
type refusal interface {
	error
	setPlace(Place)
}

// QueuedError reports that clients that came earlier get the lock first.
type QueuedError struct {
	Refusal
	Next Owner // who is ahead
}

func (e *QueuedError) Error() string {
	return e.Place.after("others came earlier, " + e.Next.String() + " is next")
}

// LimitError reports that there are as many locks of the rule beside the name as its limit allows.
type LimitError struct {
	Refusal
	Limit int
}

func (e *LimitError) Error() string {
	return e.Place.after(fmt.Sprintf("there may be %d such locks, and so many are held", e.Limit))
}

// TimeoutError reports that the waiting of a session ended without the lock. It matches what Err matches.
type TimeoutError struct {
	Waited time.Duration
	Err    error // why it would have to wait longer
}

func (e *TimeoutError) Error() string { return "waited " + seconds(e.Waited) + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *TimeoutError) Unwrap() error { return e.Err }
