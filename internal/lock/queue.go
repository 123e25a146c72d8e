package lock

import (
	"container/list"
	"slices"
	"time"
)

// queue is the places for one name, first come, first served, of clients that wait, and under [QueueFair] of those that
// poll. It hangs on the name's node and goes with its last place. A restart forgets it.
//
// The first places may have their turn: then the lock is kept for them until they try. One exclusive turn, or several
// of clients that share the lock.
type queue struct {
	places list.List // of *place
	turns  int       // so many of the first places have their turn
}

// place is one place in a queue.
type place struct {
	node    *node
	ticket  uint64   // grows with each place that is given
	session *Session // that tried last
	owner   Owner    // of that try
	shared  bool     // it would hold the lock together with others
	waiting *Waiting // one of these two is not nil
	poller  *poller
	turn    bool

	element *list.Element // in the queue
	pool    *pool         // of those that want any lock of a limited rule beside the name; nil: no limit
	inPool  *list.Element
}

// first returns the first place; a queue has one.
func (q *queue) first() *place { return q.places.Front().Value.(*place) }

// has reports whether a client with the owner's account and address has a place.
func (q *queue) has(o Owner) bool {
	for e := q.places.Front(); e != nil; e = e.Next() {
		if o.sameClient(e.Value.(*place).owner) {
			return true
		}
	}
	return false
}

// lets reports whether a client without a place need not wait for those that have one: all of these, and it, share the lock,
// and all of these have their turn.
func (q *queue) lets(shared bool) bool {
	return shared && q.first().shared && q.turns == q.places.Len()
}

// joinLocked gives the place its position at the end of the queue of its name.
func (t *Table) joinLocked(p *place, n Name) {
	t.tickets++
	p.ticket = t.tickets
	t.enterLocked(p, n)
}

// enterLocked puts the place at the end of the queue that the rules have for it.
func (t *Table) enterLocked(p *place, n Name) {
	p.node = t.growLocked(n)
	if p.node.queue == nil {
		p.node.queue = &queue{}
	}
	p.element = p.node.queue.places.PushBack(p)
	t.count.Waiting++
	if p.pool = t.usePoolLocked(p.node); p.pool != nil {
		p.inPool = p.pool.places.PushBack(p)
	}
}

// removeLocked takes the place out of its queue; its turn passes on.
func (t *Table) removeLocked(p *place) {
	e := p.node
	e.queue.places.Remove(p.element)
	t.count.Waiting--
	if p.turn {
		e.queue.turns--
		p.turn = false
	}
	if e.queue.places.Len() == 0 {
		e.queue = nil
	}
	if p.pool != nil {
		p.pool.places.Remove(p.inPool)
	}
	t.countLocked(e)
	t.offerLocked(e)
	t.dropPoolLocked(p.pool)
	t.pruneLocked(e)
}

// opening says what can be had of a name.
type opening uint8

const (
	closed  opening = iota
	sharers         // those that share it may join the others
	open            // anybody
)

// openingLocked says what can be had of a name, whoever is in the queue.
func (t *Table) openingLocked(e *node, now time.Duration) opening {
	switch {
	case e.doing != idle:
		return closed
	case len(e.holds) > 0 && e.isShared():
		return sharers
	case len(e.holds) > 0 || e.delayedTo > now:
		return closed
	}
	return open
}

// offerLocked gives turns to the first of the queue of e as far as the lock can be had, and takes away those of places
// that cannot have it any more. It is called whenever something about e has changed.
func (t *Table) offerLocked(e *node) {
	q := e.queue
	if q == nil {
		return
	}
	now := t.clock.Now().Boot
	can := t.openingLocked(e, now)
	for element := q.places.Front(); element != nil; element = element.Next() {
		p := element.Value.(*place)
		may := can == open || can == sharers && p.shared
		if can == open && e.pool == nil && p.pool != nil && p.pool.full() {
			may = false
		}
		if may != p.turn {
			t.turnLocked(p, may, now)
		}
		switch {
		case may && p.shared:
			can = sharers
		case may:
			can = closed
		case element.Next() == nil || !element.Next().Value.(*place).turn: // nobody behind it has a turn
			return
		default:
			can = closed
		}
	}
}

// turnLocked gives the place its turn, or takes it away. One that waits is woken; for one that polls the lock is kept
// until its place ends.
func (t *Table) turnLocked(p *place, turn bool, now time.Duration) {
	p.turn = turn
	if !turn {
		p.node.queue.turns--
		t.takePlaceLocked(p.node)
		return
	}
	p.node.queue.turns++
	t.takePlaceLocked(p.node)
	if p.waiting != nil {
		p.waiting.wake()
		return
	}
	t.wanting.set(&p.poller.alarm, min(p.poller.alarm.due, later(now, p.poller.hold)))
	t.hurryLocked()
}

// mostCounted is how far from its head a queue is counted to say a place.
const mostCounted = 100

// where says which place of its queue p is; under a limit, among all that want a lock of the rule beside it.
func (p *place) where() Place {
	places, own := &p.node.queue.places, p.element
	if p.pool != nil {
		places, own = &p.pool.places, p.inPool
	}
	at := Place{At: 1, Of: places.Len()}
	for e := places.Front(); e != own; e = e.Next() {
		if at.At++; at.At > mostCounted {
			break
		}
	}
	return at
}

