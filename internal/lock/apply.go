package lock

import (
	"cmp"
	"errors"
	"slices"
)

// maxLost is how many lost locks a session remembers by name. One that lost more does not
// act for ended sessions of its account any more.
const maxLost = 4096

// apply is the only function that changes the state. It makes the change of one record. Start-up applies the records of the log,
// so it depends on nothing but the state and the record.
func (st *State) apply(r *Record) {
	v := &r.volatile
	switch r.Kind {
	case Granted:
		st.applyGranted(r)
	case Ended:
		st.applyEnded(r)
	case Changed:
		st.applyChanged(r)
	case Published:
		st.applyChange(r)
	case claimed:
		st.applyClaimed(v.claim)
	case unclaimed:
		st.dropClaim(v.claim)
	case queued:
		st.applyQueued(v.place)
	case unqueued:
		st.applyUnqueued(v.place, v.err)
	case opened:
		st.sessions[v.session.owner.Session] = v.session
		st.join(v.session, r.At.Boot)
	case closed:
		st.applyClosed(v.session, r.At)
	case lived:
		v.session.worked = r.At.Boot
		v.session.each(func(is *view) { is.active = r.At.Boot })
		for _, h := range v.holds {
			h.idleFrom = r.At.Boot
		}
	case pinned:
		st.applyPins(v.pins, v.bars, +1)
	case unpinned:
		st.applyPins(v.pins, v.bars, -1)
	case ruled:
		st.applyRules(v.rules, r.At)
	case followed:
		for _, name := range v.pins {
			if n := st.nodes[name]; n != nil {
				st.follow(n, r.At)
			}
		}
		if v.pins == nil {
			st.applyFollowed()
		}
	case marked:
		st.applyMark(r)
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
	if c := r.volatile.claim; c != nil {
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
	if p := r.volatile.place; p != nil {
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
		st.touchBelow(n) // nothing was granted there meanwhile
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

// dropClaim ends a claim without effect, also as a part of its success.
func (st *State) dropClaim(c *claim) {
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
	st.touchBelow(n)
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
			st.dropClaim(c)
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

func (st *State) applyClosed(s *session, at Instant) {
	s.closed, s.closedAt = true, at.Boot
	for p := range s.places {
		if p.view != nil && !p.look && p.view.refused == nil { // its client does not try again in vain
			p.view.refused, p.view.by, p.view.at = st.inTheWay(p.acquisition(), nil), s.owner, at
		}
		st.applyUnqueued(p, ErrEnded)
	}
	st.depart(s, at.Boot)
	if len(s.holds) == 0 {
		delete(st.sessions, s.owner.Session)
		return
	}
	st.accounts[s.owner.Account].ended++
	for _, h := range s.holds {
		st.arm(h)
	}
}

func (st *State) applyPins(pins, bars []Name, by int) {
	for _, name := range pins {
		n := st.grow(name)
		n.pins += by
		if n.pins == 0 {
			st.armAll(n)
			st.touch(n)
			st.prune(n)
		}
	}
	for _, name := range bars {
		st.barred[name] += by
		if st.barred[name] == 0 {
			delete(st.barred, name)
			st.touchBelow(cmp.Or(st.nodes[name], &node{name: name}))
		}
	}
}

func (st *State) applyMark(r *Record) {
	v := &r.volatile
	switch v.mark {
	case markAlarm:
		st.agenda.set(v.alarm, v.until)
	case markBegun:
		v.claim.begun = true
	case markUnheard, markHeard:
		if h := st.nodes[r.Hold.Name].byToken(r.Hold.Token); h != nil {
			h.unheard = v.mark == markUnheard
			st.arm(h)
		}
	case markRetry:
		v.holds[0].failures++
		v.holds[0].retry = v.until
		st.arm(v.holds[0])
	case markRival:
		v.holds[0].rival = true
	case markForgive:
		delete(v.session.lost, r.Hold.Name)
	case markBlocked:
		var held *HostError
		errors.As(v.err, &held)
		v.node.blocked = &host{err: held, until: v.until}
		st.agenda.set(&v.node.alarm, v.until)
	case markFree:
		v.node.delay, v.node.blocked = 0, nil
		st.agenda.remove(&v.node.alarm)
		st.touch(v.node)
		st.prune(v.node)
	case markActive, markFresh, markLooked, markWorks, markRefused, markCleared, markSign:
		st.applyView(r)
	case markSent:
		h := v.holds[0]
		h.sent, h.turn, h.idleFrom = true, 0, r.At.Boot
		st.arm(h)
	case markSettings:
		v.session.settings = *v.settings
	case markNonce:
		st.applyNonce(v.session, v.nonce, r.At.Boot)
	}
}
