package lock

import "time"

// This file has all decisions about time: when a hold ends, when a session that waits gets its lock, and when it stops to wait.

// askAgain is the time until the next attempt if something is in the way: a write under way, members, a directory of the host.
const askAgain = time.Second

// maxBackoff is the longest time between two attempts to end a hold whose directory cannot be removed.
const maxBackoff = time.Minute

// later returns the moment d after t, at most never.
func later(t Time, d time.Duration) Time {
	if d > never-max(t, 0) {
		return never
	}
	return t + d
}

// shorter returns the shorter of two limits, where 0 is none.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// MaxAge returns the age at which the hold ends; 0: none.
func (h *Hold) MaxAge() time.Duration { return shorter(h.Rule.MaxAge, h.Asked.Age) }

// Grace returns how long after its connection the hold ends; false if it outlives that.
func (h *Hold) Grace() (time.Duration, bool) {
	byRule := h.Rule.OnDisconnect == ReleaseOnDisconnect || h.Automatic
	switch {
	case byRule && h.Asked.Release:
		return min(h.Rule.Grace, h.Asked.Grace), true
	case byRule:
		return h.Rule.Grace, true
	}
	return h.Asked.Grace, h.Asked.Release
}

// tooOld returns when the hold is too old.
func (h *Hold) tooOld() Time {
	if age := h.MaxAge(); age > 0 {
		return later(h.Renewed.Boot, age)
	}
	return never
}

// graceOver returns when the grace after its connection is over.
func (h *hold) graceOver() Time {
	grace, ends := h.Grace()
	switch {
	case h.Automatic && h.view.job.open == 0:
		return later(h.view.job.ended, grace)
	case !h.Automatic && ends && h.session.closed:
		return later(h.session.closedAt, grace)
	}
	return never
}

// latest returns when the hold ends in spite of signs of life.
func (h *hold) latest() (at Time, why Cause) {
	switch age, grace := h.tooOld(), h.graceOver(); {
	case h.unheard:
		return 0, CauseUndeliver
	case h.turn != 0 && h.turn < min(age, grace):
		return h.turn, CauseUnused
	case grace < age:
		return grace, CauseDisconnect
	default:
		return age, CauseExpire
	}
}

// deadline returns when the hold ends if there is no further sign of life, and why.
func (h *hold) deadline(now Time) (at Time, why Cause) {
	at, why = h.latest()
	if h.Rule.MaxIdle > 0 {
		if end := later(h.alive(now), h.Rule.MaxIdle); end < at {
			at, why = end, CauseIdle
		}
	}
	return at, why
}

// alive returns the moment of the last sign of life of the hold.
func (h *hold) alive(now Time) Time {
	s := h.session
	if h.Automatic {
		return h.idleFrom
	}
	if !s.closed && s.commands.Load() > 0 {
		return now
	}
	return max(h.idleFrom, Time(s.seen.Load()))
}

// over reports whether the hold's time is over, whether or not it has ended yet.
func (h *hold) over(now Time) bool {
	at, _ := h.deadline(now)
	return at <= now
}

// limit returns the limit that the hold exceeded, given the cause of its end.
func (h *hold) limit(why Cause) time.Duration {
	switch why {
	case CauseExpire:
		return h.MaxAge()
	case CauseIdle:
		return h.Rule.MaxIdle
	}
	return 0
}

// arm sets the alarm of a hold to its deadline. Signs of life do not move it: it rings too early then.
func (st *State) arm(h *hold) {
	at, _ := h.latest()
	if h.Rule.MaxIdle > 0 {
		at = min(at, later(h.idleFrom, h.Rule.MaxIdle))
	}
	st.agenda.set(&h.alarm, max(at, h.retry))
}

// armAll sets the alarms of the holds of n, whose ends may have been put off.
func (st *State) armAll(n *node) {
	for _, h := range n.holds {
		st.arm(h)
	}
}

// next decides the first thing that is due now, and returns false if there is none. When its outcome is applied, next is called
// again. A hold ends, or its end is put off; a session has waited for long enough; a name comes free.
func (st *State) next(now Instant, out *outcome) bool {
	if st.agenda.next() > now.Boot {
		return false
	}
	switch a := st.agenda[0]; {
	case a.hold != nil:
		st.endDue(a.hold, now, out)
	case a.place != nil:
		st.timeOut(a.place, now, out)
	case a.node.delay > now.Boot:
		out.ring(a, a.node.delay)
	case a.node.blocked != nil && a.node.blocked.until > now.Boot:
		out.ring(a, a.node.blocked.until)
	default:
		out.do(func(st *State) { st.applyFree(a.node) })
	}
	return true
}

// endDue ends a hold, or one of the locks below it, or puts that off.
func (st *State) endDue(h *hold, now Instant, out *outcome) {
	n := h.node
	restores := h.unheard && st.restorable(h)
	group := len(n.holds) == 1 && n.below > 0 && !restores
	at, why := h.deadline(now.Boot)
	if group {
		at, why = h.groupDeadline(now.Boot)
	}
	if at = max(at, h.retry); at > now.Boot {
		out.ring(&h.alarm, at)
		return
	}
	end := Record{Cause: why, Limit: h.limit(why), Late: now.Boot - at}
	if why == CauseUndeliver {
		end.By = h.Owner
	}
	ends := h
	if group {
		ends, end.Note = n.lastMember(now.Boot), "with its group"
	}
	switch {
	case ends == nil || n.kept():
		out.ring(&h.alarm, now.Boot+askAgain)
	case restores:
		st.restore(h, now, out)
	default:
		st.end(ends, end, now, out)
	}
}

