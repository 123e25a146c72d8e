package lock

import (
	"cmp"
	"slices"
)

// maxLost is how many lost locks a session remembers by name. One that lost more does not
// act for ended sessions of its account any more.
const maxLost = 4096

// apply is the only function that changes the state. It makes the change of one record. A start applies the records of the log,
// so it depends on the state and the record alone. The functions whose names begin with apply are its parts; the volatile records of
// decisions call some of them.
func (st *State) apply(r *Record) {
	switch r.Kind {
	case Granted:
		st.applyGranted(r)
	case Ended:
		st.applyEnded(r)
	case Changed:
		st.applyChanged(r)
	case Published:
		st.applyPublished(r)
	default:
		r.change(st)
	}
}

func (st *State) applyGranted(r *Record) {
	n := st.grow(r.Hold.Name)
	h := &hold{Hold: r.Hold, node: n, session: st.sessionOf(r.Hold.Owner, r.At.Boot), idleFrom: r.At.Boot}
	h.alarm.hold = h
	if old := n.byToken(r.Replaces); old != nil {
		if r.Cause == CauseAdopt {
			before := old.Hold
			h.previous = &before
		}
		st.unlink(old)
	}
	if c := r.claim; c != nil {
		n.claim = nil
		st.makes--
		st.accounts[h.Owner.Account].holds--
		if c.place != nil {
			c.place.makes = nil
		}
		st.touch(n)
	}
	st.last = max(st.last, h.Token)
	if n.holds == nil {
		n.holds = n.alone[:0]
	}
	n.holds = append(n.holds, h)
	n.blocked, n.delay = nil, 0
	st.link(h)
	st.applyJobGranted(h, r)
	st.recount(n)
	st.arm(h)
	if p := r.place; p != nil {
		st.applyUnqueued(p, nil)
		p.granted = &h.Hold
	}
}

func (st *State) applyEnded(r *Record) {
	n := st.nodes[r.Hold.Name]
	h := n.byToken(r.Hold.Token)
	if h == nil { // a replay that begins in the middle
		return
	}
	if c := n.claim; c != nil && !c.makes && c.record.Hold.Token == h.Token {
		n.claim = nil
		st.unbar(n) // nothing was granted there meanwhile
	}
	st.unlink(h)
	st.applyJobEnded(h, r)
	if r.takes() {
		if !h.session.closed && !h.Automatic {
			h.session.lose(r)
		}
		if len(n.holds) == 0 && h.Rule.LockDelay > 0 {
			n.delay = later(r.At.Boot, h.Rule.LockDelay)
			st.agenda.set(&n.alarm, n.delay)
		}
	}
	if len(n.holds) == 0 {
		n.freed = r.At.Boot
	}
	st.recount(n)
	st.touch(n)
	st.prune(n)
}

func (st *State) applyChanged(r *Record) {
	n := st.nodes[r.Hold.Name]
	h := n.byToken(r.Hold.Token)
	if h == nil {
		return
	}
	if c := n.claim; c != nil && c.adds {
		n.claim = nil
		st.touch(n)
	}
	h.Hold = r.Hold
	st.arm(h)
}

// takes reports whether the end of a hold took it away from its holder.
func (r *Record) takes() bool {
	switch r.Cause {
	case CauseExpire, CauseIdle, CauseBreak, CauseDisconnect, CauseHostGone:
		return true
	}
	return false
}

// lose notes that the session lost a hold.
func (s *session) lose(r *Record) {
	if _, known := s.lost[r.Hold.Name]; !known && len(s.lost) >= maxLost {
		s.lostMany = true
		return
	}
	if s.lost == nil {
		s.lost = make(map[Name]LostError)
	}
	s.lost[r.Hold.Name] = LostError{
		Name: r.Hold.Name, Token: r.Hold.Token, Cause: r.Cause, Limit: r.Limit, By: r.By, Note: r.Note, At: r.At,
	}
}

func (st *State) applyClaimed(c *claim) {
	n := st.grow(c.record.Hold.Name)
	c.node, n.claim = n, c
	if c.makes {
		st.makes++
		st.accountOf(c.record.Hold.Owner.Account).holds++
	}
	if c.place != nil {
		c.place.makes = c
	}
	st.recount(n)
}

// applyUnclaimed ends a claim without effect.
func (st *State) applyUnclaimed(c *claim) {
	n := c.node
	if n.claim != c {
		return
	}
	n.claim = nil
	if c.makes {
		st.makes--
		st.accounts[c.record.Hold.Owner.Account].holds--
	}
	if c.place != nil {
		c.place.makes = nil
	}
	st.armAll(n)
	st.recount(n)
	st.unbar(n)
	st.prune(n)
}

func (st *State) applyQueued(p *place) {
	n := st.grow(p.node.name)
	p.node, p.alarm.place = n, p
	st.tickets++
	p.ticket = st.tickets
	n.queue = append(n.queue, p)
	st.waiting++
	st.pool(p)
	if p.session.places == nil {
		p.session.places = make(map[*place]struct{})
	}
	p.session.places[p] = struct{}{}
	st.agenda.set(&p.alarm, p.until)
}

func (st *State) applyUnqueued(p *place, why error) {
	if p.over {
		return
	}
	p.over, p.err = true, why
	if c := p.makes; c != nil {
		c.place, p.makes = nil, nil
		if !c.begun {
			st.applyUnclaimed(c)
		}
	}
	delete(p.session.places, p)
	st.agenda.remove(&p.alarm)
	n := p.node
	n.queue = remove(n.queue, p)
	st.waiting--
	if p.pool != nil {
		p.pool.queue = remove(p.pool.queue, p)
		st.dropPool(p.pool)
	}
	st.touch(n)
	st.prune(n)
}

func remove(places []*place, p *place) []*place {
	if i := slices.Index(places, p); i >= 0 {
		return slices.Delete(places, i, i+1)
	}
	return places
}

// applyClosed ends a session. Table.armHolds sets the alarms of its holds.
func (st *State) applyClosed(s *session, at Instant) {
	s.closed, s.closedAt = true, at.Boot
	for p := range s.places {
		if p.view != nil && !p.look && p.view.refused == nil { // its client does not try again in vain
			p.view.refuse(st.inTheWay(p.acquisition(), nil), s.owner, at)
		}
		st.applyUnqueued(p, ErrEnded)
	}
	st.depart(s, at.Boot)
	if len(s.holds) == 0 {
		delete(st.sessions, s.owner.Session)
		return
	}
	st.accounts[s.owner.Account].ended++
}

// applyKept counts a write that keeps names as they are, or with -1 its end.
func (st *State) applyKept(k kept, by int) {
	for _, name := range k.pins {
		n := st.grow(name)
		n.pins += by
		if n.pins == 0 {
			st.armAll(n)
			st.touch(n)
			st.prune(n)
		}
	}
	for _, name := range k.bars {
		st.barred[name] += by
		if st.barred[name] == 0 {
			delete(st.barred, name)
			st.unbar(cmp.Or(st.nodes[name], &node{name: name}))
		}
	}
}

// applyHeard notes whether the client received the grant of a hold. If it did not, the hold ends as soon as it can.
func (st *State) applyHeard(name Name, token Token, heard bool) {
	if h := st.nodes[name].byToken(token); h != nil {
		h.unheard = !heard
		st.arm(h)
	}
}

// applyFree ends the time for which no session gets a name.
func (st *State) applyFree(n *node) {
	n.delay, n.blocked = 0, nil
	st.agenda.remove(&n.alarm)
	st.touch(n)
	st.prune(n)
}
