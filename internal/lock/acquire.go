package lock

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// acquisition is the attempt of a session to acquire a lock.
type acquisition struct {
	session   *sessionState
	name      Name
	wake      func()  // nil: the session does not wait
	waiter    *waiter // the session waits already; nil: a new attempt
	diskFree  bool    // the result of Disk.Free
	vacancies uint64  // the value of State.vacancies before that call
}

// acquire decides whether a session gets a lock now, after its directory is made, after a wait, or not at all.
func (st *State) acquire(a *acquisition, now Instant, out *outcome) {
	s, n := a.session, st.nodes[a.name]
	if s.closed {
		out.refuse(ErrEnded)
		return
	}
	if n != nil && n.claim != nil {
		out.busy = a.name
		return
	}
	rule := st.rules.find(a.name)
	if n != nil && len(n.holds) > 0 && st.adoptOrConfirm(s, n, rule, now, out) {
		return
	}
	if n != nil && len(n.holds) > 0 {
		out.do(holdsContested{n, s})
	}
	if rule == nil {
		if n != nil && len(n.holds) > 0 {
			out.refuse(n.heldError(now))
			return
		}
		out.refuse(ErrNoRule)
		return
	}
	if st.reloading && rule.contention.Limit > 0 {
		out.busy = "/"
		return
	}
	if err := st.checkMayAcquire(a, now); err != nil {
		out.refuse(err)
		return
	}
	if refused := st.conflict(a, rule, now); refused != nil {
		if w := a.newWaiter(rule, now); w != nil {
			out.queue(w)
			return
		}
		refused.setPosition(QueuePosition{Of: len(st.queueOf(a.name))})
		out.refuse(refused)
		return
	}
	st.grant(a, rule, now, out)
}

// checkMayAcquire returns an error if the account holds as many locks as it may, or if the name lies below another job's lock. A lock there
// would prevent the release of that lock.
func (st *State) checkMayAcquire(a *acquisition, now Instant) error {
	s := a.session
	if have := st.accounts[s.owner.Account]; s.settings.maxLocks > 0 && have != nil && have.holds >= s.settings.maxLocks {
		return &TooManyError{Max: s.settings.maxLocks}
	}
	for name := a.name.Parent(); name != "/"; name = name.Parent() {
		n := st.nodes[name]
		if n == nil || len(n.holds) == 0 {
			continue
		}
		if rule := st.rules.find(name); rule != nil && rule.contention.Members == MembersAnyone {
			continue
		}
		if _, err := st.releasable(s, name, now); err != nil {
			return &ProtectedError{Path: a.name, Lock: name, Why: err, Inside: true}
		}
	}
	return nil
}

// adoptOrConfirm grants a lock that the session's job holds already: it adopts a hold of another session of the job, or renews a hold whose grant
// the session did not receive. It returns false if there is no such hold.
func (st *State) adoptOrConfirm(s *sessionState, n *node, rule *compiledRule, now Instant, out *outcome) bool {
	h, reason, _ := st.holdOf(s, n.name, now)
	switch {
	case reason == byJobKey && n.pins > 0: // wait for the end of a write under the old token
		out.busy = n.name
	case reason == byJobKey:
		adopted := st.newHold(s, n.name, h.Rule, now)
		if rule != nil {
			adopted.Rule = &rule.holdRule
		}
		adopted.Shared, adopted.Directory, adopted.Note = h.Shared, h.Directory, cmp.Or(adopted.Note, h.Note)
		out.records = append(out.records, Record{Kind: Granted, Cause: CauseAdopt, Hold: adopted, Replaces: h.Token, By: s.owner, At: now})
		out.adopted = h.Token
	case reason == bySession && h.unacknowledged: // the client repeats its request
		st.renewHold(h, s.owner, now, out)
		out.do(acknowledged{h.Name, h.Token, true})
	default:
		return false
	}
	if len(out.records) > 0 {
		out.granted = &out.records[0].Hold
	}
	return true
}

