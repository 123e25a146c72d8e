package lock

import (
	"cmp"
	"slices"
)

// maxLost is the number of lost locks that a session lists by name. A session that lost more no longer acts for ended sessions of its
// account.
const maxLost = 4096

// apply changes the State by one record. It reads the record and the State, never the clock, the disk or the log. A start applies a Granted
// record without a cause for each hold that the log returns. The functions whose names begin with apply are its parts; a change
// calls some of them.
func (st *State) apply(r *Record) {
	switch r.Kind {
	case Granted:
		st.applyGranted(r)
	case Ended:
		st.applyEnded(r)
	case Changed:
		st.applyChanged(r)
	case Published: // changes no hold
	default:
		r.change.applyTo(st)
	}
}

func (st *State) applyGranted(r *Record) {
	n := st.addNode(r.Hold.Name)
	h := &liveHold{Hold: r.Hold, node: n, session: st.sessionOf(r.Hold.Owner, r.At.Boot), idleFrom: r.At.Boot}
	h.timer.hold = h
	if old := n.byToken(r.Replaces); old != nil {
		switch {
		case r.Cause != CauseAdopt:
		case old.unacknowledged: // no client has it
			h.previous = old.previous
		default:
			before := old.Hold
			h.previous = &before
		}
		h.contested = old.contested
		st.unlink(old)
	}
	if n.contest(h.session) {
		h.contested = true
	}
	if c := r.claim; c != nil {
		n.claim = nil
		st.pendingGrants--
		st.accounts[h.Owner.Account].holds--
		if c.waiter != nil {
			c.waiter.claim = nil
		}
		st.reoffer(n)
	}
	st.last = max(st.last, h.Token)
	if n.holds == nil {
		n.holds = n.alone[:0]
	}
	n.holds = append(n.holds, h)
	n.blocked, n.delay = nil, 0
	st.link(h)
	st.recount(n)
	st.arm(h)
	if w := r.waiter; w != nil {
		st.applyUnqueued(w, nil)
		w.granted = &h.Hold
	} else if place := n.placeOf(h.session); place != nil {
		st.applyPlaceLost(place)
	}
}

func (st *State) applyEnded(r *Record) {
	n := st.nodes[r.Hold.Name]
	h := n.byToken(r.Hold.Token)
	if h == nil { // the log begins after its grant
		return
	}
	note := r.Note
	if c := n.claim; c != nil && c.kind != claimGrant && c.record.Hold.Token == h.Token {
		n.claim, note = nil, c.record.Note
		st.reoffer(n) // nothing was granted there meanwhile
	}
	st.unlink(h)
	if r.takesAway() {
		if !h.session.closed {
			h.session.noteLoss(r, note)
			st.losers[h.session] = struct{}{}
		}
		if len(n.holds) == 0 && h.Rule.LockDelay > 0 {
			n.delay = later(r.At.Boot, h.Rule.LockDelay)
			st.timers.set(&n.timer, n.delay)
		}
	}
	if r.Cause == CauseRelease && len(st.losers) > 0 {
		if s := st.sessions[r.By.Session]; s != nil { // it has ended a later hold than the one that it lost
			st.forgiveLoss(s, r.Hold.Name)
		}
	}
	if len(n.holds) == 0 {
		n.lastFreed = r.At.Boot
	}
	st.recount(n)
	st.markDirty(n)
	st.prune(n)
}

func (st *State) applyChanged(r *Record) {
	n := st.nodes[r.Hold.Name]
	h := n.byToken(r.Hold.Token)
	if h == nil {
		return
	}
	if c := n.claim; c != nil && c.kind == claimFiles {
		n.claim = nil
		st.expected -= c.expects
		st.markDirty(n)
	}
	h.Hold = r.Hold
	st.arm(h)
}

// contest marks the holds of other sessions of the session's account and address, and reports whether there are any. The session tries to
// acquire the lock, has waited for it, or shares it. So we assume that it belongs to another program than these holders.
func (n *node) contest(s *sessionState) (found bool) {
	for _, h := range n.holds {
		if h.session != s && s.sameClient(h.session) {
			h.contested, found = true, true
		}
	}
	return found
}

// takesAway reports whether the end takes the lock away from a holder that relies on it. The session notes the loss, and lock_delay begins.
func (r *Record) takesAway() bool {
	switch r.Cause {
	case CauseExpire, CauseIdle, CauseBreak, CauseDisconnect, CauseHostGone:
		return true
	}
	return false
}

// noteLoss records that the session lost a hold. The note is that of the record without the path of files that were moved aside, which is not
// for clients.
func (s *sessionState) noteLoss(r *Record, note string) {
	if _, known := s.lost[r.Hold.Name]; !known && len(s.lost) >= maxLost {
		s.lostMany = true
		return
	}
	if s.lost == nil {
		s.lost = make(map[Name]LostError)
	}
	s.lost[r.Hold.Name] = LostError{
		Name: r.Hold.Name, Token: r.Hold.Token, Cause: r.Cause, Limit: r.Limit, By: r.By, Note: note, At: r.At,
	}
}

