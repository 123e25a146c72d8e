package lock

import (
	"errors"
	"slices"
	"time"
)

// acquisition is the attempt of a session to acquire a lock.
type acquisition struct {
	session *session
	name    Name
	wake    func() // nil: it does not wait
	place   *place // that of a session that waits already; nil: it comes now
	free    bool   // the disk had nothing of that name, and a lock of it gets no directory,
	unbars  uint64 // when State.unbars had this value

	// With an automatic lock:

	view *view // what the job has seen; nil: the session sent MKD
	look bool  // it only looks
	only bool  // with look: it neither waits nor gets a turn
	path Name  // at this path, or changes it
	sign Sign
}

// acquire decides whether a session gets a lock: now, or when its directory is made, or after it has waited, or not at all.
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
	if n != nil && len(n.holds) > 0 && st.takeUp(s, n, rule, now, out) {
		return
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
	if err := st.mayJoin(a); err != nil {
		out.refuse(err)
		return
	}
	if refused := st.conflict(a, rule, now); refused != nil {
		a.noteRival(n, out)
		if !st.wait(a, rule, now, out) {
			refused.setPlace(st.queueLength(n))
			out.refuse(refused)
		}
		return
	}
	st.grant(a, rule, now, out)
}

// noteRival marks the holds of the same client. A session that is refused the lock belongs to another program.
func (a *acquisition) noteRival(n *node, out *outcome) {
	if n == nil {
		return
	}
	for _, h := range n.holds {
		if !h.rival && h.session != a.session && a.session.owner.sameClient(h.Owner) {
			out.do(func(*State) { h.rival = true })
		}
	}
}

// mayJoin refuses a session whose account holds as many locks as it may, and one that acquires a lock below another job's: that job
// could not release its own before the end of the new one.
func (st *State) mayJoin(a *acquisition) error {
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
		if _, err := st.releasable(s, name); err != nil {
			return &ProtectedError{Path: a.name, Lock: name, Why: err, Inside: true}
		}
	}
	return nil
}

// takeUp grants a lock that the session's job holds already: under a new token a hold of another session of the job, under the same token
// one whose grant the session did not receive. It returns false if there is no such hold.
func (st *State) takeUp(s *session, n *node, rule *compiledRule, now Instant, out *outcome) bool {
	h, title, _ := st.holdOf(s, n.name)
	switch {
	case h != nil && h.Automatic: // of the session's job
		out.do(func(st *State) {
			h.sent, h.turn, h.idleFrom = true, 0, now.Boot
			st.arm(h)
		})
		out.granted = &h.Hold
		return true
	case title == byNonce && n.pins > 0: // a write under the old token ends first
		out.busy = n.name
	case title == byNonce:
		adopted := st.newHold(s, n.name, h.Rule, now)
		if rule != nil {
			adopted.Rule = &rule.Rule
		}
		adopted.Shared, adopted.Directory = h.Shared, h.Directory
		out.records = append(out.records, Record{Kind: Granted, Cause: CauseAdopt, Hold: adopted, Replaces: h.Token, By: s.owner, At: now})
		out.adopted = h.Token
	case title == bySession && h.unheard: // the client asks again
		st.renewHold(h, s.owner, now, out)
		out.do(func(st *State) { st.applyHeard(h.Name, h.Token, true) })
	default:
		return false
	}
	if len(out.records) > 0 {
		out.granted = &out.records[0].Hold
	}
	return true
}

// newHold returns a hold of the session with the next token.
func (st *State) newHold(s *session, name Name, rule *Rule, now Instant) Hold {
	return Hold{Name: name, Token: st.last + 1, Owner: s.owner, Acquired: now, Renewed: now, Rule: rule, Asked: s.settings.asked}
}

// grant gives the session, or its job, the lock. First the disk makes its directory, or finds the name free if it did not just do so. While
// something bars the name the outcome is busy.
func (st *State) grant(a *acquisition, rule *compiledRule, now Instant, out *outcome) {
	if out.busy = st.barredBy(a.name); out.busy != "" {
		return
	}
	n := st.nodes[a.name]
	r := Record{
		Kind: Granted, Cause: CauseAcquire, Hold: st.newHold(a.session, a.name, &rule.Rule, now), By: a.session.owner, At: now,
		Free: n.free(now), place: a.place,
	}
	if a.place != nil {
		r.Waited = now.Boot - a.place.since
	}
	switch {
	case a.view != nil:
		r.Hold.Automatic, r.Hold.Asked = true, Asked{}
		r.view, r.turn = a.view, a.turn(rule, now)
	case n != nil && len(n.holds) > 0: // it shares the directory, too
		r.Hold.Shared, r.Hold.Directory = true, n.holds[0].Directory
	default:
		if r.Hold.Shared = a.session.shares(rule); st.disk && !(a.free && a.unbars == st.unbars.Load()) {
			out.claim(&claim{record: r, makes: true, place: a.place, wake: a.wake})
			return
		}
	}
	out.records = append(out.records, r)
	out.granted = &out.records[len(out.records)-1].Hold
	if a.view != nil {
		st.leaveQueue(a, n, out)
	}
}

// free returns how long the lock has been free.
func (n *node) free(now Instant) time.Duration {
	if n == nil || n.freed == 0 {
		return 0
	}
	return max(0, now.Boot-n.freed)
}

