package lock

import (
	"cmp"
	"slices"
	"time"
)

// Status is the visible state of one lock.
type Status struct {
	Name    Name
	Holds   []Hold        // those that stand, the oldest first; at least one
	Held    time.Duration // since the first of them was acquired
	Expiry                // of the last of them
	Members int           // how many names below it are held, or about to be
	Files   int           // of an automatic lock: how many changes its job made under the token
	Last    Name          // the file that it changed last
	Waiting int           // how many sessions wait for it; under a limit, for any lock of its rule beside it
}

// SessionStatus is the visible state of one session.
type SessionStatus struct {
	Owner  Owner
	Opened Instant
	Holds  int // how many locks it acquired that still stand
}

// Queued is one session in the queue for a lock.
type Queued struct {
	Owner Owner
	Since time.Duration // how long it has waited
}

// status returns the visible state of n.
func (st *State) status(n *node, now Instant) Status {
	s := Status{Name: n.name, Members: n.below, Waiting: n.waiting()}
	if len(n.holds) == 0 {
		return s
	}
	for _, h := range n.holds {
		s.Holds = append(s.Holds, h.Hold)
	}
	first := n.holds[0]
	if site := st.sites[n.name]; site != nil && site.changed.token == first.Token {
		s.Files, s.Last = site.changed.files, site.changed.last
	}
	s.Held, s.Expiry = max(now.Boot-first.Acquired.Boot, 0), n.expiry(now)
	return s
}

// waiting returns how many sessions wait for the name, or for a place in its pool.
func (n *node) waiting() int {
	if n.pool != nil {
		return len(n.pool.queue)
	}
	return len(n.queue)
}

// expiry returns when the last hold of n ends by itself.
func (n *node) expiry(now Instant) Expiry {
	last := n.holds[0]
	end, _ := last.deadline(now.Boot)
	for _, h := range n.holds[1:] {
		if at, _ := h.deadline(now.Boot); at > end {
			last, end = h, at
		}
	}
	latest, _ := last.latest()
	return last.expiry(end, latest, now)
}

// expiry describes a hold that ends then if there is no further sign of life.
func (h *Hold) expiry(end, latest Time, now Instant) Expiry {
	return Expiry{Remaining: left(end, now), Never: end == never, Idle: h.Rule.MaxIdle, Latest: left(latest, now)}
}

// Expiry returns when the hold ends, if its holder shows a sign of life now.
func (h Hold) Expiry(now Instant) Expiry {
	latest := h.tooOld()
	end := latest
	if h.Rule.MaxIdle > 0 {
		end = min(end, later(now.Boot, h.Rule.MaxIdle))
	}
	return h.expiry(end, latest, now)
}

// left returns the time until a moment, 0 for one that is over and for none.
func left(at Time, now Instant) time.Duration {
	if at == never {
		return 0
	}
	return max(at-now.Boot, 0)
}

func (n *node) heldError(now Instant) *HeldError {
	h := n.holds[0]
	return &HeldError{
		Refusal: Refusal{Name: n.name}, Holder: h.Owner, Token: h.Token, Held: max(now.Boot-h.Acquired.Boot, 0), Expiry: n.expiry(now),
	}
}

// HeldError returns the error of a client that is refused the lock.
func (s Status) HeldError() *HeldError {
	return &HeldError{Refusal: Refusal{Name: s.Name}, Holder: s.Holds[0].Owner, Token: s.Holds[0].Token, Held: s.Held, Expiry: s.Expiry}
}

// Get returns the state of the name; false if it is not held.
func (t *Table) Get(name Name) (Status, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.st.held(name) {
		return Status{}, false
	}
	return t.st.status(t.st.nodes[name], t.clock.Now()), true
}

// Held reports whether the name is held; it costs less than Get.
func (t *Table) Held(name Name) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.st.held(name)
}

// HeldWithin reports whether anything at or below dir is held, or about to be. Its
// cost does not depend on how much is held.
func (t *Table) HeldWithin(dir Name) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.st.nodes[dir]
	return n != nil && (n.taken() || n.below > 0)
}

// walkBatch is the number of steps of a walk with the mutex held. A walk over 100,000 locks must delay no client.
const walkBatch = 128

// walkLocked counts a step of a walk, and releases the mutex for a moment after each batch. The state may change then; the walk
// of a map goes on.
func (t *Table) walkLocked(steps *int) {
	if *steps++; *steps%walkBatch == 0 {
		t.mu.Unlock()
		t.mu.Lock()
	}
}

