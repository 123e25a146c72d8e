package lock

import (
	"cmp"
	"slices"
	"time"
)

// Status is the visible state of one lock.
type Status struct {
	Name    Name
	Holds   []Hold        // the oldest first; at least one
	Held    time.Duration // age of the oldest hold
	Expiry                // of the hold that ends last
	Members int           // number of taken names below it
	Waiting int           // number of sessions that wait for it; under a limit, for any name of the limit
}

// SessionStatus is the visible state of one session.
type SessionStatus struct {
	Owner  Owner
	Opened Instant
	Holds  int // number of its holds
}

// Queued is one session in the queue for a lock.
type Queued struct {
	Owner Owner
	Since time.Duration // time that it has waited
}

// statusOf returns the visible state of n.
func (st *State) statusOf(n *node, now Instant) Status {
	s := Status{Name: n.name, Members: n.below, Waiting: len(st.queueOf(n.name))}
	if len(n.holds) == 0 {
		return s
	}
	for _, h := range n.holds {
		s.Holds = append(s.Holds, h.Hold)
	}
	first := n.holds[0]
	s.Held, s.Expiry = max(now.Boot-first.Acquired.Boot, 0), n.lastExpiry(now)
	return s
}

// lastExpiry describes the end of the hold of n that ends last.
func (n *node) lastExpiry(now Instant) Expiry {
	last := n.holds[0]
	end, _ := last.deadline(now.Boot)
	for _, h := range n.holds[1:] {
		if at, _ := h.deadline(now.Boot); at > end {
			last, end = h, at
		}
	}
	latest, _ := last.hardDeadline()
	return last.expiryAt(end, latest, now)
}

// expiryAt describes a hold that ends at end without further signs of life, and at latest in spite of them.
func (h *Hold) expiryAt(end, latest Time, now Instant) Expiry {
	return Expiry{Remaining: timeLeft(end, now), Never: end == never, Idle: h.Rule.MaxIdle, Latest: timeLeft(latest, now)}
}

// Expiry describes the end of the hold after a sign of life now.
func (h Hold) Expiry(now Instant) Expiry {
	latest := h.ageEnd()
	end := latest
	if h.Rule.MaxIdle > 0 {
		end = min(end, later(now.Boot, h.Rule.MaxIdle))
	}
	return h.expiryAt(end, latest, now)
}

// timeLeft returns the time until at; 0 if at is over, or never.
func timeLeft(at Time, now Instant) time.Duration {
	if at == never {
		return 0
	}
	return max(at-now.Boot, 0)
}

func (n *node) heldError(now Instant) *HeldError {
	h := n.holds[0]
	return &HeldError{
		Refusal: Refusal{Name: n.name}, Holder: h.Owner, Note: h.Note, Token: h.Token, Held: max(now.Boot-h.Acquired.Boot, 0), Expiry: n.lastExpiry(now),
	}
}

// Get returns the state of the name; false if it is not held.
func (t *Table) Get(name Name) (Status, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.st.held(name) {
		return Status{}, false
	}
	return t.st.statusOf(t.st.nodes[name], t.clock.Now()), true
}

// Held reports whether the name is held; it costs less than Get.
func (t *Table) Held(name Name) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.st.held(name)
}

// HeldWithin reports whether a lock at or below dir is held or about to be granted. Its cost does not depend on the number of locks.
func (t *Table) HeldWithin(dir Name) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.st.nodes[dir]
	return n != nil && (n.taken() || n.below > 0)
}

// HeldWithin is [Table.HeldWithin], except that a single automatic lock below dir counts as none if this session holds it, or if its rule
// only advises.
func (s *Session) HeldWithin(dir Name) bool {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.st.lockWithin(s.s, dir) != nil
}

// walkBatch is the number of steps of a walk with the mutex held. A walk over 100,000 locks must delay no client.
const walkBatch = 128

// walkLocked counts a step of a walk and releases the mutex for a moment after each batch. The state may change then; Go allows changes of
// a map during a walk over it.
func (t *Table) walkLocked(steps *int) {
	if *steps++; *steps%walkBatch == 0 {
		t.mu.Unlock()
		t.mu.Lock()
	}
}

// namesWhere returns the sorted names of the nodes of a map for which wanted returned true at some moment of the call.
func (t *Table) namesWhere(of func() map[Name]*node, wanted func(*node) bool) (all []Name) {
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

// allNodes returns all nodes.
func (t *Table) allNodes() map[Name]*node { return t.st.nodes }

// Names returns the sorted names of all held locks. It needs much less memory than All.
func (t *Table) Names() []Name {
	return t.namesWhere(t.allNodes, func(n *node) bool { return len(n.holds) > 0 })
}

// Children returns the sorted names of the held locks directly below dir, without those of jobs. Its cost grows with the number of names
// there, not with that of all locks.
func (t *Table) Children(dir Name) []Name {
	below := func() map[Name]*node {
		if n := t.st.nodes[dir]; n != nil {
			return n.children
		}
		return nil
	}
	return t.namesWhere(below, func(n *node) bool { return len(n.holds) > 0 && !n.holds[0].Job })
}

// All returns all held locks, sorted by name, each as it was at some moment of the call.
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
	c := Count{Holds: -t.st.pendingGrants}
	for _, a := range t.st.accounts {
		c.Holds += a.holds
	}
	for n := range t.st.queues {
		c.Waiting += len(n.queue)
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
	for i, w := range n.queue {
		all[i] = Queued{Owner: w.session.owner, Since: now.Boot - w.since}
	}
	return all
}

// Sessions returns the open sessions of clients, sorted by id.
func (t *Table) Sessions() []SessionStatus {
	t.mu.Lock()
	var all []SessionStatus
	steps := 0
	for _, s := range t.st.sessions {
		if !s.closed && !s.job {
			all = append(all, SessionStatus{Owner: s.owner, Opened: s.opened, Holds: len(s.holds)})
		}
		t.walkLocked(&steps)
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b SessionStatus) int { return cmp.Compare(a.Owner.Session, b.Owner.Session) })
	return all
}

// ActsFor returns the hold of the name that the session acts for: it acquired the hold; or the hold has its account and job key; or the
// acquiring session has ended, this session never lost a hold of the name and has no other job key, and the hold has its account, with
// release = address also its address. The errors are a *LostError, a *NotYoursError, ErrNotHeld and ErrEnded.
//
// The result may be out of date at once. Make changes that need the hold in [Session.Write].
func (s *Session) ActsFor(n Name) (Hold, error) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	h, _, err := t.st.holdOf(s.s, n, t.clock.Now())
	if err != nil {
		return Hold{}, err
	}
	return h.Hold, nil
}

// HoldsUntil returns the time, on the boot clock, when the last hold ends that the session acts for. endless reports that one of them
// does not expire; ok is false if there is none.
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
			if s.s.reasonFor(h) != stranger {
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

// Expiry describes when a lock expires.
type Expiry struct {
	Remaining time.Duration // time until it ends without further signs of life; 0: due
	Never     bool          // it does not expire, and Remaining has no meaning
	Idle      time.Duration // time from the last sign of life to its end; 0: no limit
	Latest    time.Duration // with Idle: time until it ends in spite of signs of life; less than Remaining: never
}

// Text returns a phrase: "expires in 5m48s"; "never expires"; with both limits "expires in 23h59m48s or 30m0s after its last sign of
// life"; with the idle limit alone "expires in 29m48s, 30m0s after its last sign of life". It contains the idle limit only if that can
// end the lock first.
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