// forgiveLoss deletes the note that the session lost a hold of the name.
func (st *State) forgiveLoss(s *sessionState, name Name) {
	if delete(s.lost, name); len(s.lost) == 0 && !s.lostMany {
		delete(st.losers, s)
	}
}

func (st *State) applyClaimed(c *claim) {
	n := st.addNode(c.record.Hold.Name)
	c.node, n.claim = n, c
	st.expected += c.expects
	if c.kind == claimGrant {
		st.pendingGrants++
		st.accountOf(c.record.Hold.Owner.Account).holds++
	}
	if c.waiter != nil {
		c.waiter.claim = c
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
	st.expected -= c.expects
	if c.kind == claimGrant {
		st.pendingGrants--
		st.accounts[c.record.Hold.Owner.Account].holds--
	}
	if c.waiter != nil {
		c.waiter.claim = nil
	}
	st.armAll(n)
	st.recount(n)
	st.reoffer(n)
	st.prune(n)
}

func (st *State) applyQueued(w *waiter) {
	n := st.addNode(w.name)
	w.node, w.timer.waiter = n, w
	st.tickets++
	w.ticket = st.tickets
	place := n.placeOf(w.session)
	if place != nil {
		w.ticket = place.ticket
	}
	n.queue = insertByTicket(n.queue, w)
	if place != nil {
		st.applyPlaceLost(place)
	}
	if n.queue[0] == w && len(n.queue) > 1 { // it may share the lock now, which the next one could not
		st.markDirty(n)
	}
	st.queues[n] = struct{}{}
	st.joinPool(w)
	if w.session.waiters == nil {
		w.session.waiters = make(map[*waiter]struct{})
	}
	w.session.waiters[w] = struct{}{}
	st.timers.set(&w.timer, w.until)
}

func (st *State) applyUnqueued(w *waiter, why error) {
	if w.done {
		return
	}
	w.done, w.err = true, why
	if c := w.claim; c != nil {
		c.waiter, w.claim = nil, nil
		if !c.begun {
			st.applyUnclaimed(c)
		}
	}
	delete(w.session.waiters, w)
	st.timers.remove(&w.timer)
	n := w.node
	n.contest(w.session) // while it waited, sameProgram saw it in the queue
	if n.queue = withoutWaiter(n.queue, w); len(n.queue) == 0 {
		delete(st.queues, n)
	}
	if w.pool != nil {
		w.pool.queue = withoutWaiter(w.pool.queue, w)
		st.dropPool(w.pool)
	}
	st.markDirty(n)
	st.prune(n)
}

// applyPlaceKept keeps the place of a session whose wait has ended.
func (st *State) applyPlaceKept(w *waiter, until Time) {
	w.node = st.addNode(w.name) // the end of the wait may have removed it
	w.node.places = insertByTicket(w.node.places, w)
	st.timers.set(&w.timer, until)
}

// applyPlaceLost ends the place of a session.
func (st *State) applyPlaceLost(w *waiter) {
	st.timers.remove(&w.timer)
	w.node.places = withoutWaiter(w.node.places, w)
	st.prune(w.node)
}

// insertByTicket adds a waiter to a list in the order of tickets.
func insertByTicket(waiters []*waiter, w *waiter) []*waiter {
	i, _ := slices.BinarySearchFunc(waiters, w, byTicket)
	return slices.Insert(waiters, i, w)
}

func byTicket(a, b *waiter) int { return cmp.Compare(a.ticket, b.ticket) }

func withoutWaiter(waiters []*waiter, w *waiter) []*waiter {
	if i := slices.Index(waiters, w); i >= 0 {
		return slices.Delete(waiters, i, i+1)
	}
	return waiters
}

// applyClosed ends a session. Table.armHolds sets the timers of its holds afterwards.
func (st *State) applyClosed(s *sessionState, at Instant) {
	s.closed, s.closedAt = true, at.Boot
	for w := range s.waiters {
		st.applyUnqueued(w, ErrEnded)
	}
	delete(st.losers, s)
	if len(s.holds) == 0 {
		delete(st.sessions, s.owner.Session)
		return
	}
	st.accounts[s.owner.Account].ended++
}

// applyScope counts the begin of a write, or with -1 its end.
func (st *State) applyScope(k writeScope, by int) {
	st.expected += by * k.publications
	for _, name := range k.pins {
		n := st.addNode(name)
		n.pins += by
		if n.pins == 0 {
			st.armAll(n)
			st.markDirty(n)
			st.prune(n)
		}
	}
	for _, name := range k.excluded {
		st.excluded[name] += by
		if st.excluded[name] == 0 {
			delete(st.excluded, name)
			st.reoffer(cmp.Or(st.nodes[name], &node{name: name}))
		}
	}
}

// applyAcknowledged records whether the client received the grant of a hold. If it did not, the hold ends as soon as possible.
func (st *State) applyAcknowledged(name Name, token Token, delivered bool) {
	if h := st.nodes[name].byToken(token); h != nil {
		h.unacknowledged = !delivered
		st.arm(h)
	}
}

// applyFree ends a lock_delay, or the wait for a directory of the host.
func (st *State) applyFree(n *node) {
	n.delay, n.blocked = 0, nil
	st.timers.remove(&n.timer)
	st.markDirty(n)
	st.prune(n)
}