// newHold returns a hold of the session with the next token.
func (st *State) newHold(s *sessionState, name Name, rule *Rule, now Instant) Hold {
	return Hold{
		Name: name, Token: st.last + 1, Owner: s.owner, Acquired: now, Renewed: now, Rule: rule, Asked: s.settings.asked, Job: s.job,
		Note: s.settings.note,
	}
}

// grant gives the session the lock. Unless Disk.Free has just succeeded, the disk first makes the directory or checks that
// the name is free. While something excludes the name the outcome is busy.
func (st *State) grant(a *acquisition, rule *compiledRule, now Instant, out *outcome) {
	if out.busy = st.excludedBy(a.name); out.busy != "" {
		return
	}
	n := st.nodes[a.name]
	r := Record{
		Kind: Granted, Cause: CauseAcquire, Hold: st.newHold(a.session, a.name, &rule.holdRule, now), By: a.session.owner, At: now,
		Free: n.freeFor(now), waiter: a.waiter,
	}
	if a.waiter != nil {
		r.Waited = now.Boot - a.waiter.since
	}
	switch {
	case n != nil && len(n.holds) > 0: // shared holds have one directory
		r.Hold.Shared, r.Hold.Directory = true, n.holds[0].Directory
	default:
		if r.Hold.Shared = a.session.shares(rule); st.disk && !(a.diskFree && a.vacancies == st.vacancies.Load()) {
			out.addClaim(&claim{record: r, kind: claimGrant, waiter: a.waiter, wake: a.wake})
			return
		}
	}
	out.records = append(out.records, r)
	out.granted = &out.records[len(out.records)-1].Hold
}

// freeFor returns how long the lock has been free.
func (n *node) freeFor(now Instant) time.Duration {
	if n == nil || n.lastFreed == 0 {
		return 0
	}
	return max(0, now.Boot-n.lastFreed)
}

// decideClaim decides the result of a claim.
func (st *State) decideClaim(c *claim, done diskResult, now Instant, out *outcome) {
	if c.kind == claimEnd {
		st.decideRemoved(c, done.note, done.err, now, out)
		return
	}
	st.decideMade(c, done.id, done.err, now, out)
}

// decideMade decides the result of a claim after the disk has made the directory or failed.
func (st *State) decideMade(c *claim, id DirectoryID, failed error, now Instant, out *outcome) {
	if errors.Is(failed, ErrNoParent) && c.kind == claimGrant && st.heldWithoutDirectory(c.node.name.Parent()) {
		failed = nil
	}
	switch {
	case failed != nil:
		st.decideNotMade(c, failed, now, out)
	case c.kind == claimFiles: // record it in each shared hold: the last one removes it
		for _, h := range c.node.holds {
			out.setDirectory(h, id, c.record.By, now)
		}
	default:
		r := c.record
		r.At, r.Free, r.waiter, r.claim = now, c.node.freeFor(now), c.waiter, c
		h := &r.Hold
		h.Directory, h.Token, h.Acquired, h.Renewed = id, st.last+1, now, now
		if rule := st.rules.find(h.Name); rule != nil { // a reload may have changed it
			h.Rule = &rule.holdRule
		}
		out.records = append(out.records, r)
		if s := st.sessions[h.Owner.Session]; s == nil || s.closed { // the directory exists, so the grant is recorded, and ends at once
			out.do(acknowledged{h.Name, h.Token, false})
			out.refuse(ErrEnded)
			return
		}
		out.granted = &out.records[len(out.records)-1].Hold
	}
}

// decideNotMade decides the result of a claim after the disk has failed to make the directory.
func (st *State) decideNotMade(c *claim, failed error, now Instant, out *outcome) {
	var held *HostError
	w := c.waiter
	if errors.As(failed, &held) && w == nil {
		if w = st.waiterForHost(c, now); w != nil {
			out.queue(w) // before the end of the claim, which would remove the node
		}
	}
	out.do(unclaimed{c})
	switch {
	case held != nil && w != nil:
		out.do(nodeBlocked{c.node, &host{err: held, until: now.Boot + retryAfter}})
		out.setTimer(&w.timer, w.until)
	case w != nil:
		out.unqueue(w, failed)
	default:
		out.refuse(failed)
	}
}

