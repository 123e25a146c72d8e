package lock

import (
	"context"
	"errors"
	"slices"
	"time"
)

// AcquireOrWait takes the lock, if its rule, its holders and the queue let the session. If they do not, and wake is not
// nil, it waits in the queue for as long as the rule or SetWait says: then both the hold and the error are nothing, and the
// Waiting is not nil. Changes of the name and exclusions that are under way are waited for in any case. The session must
// not acquire the same name otherwise meanwhile.
//
// A session of the same account and nonce as the hold that stands, other than the one that
// acquired it, adopts it: it gets a new hold with a new token and a full age, and the old token
// stands no longer. Under a reentrant rule the session that holds the lock gets the same hold again, with a full
// age, and has to release it once more.
//
// Clients that try again and again compete for a lock that comes free: the next try gets it, unless a client waits. Where
// the rule has [QueueFair], the second try in vain within a minute gives the client a place in the queue.
//
// The errors are a *HeldError, a *DelayedError, a *QueuedError, a *LimitError and a *DeadlockError (all match
// ErrHeld); a *ProtectedError if the name lies in somebody else's lock, see [MemberPolicy]; a *TooManyError; ErrNoRule if
// the name is not a lock's; ErrNoParent if a lock above it ended while it waited; ErrEnded; and
// what the store says. After one that matches ErrUncertain the lock may be the session's, and nobody else
// gets it before its age is over or the session releases it; the session's next try gets it if it is.
//
// Before it refuses a held lock, it has a [Looker] look whether a program on the host ended the hold.
//
// No lock above the name ends before it, from the moment that the grant has begun. Where the
// store keeps no directories nobody looks whether there is anything to make the lock in: then the
// caller looks afterwards, when what is there stays, and calls Undo if there is not.
func (s *Session) AcquireOrWait(ctx context.Context, n Name, wake func()) (Hold, *Waiting, error) {
	a := attempt{session: s, table: s.table, name: n, wake: wake}
	err := s.table.change(ctx, n, a.beginLocked)
	if errors.As(err, new(*HeldError)) && s.table.look(ctx, n) {
		err = s.table.change(ctx, n, a.beginLocked)
	}
	if err != nil {
		return Hold{}, nil, err
	}
	return a.hold, a.waiting, nil
}

// attempt is one try to acquire a lock.
type attempt struct {
	session *Session
	table   *Table
	name    Name
	wake    func() // nil: it does not wait
	place   *place // that of a Waiting which tries again; nil: of none
	gate    Name   // a lock above that was ending when last seen

	// What comes of it: a hold, or a Waiting, or an error.

	hold    Hold
	waiting *Waiting
}

// beginLocked is the first step of a grant.
func (a *attempt) beginLocked(now Instant) (*change, <-chan struct{}, error) {
	s, t := a.session, a.table
	t.tickLocked(now.Boot)
	e := t.nodes[a.name]
	switch {
	case s.closed:
		return nil, nil, ErrEnded
	case a.gate != "" && !t.heldLocked(a.gate):
		return nil, nil, ErrNoParent
	case e != nil && e.doing != idle:
		return nil, e.wait(), nil
	}
	rule := t.rules.find(a.name)
	if e != nil && len(e.holds) > 0 {
		if c := a.againLocked(e, rule, now); c != nil {
			return c, nil, nil
		}
	}
	switch {
	case rule != nil:
	case t.heldLocked(a.name):
		return nil, nil, t.heldErrorLocked(e, now)
	default:
		return nil, nil, ErrNoRule
	}
	if err := a.memberLocked(); err != nil {
		return nil, nil, err
	}
	if held := t.accounts[s.owner.Account]; s.maxLocks > 0 && held != nil && held.holds >= s.maxLocks {
		return nil, nil, &TooManyError{Max: s.maxLocks}
	}
	if err := a.admitLocked(e, rule, now); err != nil || a.waiting != nil {
		return nil, nil, err
	}
	if x := t.exclusionLocked(a.name); x != nil {
		return nil, x.over, nil
	}
	e = t.growLocked(a.name)
	if above := e.endingAbove(); above != nil {
		a.gate = above.name
		t.pruneLocked(e)
		return nil, above.wait(), nil
	}
	return a.grantLocked(e, nil, rule.Rule, s.sharesLocked(rule), now, CauseAcquire), nil, nil
}

