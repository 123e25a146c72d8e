package etcd

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// roundTrips are the durations of a standby's last requests to etcd. A server that etcd answers too slowly would be suspended as soon as it
// became active, so it does not stand by.
type roundTrips struct {
	last   []time.Duration // of requests that failed, too
	failed error           // of the last request
}

// tripsKept is the number of quick answers in a row after which a server stands by again. At first one is enough.
const tripsKept = 5

// errNotMeasured is returned before the first request to etcd.
var errNotMeasured = errors.New("etcd has not answered yet")

// add adds a request with its duration and its error.
func (r *roundTrips) add(took time.Duration, err error) {
	r.last = append(r.last, took)
	r.last = r.last[max(0, len(r.last)-tripsKept):]
	r.failed = err
}

// slow returns an error if the last request failed, or if one of the last requests took as long as the limit.
func (r *roundTrips) slow(limit time.Duration) error {
	switch {
	case len(r.last) == 0:
		return errNotMeasured
	case r.failed != nil:
		return r.failed
	case slices.Max(r.last) >= limit:
		return fmt.Errorf("etcd took %v for an answer, and request_timeout is %v", slices.Max(r.last).Round(time.Millisecond), limit)
	}
	return nil
}
