package lock

import (
	"slices"
	"strings"
	"time"
)

// Status is what can be seen of one lock.
type Status struct {
	Name      Name
	Holds     []Hold        // those that stand, the oldest first; at least one
	Held      time.Duration // since the first of them was acquired
	Remaining time.Duration // until the last of them ends by itself; 0 when that is due
	Never     bool          // it does not end by itself, and Remaining means nothing
	Members   int           // how many names below it are held, or about to be
	Waiting   int           // how many are in the queue for it; under a limit, for any lock of its rule beside it
}

// SessionStatus is what can be seen of one session.
type SessionStatus struct {
	Owner  Owner
	Opened Instant
	Holds  int // how many locks it acquired that still stand
}

// Ended is a hold that [Table.Expire] ended.
type Ended struct {
	Name  Name
	Hold  Hold
	Cause Cause         // CauseExpire, CauseIdle or CauseDisconnect
	Held  time.Duration // since it was acquired
}

// statusLocked says what can be seen of e, which has holds.
func (t *Table) statusLocked(e *node, now Instant) Status {
	s := Status{Name: e.name, Holds: e.standing(), Held: heldFor(e, now), Members: e.below}
	s.Waiting = t.waitingLocked(e)
	s.Remaining, s.Never = t.remainingLocked(e, now)
	return s
}

func heldFor(e *node, now Instant) time.Duration {
	return max(now.Boot-e.holds[0].Acquired.Boot, 0)
}

// remainingLocked says in what time the last hold of e ends by itself.
func (t *Table) remainingLocked(e *node, now Instant) (remaining time.Duration, never bool) {
	for _, h := range e.holds {
		at, _ := t.deadlineLocked(h)
		if at == neverEnds {
			return 0, true
		}
		remaining = max(remaining, at-now.Boot)
	}
	return remaining, false
}

func (t *Table) heldErrorLocked(e *node, now Instant) *HeldError {
	h := e.holds[0]
	err := &HeldError{Name: e.name, Holder: h.Owner, Token: h.Token, Held: heldFor(e, now)}
	err.Remaining, err.Never = t.remainingLocked(e, now)
	return err
}

// Get returns what stands of the name; false if it is not held.
func (t *Table) Get(n Name) (Status, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.heldLocked(n) {
		return Status{}, false
	}
	return t.statusLocked(t.nodes[n], t.clock.Now()), true
}

// Held reports whether the name is held; it costs less than Get.
func (t *Table) Held(n Name) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.heldLocked(n)
}

// Children returns the locks directly below dir, sorted by name. Its cost grows with how
// many there are, not with what is held elsewhere.
func (t *Table) Children(dir Name) []Status {
	var all []Status
	now := t.clock.Now()
	t.mu.Lock()
	if e := t.nodes[dir]; e != nil {
		for c := e.child; c != nil; c = c.next {
			if len(c.holds) > 0 {
				all = append(all, t.statusLocked(c, now))
			}
		}
	}
	t.mu.Unlock()
	sortByName(all)
	return all
}

// All returns every lock that is held, sorted by name, as of one moment.
func (t *Table) All() []Status {
	now := t.clock.Now()
	t.mu.Lock()
	all := make([]Status, 0, len(t.nodes))
	for _, e := range t.nodes {
		if len(e.holds) > 0 {
			all = append(all, t.statusLocked(e, now))
		}
	}
	t.mu.Unlock()
	sortByName(all)
	return all
}

func sortByName(all []Status) {
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(string(a.Name), string(b.Name)) })
}

// HeldWithin reports whether anything at or below dir is held, or about to be. It
// costs the same whatever is held.
func (t *Table) HeldWithin(dir Name) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.nodes[dir]
	return e != nil && (e.occupied || e.below > 0)
}