// heldWithoutDirectory reports whether the lock is held without a directory, so its members need none.
func (st *State) heldWithoutDirectory(name Name) bool {
	return st.held(name) && st.nodes[name].holds[0].Directory == (DirectoryID{})
}

// waiterForHost returns a waiter for the session of a claim, until a directory of the host has gone; nil if the session cannot wait.
func (st *State) waiterForHost(c *claim, now Instant) *waiter {
	s, rule := st.sessions[c.record.Hold.Owner.Session], st.rules.find(c.record.Hold.Name)
	if s == nil || s.closed || rule == nil {
		return nil
	}
	return (&acquisition{session: s, name: c.record.Hold.Name, wake: c.wake}).newWaiter(rule, now)
}

// heldError returns the refusal for a session that may wait later.
func (e *HostError) heldError(now Instant) *HeldError {
	return &HeldError{Refusal: Refusal{Name: e.Name}, Holder: Owner{Account: HostAccount}, Held: now.Wall.Sub(e.Since)}
}

// shares reports whether the session holds locks of the rule together with others.
func (s *sessionState) shares(rule *compiledRule) bool {
	c := &rule.contention
	if s.job {
		return false
	}
	if len(c.Shared) > 0 {
		return slices.Contains(c.Shared, s.owner.Account)
	}
	return c.ReadersShare && s.settings.reader
}

// conflict returns the reason against a grant now, or nil: the lock is held or delayed, others came earlier, or the limit is reached. Its
// cost does not depend on the number of waiting sessions, only on that of places.
func (st *State) conflict(a *acquisition, rule *compiledRule, now Instant) waitableError {
	n := st.nodes[a.name]
	if n == nil {
		return st.overLimit(a, rule, nil)
	}
	if a.heldAt(n, rule) {
		return n.heldError(now)
	}
	if len(n.holds) == 0 && n.delay > now.Boot {
		return &DelayedError{Refusal: Refusal{Name: a.name}, Remaining: n.delay - now.Boot}
	}
	if len(n.queue) > 0 && n.blocked != nil {
		return n.blocked.err.heldError(now)
	}
	if len(n.queue) > 0 && a.comesAfter(n.queue[0]) {
		return &QueuedError{Refusal: Refusal{Name: a.name}, Next: n.queue[0].session.owner}
	}
	return st.overLimit(a, rule, n)
}

// comesAfter reports whether the first session of a queue asked before this one.
func (a *acquisition) comesAfter(first *waiter) bool {
	if a.waiter != nil {
		return a.waiter != first
	}
	place := first.node.placeOf(a.session)
	return place == nil || place.ticket > first.ticket
}

// heldAt reports whether the holds of n prevent a grant. One session cannot hold a lock twice.
func (a *acquisition) heldAt(n *node, rule *compiledRule) bool {
	return len(n.holds) > 0 && (!a.session.shares(rule) || !n.shares() || a.session.holds[a.name] != nil)
}

// overLimit returns a refusal if the rule's limit is reached and its count does not include the name.
func (st *State) overLimit(a *acquisition, rule *compiledRule, n *node) waitableError {
	if rule.contention.Limit == 0 || n != nil && n.counted {
		return nil
	}
	if p := st.pools[poolKey{a.name.Parent(), rule}]; p != nil && p.full() {
		return &LimitError{Refusal: Refusal{Name: a.name}, Limit: rule.contention.Limit}
	}
	return nil
}

// newWaiter returns a waiter for the queue of the lock; nil if the session does not wait.
func (a *acquisition) newWaiter(rule *compiledRule, now Instant) *waiter {
	s, wait := a.session, rule.contention.Wait
	if s.settings.waits {
		wait = s.settings.wait
	}
	own := s.holds[a.name] != nil // a session never waits for itself
	if a.wake == nil || wait <= 0 || own {
		return nil
	}
	return &waiter{name: a.name, session: s, since: now.Boot, until: later(now.Boot, wait), wake: a.wake}
}
