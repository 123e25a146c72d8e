package locksmith

import (
	"fmt"
	"time"
)

// A lease says until when the server cannot grant the lock to another client, whatever happens to the network. It counts from before a
// request was sent that the server answered, so it never ends later than the server's own count. The server writes durations in whole
// seconds, rounded to the nearest: half a second is taken off each.
type lease struct {
	began time.Time     // before the request was sent from which the age counts
	heard time.Time     // before the last request was sent that the server answered
	age   time.Duration // as the server wrote it; 0: the lock has none
	idle  time.Duration // the lock ends so long after the last command (max_idle); 0: it has no such limit
	left  time.Duration // what was left of the lock when the server answered last, see heard: a reload may shorten its age; 0: it does not say
	grace time.Duration // the lock ends so long after its connection; 0: the server promises nothing
}

// rounding is the largest error of a duration that the server writes.
const rounding = 500 * time.Millisecond

// end returns when the server may grant the lock to another client; zero: never.
func (l lease) end() time.Time {
	var end time.Time
	limit := func(from time.Time, d time.Duration) {
		if at := from.Add(d); d > 0 && (end.IsZero() || at.Before(end)) {
			end = at
		}
	}
	limit(l.began, shorter(l.age))
	limit(l.heard, shorter(l.idle))
	limit(l.heard, shorter(l.left))
	limit(l.heard, l.grace)
	return end
}

// shorter returns the least that the server can mean by a duration; 0 for 0.
func shorter(d time.Duration) time.Duration { return max(d-rounding, min(d, 1)) }

// until returns when the lock's context ends; zero: never.
func (l lease) until() time.Time {
	end := l.end()
	if end.IsZero() {
		return end
	}
	return end.Add(-l.margin())
}

// margin is the time between the end of a lock's context and the end of its lease: what works under the lock stops in it. It is two
// seconds, or a fifth of the shortest limit.
func (l lease) margin() time.Duration {
	return min(2*time.Second, l.shortest()/5)
}

// shortest returns the shortest limit; an hour if there is none.
func (l lease) shortest() time.Duration {
	shortest := time.Hour
	for _, d := range []time.Duration{l.age, l.idle, l.grace} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	return shortest
}

// reason says why the lease is over.
func (l lease) reason(at time.Time) string {
	switch margin := l.margin(); {
	case l.age > 0 && !at.Before(l.began.Add(shorter(l.age)-margin-2*rounding)):
		return fmt.Sprintf("its age of %s is over", l.age)
	case l.left > 0 && !at.Before(l.heard.Add(shorter(l.left)-margin)):
		return "its age is over, which the server has shortened"
	}
	return fmt.Sprintf("the server could not be reached for %s, and may have ended it", at.Sub(l.heard).Round(time.Second))
}

// now is the time by the clock of the leases: it includes the time during which the machine was suspended, where the system can tell.
func now() time.Time { return time.Now().Add(suspended()) }