// restorable reports whether an undo can bring back the hold that h was adopted from: its session has acquired no other one meanwhile.
func (st *State) restorable(h *hold) bool {
	if h.previous == nil {
		return false
	}
	s := st.sessions[h.previous.Owner.Session]
	return s == nil || s.holds[h.Name] == nil
}

// kept reports whether a hold of n cannot end now: its directory is being changed, or a write under it is under way.
func (n *node) kept() bool { return n.claim != nil || n.pins > 0 && len(n.holds) == 1 }

// groupDeadline is deadline of a hold with members. When it is too old, it takes them with it. Their signs of life are its own, the end of its
// connection waits for the ends of theirs, and that of a grant that was not delivered waits for them.
func (h *hold) groupDeadline(now Time) (at Time, why Cause) {
	at, why = h.tooOld(), CauseExpire
	grace := h.graceOver()
	if grace <= now && h.node.openBelow() {
		grace = now + askAgain
	}
	if grace < at {
		at, why = grace, CauseDisconnect
	}
	if h.Rule.MaxIdle > 0 {
		if end := later(max(h.alive(now), h.node.aliveBelow(now)), h.Rule.MaxIdle); end < at {
			at, why = end, CauseIdle
		}
	}
	return at, why
}

// lastMember returns a hold below n that ends before the others there, nil if it cannot end now.
func (n *node) lastMember(now Time) *hold {
	m := n.innermost()
	if len(m.holds) == 0 || m.kept() || m.holds[0].retry > now {
		return nil
	}
	return m.holds[0]
}

// aliveBelow returns the last sign of life of a hold below n.
func (n *node) aliveBelow(now Time) (at Time) {
	n.eachBelow(func(h *hold) { at = max(at, h.alive(now)) })
	return at
}

// openBelow reports whether a session that is open acquired a hold below n.
func (n *node) openBelow() (open bool) {
	n.eachBelow(func(h *hold) { open = open || !h.session.closed })
	return open
}

func (n *node) eachBelow(visit func(*hold)) {
	for _, c := range n.children {
		for _, h := range c.holds {
			visit(h)
		}
		if c.below > 0 {
			c.eachBelow(visit)
		}
	}
}

// timeOut ends the waiting of a session. One whose directory is being made gets the lock.
func (st *State) timeOut(p *place, now Instant, out *outcome) {
	switch {
	case p.until > now.Boot:
		out.ring(&p.alarm, p.until)
	case p.makes != nil:
		out.ring(&p.alarm, now.Boot+askAgain)
	default:
		if p.view != nil {
			st.giveUp(p, nil, now, out)
			return
		}
		out.unqueue(p, st.timeoutError(p, now))
	}
}

func (st *State) timeoutError(p *place, now Instant) error {
	rule := st.rules.find(p.node.name)
	if rule == nil {
		return ErrNoRule
	}
	refused := st.conflict(&acquisition{session: p.session, name: p.node.name, place: p}, rule, now)
	if refused == nil {
		refused = &QueuedError{Refusal: Refusal{Name: p.node.name}, Next: p.node.queue[0].owner}
	}
	refused.setPlace(p.where())
	return &TimeoutError{Waited: now.Boot - p.since, Err: refused}
}

// where returns the place's number in its queue; that of a limited rule if there is one.
func (p *place) where() Place {
	queue := p.node.queue
	if p.pool != nil {
		queue = p.pool.queue
	}
	for i, other := range queue {
		if other == p {
			return Place{At: i + 1, Of: len(queue)}
		}
	}
	return Place{Of: len(queue)}
}

// handOver decides whether the first session in the queue of n gets the lock now, and returns false if it does not. It is called
// again when its outcome is applied.
func (st *State) handOver(n *node, now Instant, out *outcome) bool {
	if len(n.queue) == 0 || n.claim != nil || n.blocked != nil {
		return false
	}
	p := n.queue[0]
	a := p.acquisition()
	rule := st.rules.find(n.name)
	switch {
	case p.view != nil && (rule == nil || rule.automatic == nil || rule.automatic.Report): // since a reload, which leaves the decision to others
		out.unqueue(p, nil)
		return true
	case rule == nil:
		out.unqueue(p, ErrNoRule)
		return true
	}
	if st.reloading && rule.contention.Limit > 0 {
		return false
	}
	if a.heldAt(n, rule) || st.conflict(a, rule, now) != nil { // the first costs less than an error about a thousand holds
		return false
	}
	if st.barredBy(n.name) != "" {
		return false
	}
	if p.view != nil {
		st.handOverJob(p, rule, now, out)
		return true
	}
	if err := st.mayJoin(a); err != nil {
		out.unqueue(p, err)
		return true
	}
	st.grant(a, rule, now, out)
	return true
}