// placeLocked says where the session stands in the queue of a name, and how long that is.
func (s *Session) placeLocked(n Name) Place {
	if p := s.pollerLocked(n); p != nil && p.place != nil {
		return p.place.where()
	}
	e := s.table.nodes[n]
	if e == nil {
		return Place{}
	}
	return Place{Of: s.table.waitingLocked(e)}
}

// waitingLocked says how many want e, under a limit any lock of its rule beside it.
func (t *Table) waitingLocked(e *node) int {
	if key, limit := t.limitLocked(e); limit > 0 && t.pools[key] != nil {
		return t.pools[key].places.Len()
	}
	if e.queue == nil {
		return 0
	}
	return e.queue.places.Len()
}

// pool is the locks of one rule that has a limit, directly below one directory.
type pool struct {
	key    poolKey
	limit  int
	used   int       // names that are held, about to be, or kept for one whose turn it is
	held   int       // those of them that are held or about to be
	places list.List // of *place, for one of these names
}

type poolKey struct {
	directory Name
	match     string
}

func (p *pool) full() bool { return p.used >= p.limit }

// limitLocked returns the pool in which e takes a place, or would, and its limit; 0: there is none.
func (t *Table) limitLocked(e *node) (poolKey, int) {
	if !t.rules.limited || e.parent == nil {
		return poolKey{}, 0
	}
	match := ""
	if len(e.holds) > 0 {
		match = e.holds[0].Rule.Match
	} else if rule := t.rules.find(e.name); rule != nil {
		match = rule.Match
	}
	return poolKey{e.parent.name, match}, t.rules.limitOf(match)
}

// usePoolLocked returns the pool of e, new if need be; nil: there is no limit.
func (t *Table) usePoolLocked(e *node) *pool {
	key, limit := t.limitLocked(e)
	if limit == 0 {
		return nil
	}
	p := t.pools[key]
	if p == nil {
		p = &pool{key: key, limit: limit}
		t.pools[key] = p
	}
	return p
}

// fullPoolLocked returns the pool in which the limit of the rule leaves no place for a lock of the name, whose node may be nil;
// nil: there is a place.
func (t *Table) fullPoolLocked(n Name, rule *compiledRule, e *node) *pool {
	p := t.pools[poolKey{n.Parent(), rule.Match}]
	if p == nil || !p.full() || e != nil && e.pool == p {
		return nil
	}
	return p
}

// takePlaceLocked has e take a place in the pool of its limit if it is held, about to be, or kept for somebody, and give
// it back if it is not. A place that is given back is offered to the others that want one.
func (t *Table) takePlaceLocked(e *node) {
	var p *pool
	held := e.doing == granting || len(e.holds) > 0
	if held || e.queue != nil && e.queue.turns > 0 {
		p = t.usePoolLocked(e)
	}
	old := e.pool
	if old != nil && e.heldInPool {
		old.held--
	}
	if e.heldInPool = p != nil && held; e.heldInPool {
		p.held++
	}
	if p == old {
		return
	}
	e.pool = p
	if p != nil {
		p.used++
	}
	if old == nil {
		return
	}
	old.used--
	for element := old.places.Front(); element != nil && !old.full(); {
		next := element.Value.(*place)
		element = element.Next()
		if !next.turn {
			t.offerLocked(next.node)
		}
	}
	t.dropPoolLocked(old)
}

// dropPoolLocked forgets a pool, which may be nil, that nothing needs any more.
func (t *Table) dropPoolLocked(p *pool) {
	if p != nil && p.used == 0 && p.places.Len() == 0 {
		delete(t.pools, p.key)
	}
}

// requeueLocked puts everybody into the queue that the rules in force have for them, in the same order.
func (t *Table) requeueLocked() {
	var all []*place
	for _, e := range t.nodes {
		e.pool, e.heldInPool = nil, false
		if e.queue == nil {
			continue
		}
		for element := e.queue.places.Front(); element != nil; element = element.Next() {
			p := element.Value.(*place)
			p.turn = false
			all = append(all, p)
		}
		e.queue = nil
	}
	clear(t.pools)
	t.count.Waiting = 0
	slices.SortFunc(all, func(a, b *place) int { return int(int64(a.ticket) - int64(b.ticket)) })
	touched := make(map[*node]bool)
	for _, p := range all {
		touched[p.node] = true
		rule := t.rules.find(p.node.name)
		switch {
		case p.waiting != nil && rule == nil:
			p.waiting.place, p.waiting.failed = nil, ErrNoRule
			p.waiting.wake()
		case p.waiting == nil && (rule == nil || !rule.contention.keepsPlaces()):
			p.poller.place = nil
			t.polls.forgetLocked(t, p.poller)
		default:
			p.shared = p.session.sharesLocked(rule)
			t.enterLocked(p, p.node.name)
		}
	}
	for _, e := range t.nodes {
		t.takePlaceLocked(e)
	}
	for e := range touched {
		t.offerLocked(e)
		t.pruneLocked(e)
	}
}
