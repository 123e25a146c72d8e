package locksmith

import (
	"errors"
	"fmt"
	"time"
)

// unreachableLimit is the time without an answer after which a lock without a time limit ends.
const unreachableLimit = time.Minute

// A lease ends before the server can grant the lock to another client, even if the network loses all packets. It counts from before the last
// request that the server answered, so it never ends later than on the server.
type lease struct {
	asOf   time.Time     // before the request was sent
	left   time.Duration // of the lock at that time; 0: unknown, or the lock does not end
	grace  time.Duration // from the end of the connection to the end of the lock; 0: no limit
	age    time.Duration // from the grant or a renewal to the end of the lock; 0: no limit
	idle   time.Duration // from the last command to the end of the lock; 0: no limit
	most   time.Duration // left if the holder sends commands; 0: unknown, or no limit
	closed bool          // of a joined lock: the connection of its holder has ended
	margin time.Duration // from the end of the lock's context to the end of the lease; 0: two seconds, or a fifth of the shortest limit
}

// end returns when the server may grant the lock to another client; zero: never.
func (l lease) end() time.Time {
	end := l.left
	if l.grace > 0 && (end == 0 || l.grace < end) {
		end = l.grace
	}
	if end == 0 {
		return time.Time{}
	}
	return l.asOf.Add(end)
}

// until returns when the lock's context ends.
func (l lease) until() time.Time {
	end := l.end()
	switch {
	case end.IsZero():
		return l.asOf.Add(unreachableLimit)
	case l.margin > 0:
		return end.Add(-l.margin)
	}
	return end.Add(-min(2*time.Second, l.shortest()/5))
}

// shortest returns the shortest limit, or an hour. A lock without an end is lost if the server is away for the unreachableLimit.
func (l lease) shortest() time.Duration {
	if l.end().IsZero() {
		return unreachableLimit
	}
	shortest := time.Hour
	for _, d := range []time.Duration{l.age, l.idle, l.grace} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	return shortest
}

// tooShort returns why the lease is too short to hold the lock; "" if it is not.
func (l lease) tooShort() string {
	if l.grace > 0 && l.grace < 100*time.Millisecond {
		return "the server would release the lock as soon as the connection ends: its rule needs a grace of a few seconds"
	}
	if shortest := l.shortest(); shortest <= 2*l.margin {
		return fmt.Sprintf("the lock can end after %s, which is too short for a margin of %s", shortest, l.margin)
	}
	return ""
}

// errExpired matches the loss of a lock whose lease has ended: the server may still hold it.
var errExpired = errors.New("the lease has ended")

// expired returns the error of a lock whose lease has ended. stopped is the time in which this process did not run.
func (l lease) expired(path string, at time.Time, stopped time.Duration) error {
	return &causedError{l.reason(path, at.Sub(l.asOf), stopped), []error{errExpired}}
}

// reason returns why the lease has ended.
func (l lease) reason(path string, silent, stopped time.Duration) error {
	stops := stopped > silent/2
	silent, stopped = silent.Round(time.Second), stopped.Round(time.Second)
	switch {
	case l.end().IsZero() && stops:
		return fmt.Errorf("%w: %s: this process did not run for %s", ErrUnknown, path, stopped)
	case l.end().IsZero():
		return fmt.Errorf("%w: %s: no answer from the server for %s", ErrUnknown, path, silent)
	case l.closed:
		return fmt.Errorf("%w: %s: the connection of its holder has ended", ErrLost, path)
	case stops && !l.byAge():
		return fmt.Errorf("%w: %s: this process did not run for %s: the server may have ended the lock", ErrLost, path, stopped)
	case !l.byAge():
		return fmt.Errorf("%w: %s: no answer from the server for %s: it may have ended the lock", ErrLost, path, silent)
	}
	return fmt.Errorf("%w: %s: its age of %s is over", ErrLost, path, l.age)
}

// byAge reports whether the age of the lock limits the lease.
func (l lease) byAge() bool {
	return !(l.grace > 0 && l.end().Equal(l.asOf.Add(l.grace)) || l.left == l.idle || l.idle > 0 && l.left < l.most)
}

// isClosed reports whether the limit of the lease counts from the end of the holder's connection. Else it counts from the grant or a renewal: held is
// the time since the grant.
func (l lease) isClosed(held time.Duration) bool {
	byAge := l.age > 0 && (held+l.most-l.age).Abs() < 10*time.Millisecond // both are rounded
	return l.most > 0 && l.most <= l.grace && !byAge
}

// now returns the time of the leases. On Linux it includes the time in which the machine was suspended.
func now() time.Time { return time.Now().Add(suspended()) }
