package lock

import (
	"strings"
	"time"
)

// node is one name in the tree of names that a table keeps in memory: of those that are
// held, those kept back after they were taken away, and the directories above them. Everything
// in it is guarded by Table.mu.
type node struct {
	name                Name
	parent, child       *node // child is the first of those directly below
	next, prev          *node // its siblings
	below               int   // how many occupied names lie below it
	occupied            bool  // held, or a grant is under way
	granting            bool  // a grant is under way
	busy                bool  // a change of this name is under way: nobody else may begin one
	ending              bool  // that change ends the last hold: no grant below it until it is over
	draining            bool  // its time is over, and only publications under way keep it
	pins                int   // publications under way
	revision            Token // what the store calls the record; 0: there is none
	newest              Token // the largest revision known of it, also when there is none any more
	holds               []*held
	one                 [1]*held // holds, when it is one
	wait                chan struct{}
	delayedTo, lingerTo time.Duration // see delay and linger; 0: not
	due                 time.Duration // its key in the agenda
	place               int           // its index in the agenda, from 1; 0: not in it
	outside             *Event        // the newest change from outside that came while busy
	failure             *failure      // of the last attempts to end it
	wants               *wants        // nil: nobody wants it
}

// held is a hold that stands.
type held struct {
	Hold
	node       *node
	session    *Session      // whose it is, ended or not; nil for the host's
	next, prev *held         // the others of the session
	again      int           // how often the session took it again
	idleFrom   time.Duration // it was not idle before, whatever its session has seen
}

// failure says that a hold whose time is over could not be ended.
type failure struct {
	tries int
	until time.Duration // not tried again before
}

// parentOf is Name.Parent for names known to be clean.
func parentOf(n Name) Name {
	if i := strings.LastIndexByte(string(n), '/'); i > 0 {
		return n[:i]
	}
	return "/"
}

// growLocked returns the node of the name, new if need be.
func (t *Table) growLocked(n Name) *node {
	if e, ok := t.nodes[n]; ok {
		return e
	}
	e := &node{name: n}
	e.holds = e.one[:0]
	t.nodes[n] = e
	p := t.growLocked(parentOf(n))
	e.parent, e.next = p, p.child
	if p.child != nil {
		p.child.prev = e
	}
	p.child = e
	return e
}

// pruneLocked forgets a node that nothing needs any more, and those above it.
func (t *Table) pruneLocked(e *node) {
	for e.parent != nil && e.unused() {
		if e.prev != nil {
			e.prev.next = e.next
		} else {
			e.parent.child = e.next
		}
		if e.next != nil {
			e.next.prev = e.prev
		}
		t.agenda.remove(e)
		delete(t.nodes, e.name)
		e = e.parent
	}
}

func (e *node) unused() bool {
	return len(e.holds) == 0 && !e.busy && e.pins == 0 && e.child == nil &&
		e.delayedTo == 0 && e.lingerTo == 0 && e.wants == nil
}

// countLocked brings occupied in line with the holds, and the counts above with it. A lock
// whose time is over and that waited for its last member to go is due then.
func (t *Table) countLocked(e *node) {
	occupied := e.granting || len(e.holds) > 0
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
		if p.below > 0 {
			continue
		}
		p.callLeavers()
		if p.place == 0 || p.contended() {
			t.armLocked(p)
		}
	}
}

// occupiedWithin returns some occupied name at or below e, or nil.
func (e *node) occupiedWithin() *node {
	for e != nil && !e.occupied {
		if e.below == 0 {
			return nil
		}
		c := e.child
		for c != nil && !c.occupied && c.below == 0 {
			c = c.next
		}
		e = c
	}
	return e
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

// standing returns copies of the holds, with room for one more.
func (e *node) standing() []Hold {
	holds := make([]Hold, 0, len(e.holds)+1)
	for _, h := range e.holds {
		holds = append(holds, h.Hold)
	}
	return holds
}

// without returns copies of the holds but for one.
func (e *node) without(gone *held) []Hold {
	if len(e.holds) == 1 {
		return nil
	}
	holds := make([]Hold, 0, len(e.holds))
	for _, h := range e.holds {
		if h != gone {
			holds = append(holds, h.Hold)
		}
	}
	return holds
}

// wake lets everybody go on who waits for a change of e. They look the name up again.
func (e *node) wake() {
	if e.wait != nil {
		close(e.wait)
		e.wait = nil
	}
}
