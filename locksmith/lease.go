package locksmith

import (
	"fmt"
	"time"
)

// A lease says until when the server cannot grant the lock to another client, whatever happens to the network. It counts from before a
// request was sent that the server answered, so it never ends later than the server's own count.
type lease struct {
	heard time.Time     // before the request was sent
	left  time.Duration // what was left of the lock then; 0: it does not end, or the server does not tell
	grace time.Duration // the lock ends so long after its connection; 0: the server promises nothing
	age   time.Duration // the lock ends so long after the grant or a renewal; 0: it has no such limit
	idle  time.Duration // the lock ends so long after the last command; 0: it has no such limit
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
	return l.heard.Add(end)
}

// until returns when the lock's context ends; zero: never.
func (l lease) until() time.Time {
	end := l.end()
	if end.IsZero() {
		return end
	}
	return end.Add(-min(2*time.Second, l.shortest()/5)) // what works under the lock stops in this time
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
	if silent := at.Sub(l.heard); l.grace > 0 && l.end().Equal(l.heard.Add(l.grace)) || l.left == l.idle {
		return fmt.Sprintf("no answer from the server for %s: it may have ended the lock", silent.Round(time.Second))
	}
	return fmt.Sprintf("its age of %s is over", l.age)
}

// now is the time by the clock of the leases: it includes the time during which the machine was suspended, where the system can tell.
func now() time.Time { return time.Now().Add(suspended()) }