// made decides the result of a claim whose directory was made, or could not be made.
func (st *State) made(c *claim, id DirectoryID, failed error, now Instant, out *outcome) {
	if errors.Is(failed, ErrNoParent) && c.makes && st.heldWithout(c.node.name.Parent()) {
		failed = nil
	}
	switch {
	case failed != nil:
		st.notMade(c, failed, now, out)
	case c.adds: // for all that share it: the last of them removes it
		for _, is := range c.node.holds {
			h := is.Hold
			h.Directory = id
			out.records = append(out.records, Record{Kind: Changed, Cause: CauseDirectory, Hold: h, By: c.record.By, At: now})
		}
	default:
		r := c.record
		r.At, r.Free, r.place, r.claim = now, c.node.free(now), c.place, c
		h := &r.Hold
		h.Directory, h.Token, h.Acquired, h.Renewed = id, st.last+1, now, now
		if rule := st.rules.find(h.Name); rule != nil { // there may have been a reload
			h.Rule = &rule.Rule
		}
		out.records = append(out.records, r)
		if s := st.sessions[h.Owner.Session]; s == nil || s.closed { // it ended meanwhile
			name, token := h.Name, h.Token
			out.do(func(st *State) { st.applyHeard(name, token, false) })
			out.refuse(ErrEnded)
			return
		}
		out.granted = &out.records[len(out.records)-1].Hold
	}
}

// notMade decides the result of a claim whose directory could not be made.
func (st *State) notMade(c *claim, failed error, now Instant, out *outcome) {
	var held *HostError
	waits := errors.As(failed, &held) && (c.place != nil || st.awaitHost(c, held, now, out))
	out.do(func(st *State) { st.applyUnclaimed(c) })
	switch {
	case waits:
		out.do(func(st *State) {
			c.node.blocked = &host{err: held, until: now.Boot + askAgain}
			st.agenda.set(&c.node.alarm, c.node.blocked.until)
		})
		if c.place != nil {
			out.ring(&c.place.alarm, c.place.until)
		}
	case c.place != nil:
		out.unqueue(c.place, failed)
	default:
		out.refuse(failed)
	}
}

// heldWithout reports whether a lock is held that has no directory: its members need none.
func (st *State) heldWithout(name Name) bool {
	return st.held(name) && st.nodes[name].holds[0].Directory == (DirectoryID{})
}

// awaitHost has the session of a claim wait until a program on the host removes its directory, and reports whether it does.
func (st *State) awaitHost(c *claim, host *HostError, now Instant, out *outcome) bool {
	s, rule := st.sessions[c.record.Hold.Owner.Session], st.rules.find(c.record.Hold.Name)
	if s == nil || s.closed || rule == nil {
		return false
	}
	if st.wait(&acquisition{session: s, name: c.record.Hold.Name, wake: c.wake}, rule, now, out) {
		return true
	}
	refused := host.heldError(now)
	refused.setPlace(st.queueLength(c.node))
	out.refuse(refused)
	return false
}

// heldError returns the refusal of a session that may wait.
func (e *HostError) heldError(now Instant) *HeldError {
	return &HeldError{Refusal: Refusal{Name: e.Name}, Holder: Owner{Account: HostAccount}, Held: now.Wall.Sub(e.Since), Expiry: Expiry{Never: true}}
}

// shares reports whether the session would hold a lock of the rule together with others.
func (s *session) shares(rule *compiledRule) bool {
	c := &rule.contention
	if len(c.Shared) > 0 {
		return slices.Contains(c.Shared, s.owner.Account)
	}
	return c.ReadersShare && s.settings.reader
}

// conflict returns the reason why the session cannot have the lock now, or nil: the lock is held or delayed, others came earlier, or
// the limit is reached. Its cost does not depend on how many sessions wait.
func (st *State) conflict(a *acquisition, rule *compiledRule, now Instant) refusal {
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
	if len(n.queue) > 0 && n.queue[0] != a.place {
		return &QueuedError{Refusal: Refusal{Name: a.name}, Next: n.queue[0].owner}
	}
	return st.overLimit(a, rule, n)
}

// heldAt reports whether the holds of n keep the session from the lock. The session cannot hold it twice.
func (a *acquisition) heldAt(n *node, rule *compiledRule) bool {
	return len(n.holds) > 0 && (a.view != nil || !a.session.shares(rule) || !n.shares() || a.session.holds[a.name] != nil)
}

// overLimit returns a refusal if the rule's limit is reached, and the name is not one of those that reach it.
func (st *State) overLimit(a *acquisition, rule *compiledRule, n *node) refusal {
	if rule.contention.Limit == 0 || n != nil && n.counted {
		return nil
	}
	if p := st.pools[poolKey{a.name.Parent(), rule}]; p != nil && p.full() {
		return &LimitError{Refusal: Refusal{Name: a.name}, Limit: rule.contention.Limit}
	}
	return nil
}

// wait has the session, or its job, wait for the lock, and returns false if it cannot wait.
func (st *State) wait(a *acquisition, rule *compiledRule, now Instant, out *outcome) bool {
	s, wait := a.session, rule.contention.Wait
	if a.view == nil && s.settings.waits {
		wait = s.settings.wait
	}
	own := a.view == nil && s.holds[a.name] != nil // it would wait for itself
	if a.wake == nil || wait <= 0 || own {
		return false
	}
	p := &place{
		node: &node{name: a.name}, session: s, owner: s.owner, since: now.Boot, until: later(now.Boot, wait), wake: a.wake,
		view: a.view, look: a.look, path: a.path,
	}
	if n := st.nodes[a.name]; n != nil && a.look {
		for _, other := range n.queue { // all looks of a job wait equally long
			if other.view == a.view && other.look {
				p.until = other.until
			}
		}
	}
	out.queue(p)
	return true
}

// queueLength returns the Place of a session that has none.
func (st *State) queueLength(n *node) Place {
	if n == nil {
		return Place{}
	}
	if n.pool != nil && len(n.pool.queue) > 0 {
		return Place{Of: len(n.pool.queue)}
	}
	return Place{Of: len(n.queue)}
}