// memberLocked refuses a lock below somebody else's, whose holder could not release that before it, unless its rule lets
// anyone in. A lock that was made on the host is a directory for everybody.
func (a *attempt) memberLocked() error {
	s, t := a.session, a.table
	for n := a.name.Parent(); n != "/"; n = n.Parent() {
		e := t.nodes[n]
		if e == nil || len(e.holds) == 0 || e.holds[0].Host() {
			continue
		}
		if rule := t.rules.find(n); rule != nil && rule.contention.Members == MembersAnyone {
			continue
		}
		if _, err := s.releasableLocked(n, e); err != nil {
			return &ProtectedError{Path: a.name, Lock: n, Why: err, Inside: true}
		}
	}
	return nil
}

// grantLocked is the change that gives the session a hold of e beside those that stand, in place of one of them if
// that is not nil.
func (a *attempt) grantLocked(e *node, instead *held, rule Rule, shared bool, now Instant, cause Cause) *change {
	s := a.session
	rule.MaxAge = shorter(rule.MaxAge, s.age)
	if s.releases {
		rule = releasedAfter(rule, s.grace)
	}
	a.hold = Hold{Owner: s.owner, Acquired: now, Renewed: now, Rule: rule, Shared: shared}
	s.table.accountLocked(s.owner.Account).holds++
	return &change{
		node: e, doing: granting, drains: instead != nil,
		next: append(e.standing(instead), a.hold),
		why:  reason{cause: cause, by: s.owner, waited: a.waitedLocked(now)},
		over: func() { s.table.countDownLocked(s.owner.Account) }, // the hold itself counts by then
		done: func(token Token) {
			a.hold.Token = token
			if instead != nil {
				a.hold.Adopted = instead.Token
			}
			a.servedLocked()
		},
	}
}

// waitedLocked says how long the session has waited in the queue.
func (a *attempt) waitedLocked(now Instant) time.Duration {
	if a.place == nil {
		return 0
	}
	return now.Boot - a.place.waiting.began
}

// againLocked is the change by which the session takes up a hold of e that is its own already: it renews and counts
// that under a reentrant rule, and adopts one of its job. nil: it has none to take up.
func (a *attempt) againLocked(e *node, current *compiledRule, now Instant) *change {
	s := a.session
	h, title, _ := s.spokenForLocked(e.name, e)
	switch {
	case title == byNonce:
		rule := h.Rule
		if current != nil {
			rule = current.Rule
		}
		return a.grantLocked(e, h, rule, h.Shared, now, CauseAdopt)
	case title == bySession && (h.untold || current != nil && current.contention.Reentrant):
		c, renewed := s.renewalLocked(e, h, now)
		c.done = func(Token) {
			if !h.untold {
				h.again++
			}
			h.untold = false
			a.hold = renewed
		}
		return c
	}
	return nil
}

// shorter returns the shorter of two ages, where 0 is the longest of all.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// releasedAfter is the rule with the end of its locks so long after their connection, or sooner if the rule says so.
func releasedAfter(rule Rule, grace time.Duration) Rule {
	if rule.OnDisconnect == ReleaseOnDisconnect {
		grace = min(grace, rule.Grace)
	}
	rule.OnDisconnect, rule.Grace = ReleaseOnDisconnect, grace
	return rule
}

func (t *Table) heldLocked(n Name) bool {
	e := t.nodes[n]
	return e != nil && len(e.holds) > 0
}

// exclusionLocked returns the exclusion that the name lies in, or nil.
func (t *Table) exclusionLocked(n Name) *exclusion {
	if len(t.excluded) == 0 {
		return nil
	}
	for {
		if x := t.excluded[n]; x != nil || n == "/" {
			return x
		}
		n = n.Parent()
	}
}

