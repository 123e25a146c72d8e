package lock

import (
	"slices"
	"time"
)

// This file has the decisions that become due: ends of holds, hand-overs to waiting sessions, and ends of waits.

// retryAfter is the time until the next attempt after a delay by a write under way, members, or a directory of the host.
const retryAfter = time.Second

// keepPlace is the time for which a session keeps its place in a queue after its wait has ended: the time to send MKD again.
const keepPlace = 5 * time.Second

// maxBackoff is the longest time between two attempts to end a hold whose directory cannot be removed.
const maxBackoff = time.Minute

// later returns the moment d after t, at most never.
func later(t Time, d time.Duration) Time {
	if d > never-max(t, 0) {
		return never
	}
	return t + d
}

// shorterLimit returns the shorter of two limits, where 0 is none.
func shorterLimit(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// MaxAge returns the age at which the hold ends; 0: none.
func (h *Hold) MaxAge() time.Duration { return shorterLimit(h.Rule.MaxAge, h.Asked.Age) }

// Grace returns how long after its connection the hold ends; false if it outlives that.
func (h *Hold) Grace() (time.Duration, bool) {
	byRule := h.Rule.OnDisconnect == ReleaseOnDisconnect || h.Job
	switch {
	case byRule && h.Asked.Release:
		return min(h.Rule.Grace, h.Asked.Grace), true
	case byRule:
		return h.Rule.Grace, true
	}
	return h.Asked.Grace, h.Asked.Release
}

// ageEnd returns when the hold reaches its age.
func (h *Hold) ageEnd() Time {
	if age := h.MaxAge(); age > 0 {
		return later(h.Renewed.Boot, age)
	}
	return never
}

// graceEnd returns when the grace after its connection is over.
func (h *liveHold) graceEnd() Time {
	grace, ends := h.Grace()
	switch {
	case ends && h.session.closed:
		return later(h.session.closedAt, grace)
	}
	return never
}

// hardDeadline returns the time at which the hold ends in spite of signs of life, and the cause.
func (h *liveHold) hardDeadline() (at Time, why Cause) {
	switch age, grace := h.ageEnd(), h.graceEnd(); {
	case h.unacknowledged:
		return 0, CauseUndeliver
	case h.endAt != 0 && h.endAt <= min(age, grace):
		return h.endAt, h.endCause
	case grace < age:
		return grace, CauseDisconnect
	default:
		return age, CauseExpire
	}
}

// ownDeadline returns the time, without regard to members, at which the hold ends without further signs of life, and the cause.
func (h *liveHold) ownDeadline(now Time) (at Time, why Cause) {
	at, why = h.hardDeadline()
	if h.Rule.MaxIdle > 0 {
		if end := later(h.alive(now), h.Rule.MaxIdle); end < at {
			at, why = end, CauseIdle
		}
	}
	return at, why
}

// alive returns the moment of the last sign of life of the hold.
func (h *liveHold) alive(now Time) Time {
	s := h.session
	if !s.closed && s.commands.Load() > 0 {
		return now
	}
	return max(h.idleFrom, Time(s.lastActivity.Load()))
}

// expired reports whether the hold has expired. It may not have ended yet.
func (h *liveHold) expired(now Time) bool {
	at, _ := h.deadline(now)
	return at <= now
}

// deadline is ownDeadline, or groupDeadline for a hold with members. It reads the members only if the hold would have expired without them, and
// not again for a second.
func (h *liveHold) deadline(now Time) (at Time, why Cause) {
	at, why = h.ownDeadline(now)
	switch {
	case at > now || len(h.node.holds) != 1 || h.node.below == 0:
		return at, why
	case now < h.groupEnd.until:
		return h.groupEnd.deadline, why
	}
	return h.groupDeadline(now)
}

// limit returns the limit that the hold exceeded if it ended for this cause.
func (h *liveHold) limit(why Cause) time.Duration {
	switch why {
	case CauseExpire:
		return h.MaxAge()
	case CauseIdle:
		return h.Rule.MaxIdle
	}
	return 0
}

// arm sets the timer of a hold to its deadline. Signs of life do not move the timer, so it may fire too early.
func (st *State) arm(h *liveHold) {
	at, _ := h.hardDeadline()
	if h.Rule.MaxIdle > 0 {
		at = min(at, later(h.idleFrom, h.Rule.MaxIdle))
	}
	st.timers.set(&h.timer, max(at, h.nextTry))
}

// armAll sets the timers of the holds of n anew, after the reason for a delay has gone.
func (st *State) armAll(n *node) {
	for _, h := range n.holds {
		st.arm(h)
	}
}

// next decides the first timer that is due, and returns false if none is. It ends a hold, a wait, a place, or a time without grants, or
// sets the timer later. The caller applies the outcome and calls next again.
func (st *State) next(now Instant, out *outcome) bool {
	if st.timers.next() > now.Boot {
		return false
	}
	switch due := st.timers[0]; {
	case due.hold != nil:
		st.endDue(due.hold, now, out)
	case due.waiter != nil && due.waiter.done:
		out.do(placeLost{due.waiter})
	case due.waiter != nil:
		st.timeOut(due.waiter, now, out)
	case due.node.delay > now.Boot:
		out.setTimer(due, due.node.delay)
	case due.node.blocked != nil && due.node.blocked.until > now.Boot:
		out.setTimer(due, due.node.blocked.until)
	default:
		out.do(nodeFreed{due.node})
	}
	return true
}

// endDue decides the end of an expired hold or of one of its members, or delays it.
func (st *State) endDue(h *liveHold, now Instant, out *outcome) {
	n := h.node
	restores := h.unacknowledged && st.restorable(h)
	group := len(n.holds) == 1 && n.below > 0 && !restores
	if group && now.Boot < h.groupEnd.until { // a member has ended
		out.setTimer(&h.timer, h.groupEnd.until)
		return
	}
	at, why := h.ownDeadline(now.Boot)
	if group && at <= now.Boot {
		at, why = h.groupDeadline(now.Boot)
		if at > now.Boot {
			out.do(groupEndCached{h, cachedDeadline{at, min(at, now.Boot+retryAfter)}})
		}
	}
	if at = max(at, h.nextTry); at > now.Boot {
		out.setTimer(&h.timer, at)
		return
	}
	end := Record{Cause: why, Limit: h.limit(why), Late: now.Boot - at}
	if why == CauseUndeliver { // it was due at once
		end.By, end.Late = h.Owner, 0
	}
	ends := h
	if group {
		ends, end.Note = n.innermostMember(now.Boot), "with its group"
	}
	switch {
	case ends == nil || n.cannotEnd():
		out.setTimer(&h.timer, now.Boot+retryAfter)
	case restores:
		st.revertAdoption(h, now, out)
	default:
		st.end(ends, end, now, out)
	}
}

// restorable reports whether the undo of an adoption can restore the hold that h was adopted from: its session has no other hold of the name.
func (st *State) restorable(h *liveHold) bool {
	if h.previous == nil {
		return false
	}
	s := st.sessions[h.previous.Owner.Session]
	return s == nil || s.holds[h.Name] == nil
}

// cannotEnd reports whether no hold of n can end now, because of a change of its directory or a write under it.
func (n *node) cannotEnd() bool { return n.claim != nil || n.pins > 0 && len(n.holds) == 1 }

// groupDeadline is ownDeadline for a hold with members. At its age it ends together with them. Their signs of life count for it, and after
// the end of its connection it waits for the ends of theirs. Neither a lost reply nor EndAt ends it before its members.
func (h *liveHold) groupDeadline(now Time) (at Time, why Cause) {
	at, why = h.ageEnd(), CauseExpire
	grace := h.graceEnd()
	if grace <= now && h.node.openBelow() {
		grace = now + retryAfter
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

// innermostMember returns a hold below n without members of its own, or nil if it cannot end now.
func (n *node) innermostMember(now Time) *liveHold {
	m := n.innermost()
	if len(m.holds) == 0 || m.cannotEnd() || m.holds[0].nextTry > now {
		return nil
	}
	return m.holds[0]
}

// aliveBelow returns the time of the last sign of life of the holds below n.
func (n *node) aliveBelow(now Time) (at Time) {
	n.eachBelow(func(h *liveHold) { at = max(at, h.alive(now)) })
	return at
}

// openBelow reports whether an open session acquired a hold below n.
func (n *node) openBelow() (open bool) {
	n.eachBelow(func(h *liveHold) { open = open || !h.session.closed })
	return open
}

func (n *node) eachBelow(do func(*liveHold)) {
	for _, c := range n.children {
		for _, h := range c.holds {
			do(h)
		}
		if c.below > 0 {
			c.eachBelow(do)
		}
	}
}

// timeOut decides the end of a wait. While the disk makes the directory of the lock, the session stays in the queue.
func (st *State) timeOut(w *waiter, now Instant, out *outcome) {
	switch {
	case w.until > now.Boot:
		out.setTimer(&w.timer, w.until)
	case w.claim != nil && w.claim.begun:
		out.setTimer(&w.timer, now.Boot+retryAfter)
	default:
		out.unqueue(w, st.timeoutError(w, now))
		out.do(placeKept{w, later(now.Boot, keepPlace)})
	}
}

func (st *State) timeoutError(w *waiter, now Instant) error {
	rule := st.rules.find(w.node.name)
	if rule == nil {
		return ErrNoRule
	}
	refused := st.conflict(&acquisition{session: w.session, name: w.node.name, waiter: w}, rule, now)
	if refused == nil {
		return &TimeoutError{Waited: now.Boot - w.since, Err: st.delayOf(w, rule, now)}
	}
	queue := st.queueOf(w.node.name)
	refused.setPosition(QueuePosition{At: slices.Index(queue, w) + 1, Of: len(queue)})
	return &TimeoutError{Waited: now.Boot - w.since, Err: refused}
}

// delayOf returns the reason why the first session in a queue did not get the free lock.
func (st *State) delayOf(w *waiter, rule *compiledRule, now Instant) error {
	n := w.node
	switch {
	case n.unserved != nil:
		return n.unserved
	case st.reloading && rule.contention.Limit > 0:
		return errReloading
	case n.claim != nil && w.host != nil: // it was to try again
		return w.host.heldError(now)
	case n.claim != nil:
		return errDirectoryChange
	}
	return errExcluded
}

// handOver decides whether the first session in the queue of n gets the lock now, and returns false if it does not. The caller applies the
// outcome and calls handOver again.
func (st *State) handOver(n *node, now Instant, out *outcome) bool {
	if len(n.queue) == 0 || n.claim != nil || n.blocked != nil {
		return false
	}
	w := n.queue[0]
	a := &acquisition{session: w.session, name: n.name, waiter: w}
	rule := st.rules.find(n.name)
	if rule == nil {
		out.unqueue(w, ErrNoRule)
		return true
	}
	if st.reloading && rule.contention.Limit > 0 {
		return false
	}
	if a.heldAt(n, rule) || st.conflict(a, rule, now) != nil { // heldAt avoids the cost of an error about a thousand holds
		return false
	}
	if st.excludedBy(n.name) != "" {
		return false
	}
	if err := st.checkMayAcquire(a, now); err != nil {
		out.unqueue(w, err)
		return true
	}
	st.grant(a, rule, now, out)
	return true
}
