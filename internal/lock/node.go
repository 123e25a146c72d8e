package lock

import "time"

// node is one name in the tree of names that a table keeps in memory: those that are held, wanted, or not granted yet
// after they were taken away, and the directories above them. Table.mu guards all of it.
//
// docs/locking.md has the states of a name and what leads from one to another.
type node struct {
	name     Name
	parent   *node
	children map[*node]struct{}
	occupied bool // held, or a grant is under way; below of those above counts it
	below    int  // how many occupied names lie below it

	doing    doing         // which change is under way
	changed  chan struct{} // closed when that is over, or the last publication is; nil: nobody waits for it
	pins     int           // publications under way
	outside  *Event        // the newest change from outside that came during a change
	revision Token         // what the store calls the record; 0: there is none
	newest   Token         // the largest revision known of it, also when there is none any more
	holds    []*held
	// unsettled is why there was a change of which nobody can tell whether it was made; nil: there was none. If it was to be a grant the
	// holds are those that it would have made, else those from before.
	unsettled *reason

	delayedTo time.Duration // nobody gets it before (lock_delay); 0: no delay
	lingerTo  time.Duration // remembered until then, see linger; 0: not
	freedAt   time.Duration // when its last hold ended; known for as long as somebody wants it
	failure   failure       // of the last attempts to end it
	alarm     alarm

	queue      *queue     // the places for it; nil: none
	pool       *pool      // in which it takes a place; nil: in none
	heldInPool bool       // the pool counts it as held
	leavers    []*Waiting // releases that wait for its members to end
}

// doing says which change of a name is under way. One change at a time.
type doing uint8

const (
	idle     doing = iota
	granting       // a new hold
	changing       // other contents of a hold, or the end of one of several
	ending         // the end of the last hold: nothing is granted below it
)

// held is a hold that stands.
type held struct {
	Hold
	node     *node
	session  *Session      // whose it is, ended or not; nil for the host's
	index    int           // in the session's holds
	again    int           // how often the session took it again
	idleFrom time.Duration // it was not idle before, whatever its session has seen
	rival    bool          // since the grant another session of its account and address was refused the lock
	untold   bool          // its client was told that nobody knows whether it was granted: its next try gets it
	// undelivered is when it was known that its client was not told of it, at a moment when nothing could be changed; 0: not so.
	undelivered time.Duration
}

// failure says that a hold whose time is over could not be ended.
type failure struct {
	tries int
	until time.Duration // not tried again before
}

// growLocked returns the node of the name, new if need be.
func (t *Table) growLocked(n Name) *node {
	if e, ok := t.nodes[n]; ok {
		return e
	}
	e := &node{name: n}
	e.alarm.name = e
	t.nodes[n] = e
	e.parent = t.growLocked(n.Parent())
	if e.parent.children == nil {
		e.parent.children = make(map[*node]struct{})
	}
	e.parent.children[e] = struct{}{}
	return e
}

// pruneLocked forgets a node that nothing needs any more, and those above it.
func (t *Table) pruneLocked(e *node) {
	for e.parent != nil && e.unused() {
		delete(e.parent.children, e)
		t.names.remove(&e.alarm)
		delete(t.nodes, e.name)
		e = e.parent
	}
}

func (e *node) unused() bool {
	return len(e.holds) == 0 && e.doing == idle && e.pins == 0 && len(e.children) == 0 &&
		e.delayedTo == 0 && e.lingerTo == 0 && e.queue == nil && len(e.leavers) == 0
}

// kept reports whether the last hold of e cannot end now: it has members, or somebody publishes under it.
func (e *node) kept() bool { return e.pins > 0 || len(e.holds) == 1 && e.below > 0 }

// countLocked brings what others count of e in line with it: those above it, and the pool of its limit. A lock that
// waited for its last member to end is looked at then.
func (t *Table) countLocked(e *node) {
	t.takePlaceLocked(e)
	occupied := e.doing == granting || len(e.holds) > 0
	if occupied == e.occupied {
		return
	}
	e.occupied = occupied
	for p := e.parent; p != nil; p = p.parent {
		if occupied {
			p.below++
			continue
		}
		p.below--
		if p.below == 0 {
			p.wakeLeavers()
			t.armLocked(p)
		}
	}
}

// occupiedWithin returns some occupied name at or below e, which may be nil; nil if there is none.
func (e *node) occupiedWithin() *node {
	if e == nil || e.occupied {
		return e
	}
	for c := range e.children {
		if c.occupied || c.below > 0 {
			return c.occupiedWithin()
		}
	}
	return nil
}

// endingAbove returns a lock above e that is ending, or nil.
func (e *node) endingAbove() *node {
	for p := e.parent; p != nil; p = p.parent {
		if p.doing == ending {
			return p
		}
	}
	return nil
}

// byToken returns the hold with the token; nil if there is none, and for no token.
func (e *node) byToken(token Token) *held {
	for _, h := range e.holds {
		if h.Token == token && token != 0 {
			return h
		}
	}
	return nil
}

// isShared reports whether the holds of e, of which there are some, are shared. An exclusive one is the only one.
func (e *node) isShared() bool { return e.holds[0].Shared }

// standing returns copies of the holds but for one, which may be nil, with room for one more.
func (e *node) standing(without *held) []Hold {
	holds := make([]Hold, 0, len(e.holds)+1)
	for _, h := range e.holds {
		if h != without {
			holds = append(holds, h.Hold)
		}
	}
	return holds
}

// wait returns what is closed when something about e has changed.
func (e *node) wait() <-chan struct{} {
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return e.changed
}

// wake lets all go on that wait for a change of e. They look the name up again.
func (e *node) wake() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// wakeLeavers has those look that wait for the members of e to end.
func (e *node) wakeLeavers() {
	for _, w := range e.leavers {
		w.wake()
	}
}