// admitLocked says why the session cannot have the lock now; nil: it can, or it waits from now on. e may be nil. One
// that polls under QueueFair gets a place in the queue.
func (a *attempt) admitLocked(e *node, rule *compiledRule, now Instant) error {
	s, t := a.session, a.table
	err := a.inTheWayLocked(e, rule, now)
	if err == nil {
		return nil
	}
	s.noteRivalLocked(e)
	switch {
	case a.place != nil: // it waits already
		return err
	case e != nil && s.holdsLocked(e) != nil: // it would wait for itself
		return err
	}
	s.noteLocked(a.name, now.Boot)
	if deadlock := s.deadlockLocked(a.name, rule); deadlock != nil {
		t.polls.forgetLocked(t, s.pollerLocked(a.name))
		return deadlock
	}
	if a.wake != nil && s.patienceLocked(rule) > 0 {
		a.waitLocked(rule, now.Boot)
		return nil
	}
	if rule.contention.keepsPlaces() {
		s.pollLocked(a.name, rule, now.Boot)
	}
	err.setPlace(s.placeLocked(a.name))
	return err
}

// inTheWayLocked says what keeps the session from the lock: somebody holds it, it is delayed, others have an earlier
// place, or there are as many as the limit allows. nil: nothing does. It costs the same however many others want it.
func (a *attempt) inTheWayLocked(e *node, rule *compiledRule, now Instant) placed {
	s, t := a.session, a.table
	shared := s.sharesLocked(rule)
	if e != nil && len(e.holds) > 0 && (!shared || !e.isShared() || s.holdsLocked(e) != nil) {
		return t.heldErrorLocked(e, now)
	}
	if e != nil && len(e.holds) == 0 && e.delayedTo > now.Boot {
		return &DelayedError{Refusal: Refusal{Name: a.name}, Remaining: e.delayedTo - now.Boot}
	}
	own := a.ownPlaceLocked()
	if own != nil && own.turn {
		return nil
	}
	if e != nil && e.queue != nil && e.queue.first() != own && !e.queue.lets(shared) {
		return &QueuedError{Refusal: Refusal{Name: a.name}, Next: e.queue.first().owner}
	}
	limit := rule.contention.Limit
	if limit == 0 {
		return nil
	}
	switch p := t.fullPoolLocked(a.name, rule, e); {
	case p == nil:
		return nil
	case p.held < limit && p.places.Len() > 0: // the place that is left is kept for a waiter
		return &QueuedError{Refusal: Refusal{Name: a.name}, Next: p.places.Front().Value.(*place).owner}
	}
	return &LimitError{Refusal: Refusal{Name: a.name}, Limit: limit}
}

// ownPlaceLocked returns the session's place in the queue, or nil.
func (a *attempt) ownPlaceLocked() *place {
	if a.place != nil {
		return a.place
	}
	if p := a.session.pollerLocked(a.name); p != nil {
		return p.place
	}
	return nil
}

// servedLocked takes the session out of the queue of the lock that it has got.
func (a *attempt) servedLocked() {
	s, t := a.session, a.table
	if a.place != nil {
		a.place.waiting.endLocked()
	}
	t.polls.forgetLocked(t, s.pollerLocked(a.name))
	t.polls.forgetLocked(t, s.polls[a.name])
	if s.wanted.name == a.name {
		s.wanted = want{}
	}
}

// Renew counts the age of the hold that the session speaks for from now on anew, under the same
// token. Its errors are those of SpeaksFor and of the store. A hold that waits for its
// grace goes on to do so: it is taken up by AcquireOrWait.
func (s *Session) Renew(ctx context.Context, n Name) (Hold, error) {
	var hold Hold
	err := s.table.change(ctx, n, func(now Instant) (*change, <-chan struct{}, error) {
		e := s.table.nodes[n]
		if e != nil && e.doing != idle {
			return nil, e.wait(), nil
		}
		h, _, err := s.spokenForLocked(n, e)
		if err != nil {
			return nil, nil, err
		}
		var c *change
		c, hold = s.renewalLocked(e, h, now)
		return c, nil, nil
	})
	if err != nil {
		return Hold{}, err
	}
	return hold, nil
}

// renewalLocked is the change that counts the age of h anew.
func (s *Session) renewalLocked(e *node, h *held, now Instant) (*change, Hold) {
	renewed := h.Hold
	renewed.Renewed = now
	next := e.standing(nil)
	next[slices.Index(e.holds, h)] = renewed
	return &change{node: e, doing: changing, next: next, why: reason{cause: CauseRenew, by: s.owner}}, renewed
}
