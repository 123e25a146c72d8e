package etcd

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// way is what a server that campaigns has measured of its way to etcd. A server on a slow way would be suspended as soon as it was the
// active one, so it does not stand by.
type way struct {
	trips  []time.Duration // of the last looks, also of those that failed: an error that comes at once is no sign of a slow way
	failed error           // of the last look
}

// looksKept is how many looks in a row must be quick before a server stands by, unless the first one was.
const looksKept = 5

// errNotMeasured is returned before the first look at etcd.
var errNotMeasured = errors.New("etcd has not answered yet")

// note takes the duration of a look into account.
func (w *way) note(took time.Duration, err error) {
	w.trips = append(w.trips, took)
	w.trips = w.trips[max(0, len(w.trips)-looksKept):]
	w.failed = err
}

// slow returns an error if the last look failed, or one of the last looks took as long as a request may.
func (w *way) slow(limit time.Duration) error {
	switch {
	case len(w.trips) == 0:
		return errNotMeasured
	case w.failed != nil:
		return w.failed
	case slices.Max(w.trips) >= limit:
		return fmt.Errorf("etcd took %v for an answer, and request_timeout is %v", slices.Max(w.trips).Round(time.Millisecond), limit)
	}
	return nil
}
