package lock

import (
	"slices"
	"strings"
	"time"
)

// Status is what can be seen of one lock.
type Status struct {
	Name    Name
	Holds   []Hold        // those that stand, the oldest first; at least one
	Held    time.Duration // since the first of them was acquired
	Expiry                // of the last of them
	Members int           // how many names below it are held, or about to be
	Waiting int           // how many are in the queue for it; under a limit, for any lock of its rule beside it
}

// Expiry says when a lock ends by itself.
type Expiry struct {
	Remaining time.Duration // until it ends, if there is no further sign of life; 0 when that is due
	Never     bool          // it does not end by itself, and Remaining means nothing
	Idle      time.Duration // it ends so long after its last sign of life; 0: that does not matter
	Latest    time.Duration // with Idle: until it ends whatever signs of life there are; less than Remaining: never
}

// SessionStatus is what can be seen of one session.
type SessionStatus struct {
	Owner  Owner
	Opened Instant
	Holds  int // how many locks it acquired that still stand
}

// statusLocked says what can be seen of e, which has holds.
func (t *Table) statusLocked(e *node, now Instant) Status {
	return Status{
		Name: e.name, Holds: e.standing(nil), Held: heldFor(e, now), Expiry: t.expiryLocked(e, now),
		Members: e.below, Waiting: t.waitingLocked(e),
	}
}

// Text says it in words: "expires in 5m48s", "never expires", with both limits "expires in 23h59m48s or 30m0s after its
// last sign of life", with the idle limit alone "expires in 29m48s, 30m0s after its last sign of life". It names the idle
// limit only where that can end the lock first.
func (x Expiry) Text() string {
	after := seconds(x.Idle) + " after its last sign of life"
	switch {
	case x.Never:
		return "never expires"
	case x.Idle == 0 || x.Latest == x.Remaining:
		return "expires in " + seconds(x.Remaining)
	case x.Latest > x.Remaining:
		return "expires in " + seconds(x.Latest) + " or " + after
	case seconds(x.Remaining) == seconds(x.Idle):
		return "expires " + after
	}
	return "expires in " + seconds(x.Remaining) + ", " + after
}

// Expiry says when a hold ends of which the holder shows a sign of life now.
func (h Hold) Expiry(now Instant) Expiry {
	end, _ := h.latest()
	if h.Rule.MaxIdle > 0 {
		end = min(end, later(now.Boot, h.Rule.MaxIdle))
	}
	return h.expiry(end, now)
}

// expiry describes a hold that ends then if there is no further sign of life.
func (h *Hold) expiry(end time.Duration, now Instant) Expiry {
	latest, _ := h.latest()
	return Expiry{Remaining: left(end, now), Never: end == neverEnds, Idle: h.Rule.MaxIdle, Latest: left(latest, now)}
}

// left says in what time a moment comes, 0 for one that is over and for none.
func left(at time.Duration, now Instant) time.Duration {
	if at == neverEnds {
		return 0
	}
	return max(at-now.Boot, 0)
}

func heldFor(e *node, now Instant) time.Duration {
	return max(now.Boot-e.holds[0].Acquired.Boot, 0)
}

// expiryLocked says when the last hold of e ends by itself.
func (t *Table) expiryLocked(e *node, now Instant) Expiry {
	last := e.holds[0]
	end, _ := t.deadlineLocked(last)
	for _, h := range e.holds[1:] {
		if at, _ := t.deadlineLocked(h); at > end {
			last, end = h, at
		}
	}
	return last.expiry(end, now)
}

func (t *Table) heldErrorLocked(e *node, now Instant) *HeldError {
	h := e.holds[0]
	return &HeldError{Refusal: Refusal{Name: e.name}, Holder: h.Owner, Token: h.Token, Held: heldFor(e, now), Expiry: t.expiryLocked(e, now)}
}

// HeldError is what a client is told to whom the lock is refused.
func (s Status) HeldError() *HeldError {
	return &HeldError{Refusal: Refusal{Name: s.Name}, Holder: s.Holds[0].Owner, Token: s.Holds[0].Token, Held: s.Held, Expiry: s.Expiry}
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

// Wanted reports whether MKD of the name may be refused though nobody holds it: others have a place in the queue for it, or
// nobody gets it yet (lock_delay).
func (t *Table) Wanted(n Name) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.nodes[n]
	return e != nil && (e.queue != nil || e.delayedTo > t.clock.Now().Boot)
}

// Children returns the locks directly below dir, sorted by name. Its cost grows with how
// many there are, not with what is held elsewhere.
func (t *Table) Children(dir Name) []Status {
	var all []Status
	now := t.clock.Now()
	t.mu.Lock()
	if e := t.nodes[dir]; e != nil {
		for c := range e.children {
			if len(c.holds) > 0 {
				all = append(all, t.statusLocked(c, now))
			}
		}
	}
	t.mu.Unlock()
	sortByName(all)
	return all
}

// Names returns the names of all locks that are held, sorted, as of one moment. It costs much less memory than All.
func (t *Table) Names() []Name {
	t.mu.Lock()
	all := make([]Name, 0, len(t.nodes))
	for n, e := range t.nodes {
		if len(e.holds) > 0 {
			all = append(all, n)
		}
	}
	t.mu.Unlock()
	slices.Sort(all)
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
