package etcd

import (
	"errors"
	"fmt"
	"time"
)

// way is what a server that campaigns has measured of its way to etcd. A server on a slow way would be suspended as soon as it was the
// active one, so it does not stand by.
type way struct {
	trips  [looksKept]time.Duration // of the last looks, also of those that failed: an error that comes at once is no sign of a slow way
	failed error                    // of the last look
	looks  int
}

// looksKept is how many looks in a row must be quick before a server stands by, unless the first one was.
const looksKept = 5

// errNotMeasured is returned before the first look at etcd.
var errNotMeasured = errors.New("etcd has not answered yet")

// note takes the duration of a look into account.
func (w *way) note(took time.Duration, err error) {
	if w.looks == 0 {
		for i := range w.trips {
			w.trips[i] = took
		}
	}
	w.trips[w.looks%looksKept], w.failed = took, err
	w.looks++
}

// longest returns the duration of the slowest of the last looks.
func (w *way) longest() (longest time.Duration) {
	for _, took := range w.trips {
		longest = max(longest, took)
	}
	return longest
}

// slow returns an error if a request to etcd failed, or took as long as a request may.
func (w *way) slow(limit time.Duration) error {
	switch trip := w.longest(); {
	case w.looks == 0:
		return errNotMeasured
	case w.failed != nil:
		return w.failed
	case trip >= limit:
		return fmt.Errorf("etcd took %v for an answer, and request_timeout is %v", trip.Round(time.Millisecond), limit)
	}
	return nil
}