// names returns the names of the nodes of a map that are wanted, sorted. Each was wanted at one moment of the call.
func (t *Table) names(of func() map[Name]*node, wanted func(*node) bool) (all []Name) {
	t.mu.Lock()
	size := len(of())
	t.mu.Unlock()
	all = make([]Name, 0, size)
	t.mu.Lock()
	steps := 0
	for _, n := range of() {
		if wanted(n) {
			all = append(all, n.name)
		}
		t.walkLocked(&steps)
	}
	t.mu.Unlock()
	slices.Sort(all)
	return all
}

// nodes returns all nodes.
func (t *Table) nodes() map[Name]*node { return t.st.nodes }

// Names returns the names of all locks that are held, sorted. It costs much less memory than All.
func (t *Table) Names() []Name {
	return t.names(t.nodes, func(n *node) bool { return len(n.holds) > 0 })
}

// Children returns the names of the locks directly below dir, sorted, without those that jobs hold automatically. Its cost grows with
// the number of names there, not with that of all locks.
func (t *Table) Children(dir Name) []Name {
	below := func() map[Name]*node {
		if n := t.st.nodes[dir]; n != nil {
			return n.children
		}
		return nil
	}
	return t.names(below, func(n *node) bool { return len(n.holds) > 0 && !n.holds[0].Automatic })
}

// All returns every lock that is held, sorted by name. Each is as it was at one moment of the call.
func (t *Table) All() []Status {
	var all []Status
	for _, name := range t.Names() {
		if s, held := t.Get(name); held {
			all = append(all, s)
		}
	}
	return all
}

// Count has the sizes of a Table.
type Count struct {
	Holds   int
	Waiting int // sessions that wait for a lock
}

// Count returns the sizes of the table.
func (t *Table) Count() Count {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := Count{Holds: -t.st.makes, Waiting: t.st.waiting}
	for _, a := range t.st.accounts {
		c.Holds += a.holds
	}
	return c
}

// Queue returns the sessions that wait for the name, in order.
func (t *Table) Queue(name Name) []Queued {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.st.nodes[name]
	if n == nil {
		return nil
	}
	now := t.clock.Now()
	all := make([]Queued, len(n.queue))
	for i, p := range n.queue {
		all[i] = Queued{Owner: p.owner, Since: now.Boot - p.since}
	}
	return all
}

// Sessions returns the sessions that are open, by id.
func (t *Table) Sessions() []SessionStatus {
	t.mu.Lock()
	var all []SessionStatus
	steps := 0
	for _, s := range t.st.sessions {
		if !s.closed {
			all = append(all, SessionStatus{Owner: s.owner, Opened: s.opened, Holds: len(s.holds)})
		}
		t.walkLocked(&steps)
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b SessionStatus) int { return cmp.Compare(a.Owner.Session, b.Owner.Session) })
	return all
}

// SpeaksFor returns the hold of the name for which the session acts: one that it acquired; or
// one of its account with its nonce; or, with release = address, one of its account from the same address whose
// session has ended, with release = user from any address, if this session never lost a hold of that name. The
// errors are a *LostError, a *NotYoursError, ErrNotHeld and ErrEnded.
//
// The result is true at one moment only. Make a change that must not happen after the end of the hold in [Session.Write].
func (s *Session) SpeaksFor(n Name) (Hold, error) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	h, _, err := t.st.holdOf(s.s, n)
	if err != nil {
		return Hold{}, t.st.refreshed(err, t.clock.Now())
	}
	return h.Hold, nil
}

// HoldsUntil returns when, on the boot clock, the last hold ends for which the session acts; endless reports
// that one of them does not end by itself; ok is false if there is none.
func (s *Session) HoldsUntil() (until time.Duration, endless, ok bool) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.st.accounts[s.s.owner.Account]
	if a == nil {
		return 0, false, false
	}
	now, steps := t.clock.Now().Boot, 0
	for other := range a.sessions {
		for _, h := range other.holds {
			if s.s.standingOf(h) != stranger {
				at, _ := h.deadline(now)
				until, ok = max(until, at), true
			}
			t.walkLocked(&steps)
		}
	}
	if until == never {
		return 0, true, ok
	}
	return until, false, ok
}

// Expiry describes when a lock ends by itself.
type Expiry struct {
	Remaining time.Duration // until it ends, if there is no further sign of life; 0 when that is due
	Never     bool          // it does not end by itself, and Remaining means nothing
	Idle      time.Duration // it ends so long after its last sign of life; 0: no limit
	Latest    time.Duration // with Idle: until it ends in spite of signs of life; less than Remaining: never
}

// Text returns it in words: "expires in 5m48s", "never expires", with both limits "expires in 23h59m48s or 30m0s after its
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
