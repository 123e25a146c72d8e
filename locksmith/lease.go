package locksmith

import (
	"fmt"
	"time"
)

// A lease ends before the server can grant the lock to another client, even if the network loses all packets. It counts from before the last
// request that the server answered, so it never ends later than on the server.
type lease struct {
	start time.Time     // before the request was sent
	left  time.Duration // of the lock at that time; 0: unknown, or the lock does not end
	grace time.Duration // from the end of the connection to the end of the lock; 0: no limit
	age   time.Duration // from the grant or a renewal to the end of the lock; 0: no limit
	idle  time.Duration // from the last command to the end of the lock; 0: no limit
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
	return l.start.Add(end)
}

// until returns when the lock's context ends; zero: never.
func (l lease) until() time.Time {
	end := l.end()
	if end.IsZero() {
		return end
	}
	return end.Add(-min(2*time.Second, l.shortest()/5)) // the margin is for work under the lock to stop
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

// reason describes why the lease has ended.
func (l lease) reason(at time.Time) string {
	if silent := at.Sub(l.start); l.grace > 0 && l.end().Equal(l.start.Add(l.grace)) || l.left == l.idle {
		return fmt.Sprintf("no answer from the server for %s: it may have ended the lock", silent.Round(time.Second))
	}
	return fmt.Sprintf("its age of %s is over", l.age)
}

// now returns the time of the leases. On Linux it includes the time in which the machine was suspended.
func now() time.Time { return time.Now().Add(suspended()) }
