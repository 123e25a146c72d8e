package lock

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"
)

// attempt is one try to acquire a lock.
type attempt struct {
	wake     func()   // nil: it does not wait
	place    *entry   // it is one that waits already, with this place
	inTheWay error    // with place: it is not its turn, for this reason
	waiting  *Waiting // it waits from now on
}

// Acquire takes the lock, if its rule, its holders and the queue let the session. It waits for changes of that
// name and for exclusions that are under way, never for the lock to come free: for that see AcquireOrWait.
//
// A session of the same account and nonce as the hold that stands, other than the one that
// acquired it, adopts it: it gets a new hold with a new token and a full age, and the old token
// stands no longer. Under a reentrant rule the session that holds the lock gets the same hold again, with a full
// age, and has to release it once more.
//
// A second try in vain within a minute puts the session, or its job by the nonce, or its account at that
// address, into the queue: then a lock that comes free is kept for its next try when its turn has come, for three times as long
// as lay between its tries.
//
// The errors are a *HeldError, a *DelayedError, a *QueuedError, a *LimitError and a *DeadlockError (all match
// ErrHeld); ErrNoRule if the name
// is not a lock's; ErrNoParent if a lock above it ended while it waited; ErrEnded; and what the
// store says. After one that matches ErrUncertain the lock may be the session's, and nobody else
// gets it before its age is over or the session releases it.
//
// No lock above the name ends before it, from the moment that Acquire has begun to grant. Where the
// store keeps no directories nobody looks whether there is anything to make the lock in: then the
// caller looks afterwards, when what is there stays, and calls Undo if there is not.
func (s *Session) Acquire(ctx context.Context, n Name) (Hold, error) {
	var a attempt
	return s.attempt(ctx, n, &a)
}

func (s *Session) attempt(ctx context.Context, n Name, a *attempt) (Hold, error) {
	t := s.table
	now := t.clock.Now()
	t.mu.Lock()
	hold, cause, err := s.acquireLocked(ctx, n, a, now)
	t.mu.Unlock()
	if err == nil && a.waiting == nil {
		t.logGrant(ctx, n, hold, cause)
	}
	return hold, err
}

func (t *Table) logGrant(ctx context.Context, n Name, hold Hold, cause Cause) {
	if t.log.Enabled(ctx, slog.LevelDebug) {
		t.log.LogAttrs(ctx, slog.LevelDebug, "lock acquired",
			slog.String("name", string(n)), slog.String("cause", string(cause)),
			slog.String("holder", hold.Owner.String()), slog.Uint64("token", uint64(hold.Token)))
	}
}

// acquireLocked lets go of the mutex meanwhile.
func (s *Session) acquireLocked(ctx context.Context, n Name, a *attempt, now Instant) (Hold, Cause, error) {
	t := s.table
	var gate Name // a lock above that was ending when last seen
	var err error
	for try := 0; try < retries; {
		e := t.nodes[n]
		switch {
		case s.closed:
			return Hold{}, "", ErrEnded
		case gate != "" && !t.heldLocked(gate):
			return Hold{}, "", ErrNoParent
		case e != nil && e.busy:
			err = t.waitLocked(ctx, e)
		case e != nil && s.ownAgainLocked(e) != nil:
			hold, cause, err := s.takeAgainLocked(ctx, e, now)
			if !errors.Is(err, ErrConflict) {
				return hold, cause, err
			}
			try++
		default:
			i, ok := t.rules.find(n)
			if !ok {
				return Hold{}, "", t.noRuleLocked(e, now)
			}
			rule, c := &t.rules.rules[i], t.rules.ways[i] // a set of rules does not change
			if err := s.refusalOfLocked(n, rule, c, a, now); err != nil || a.waiting != nil {
				return Hold{}, "", err
			}
			if x := t.exclusionLocked(n); x != nil {
				err = t.waitForLocked(ctx, x.over)
				break
			}
			e = t.growLocked(n)
			if above := e.endingAbove(); above != nil {
				gate = above.name
				t.pruneLocked(e)
				err = t.waitLocked(ctx, above)
				break
			}
			hold, err := s.grantLocked(ctx, e, nil, *rule, s.sharesLocked(c), now, CauseAcquire)
			if err == nil {
				s.servedLocked(n, rule, c, a)
			}
			if !errors.Is(err, ErrConflict) {
				return hold, CauseAcquire, err
			}
			try++
		}
		if err != nil {
			return Hold{}, "", err
		}
		now = t.clock.Now()
	}
	return Hold{}, "", ErrConflict
}

func (t *Table) noRuleLocked(e *node, now Instant) error {
	if e != nil && len(e.holds) > 0 {
		return t.heldErrorLocked(e, now)
	}
	return ErrNoRule
}

// refusalOfLocked says why the lock cannot be granted now, and gives the session its place in the queue; nil:
// it can be granted, or the session waits from now on, and then a has what for.
func (s *Session) refusalOfLocked(n Name, rule *Rule, c *Contention, a *attempt, now Instant) error {
	t := s.table
	e := t.nodes[n]
	if c.Limit == 0 && (e == nil || e.isFree()) { // as nearly always
		return nil
	}
	place := a.place
	if q := t.queueLocked(n, rule, c); q != nil {
		t.refreshLocked(n, rule, c, now.Boot)
		e = t.nodes[n]
		if place == nil {
			place = s.entryLocked(q, n)
		}
	}
	err := s.inTheWayLocked(n, e, rule, c, place, now)
	switch {
	case err == nil:
		return nil
	case a.place != nil:
		a.inTheWay = err
		return err
	case e != nil && s.holdsLocked(e) != nil: // it would wait for itself
		return err
	}
	if deadlock := s.deadlockLocked(n, rule, c); deadlock != nil {
		if place != nil {
			t.dropLocked(place)
		}
		return deadlock
	}
	if a.wake != nil && s.patienceLocked(c) > 0 {
		s.queueUpLocked(n, rule, c, a, now.Boot)
		return nil
	}
	if c.Queue == QueueOff {
		return err
	}
	s.triedLocked(n, rule, c, now.Boot)
	q := t.queueLocked(n, rule, c)
	err.setPlace(q.place(s.entryLocked(q, n)))
	return err
}

// isFree reports whether nobody has or wants e, nor did of late.
func (e *node) isFree() bool { return len(e.holds) == 0 && e.delayedTo == 0 && e.wants == nil }

// servedLocked takes the session out of the queue of a lock that it has got.
func (s *Session) servedLocked(n Name, rule *Rule, c *Contention, a *attempt) {
	if e := s.table.nodes[n]; c.Limit == 0 && (e == nil || e.wants == nil) {
		return
	}
	q := s.table.queueLocked(n, rule, c)
	if q == nil {
		return
	}
	en := a.place
	if en == nil {
		en = s.entryLocked(q, n)
	}
	if seen := s.foundLocked(q.seen, n); en == nil {
		en = seen
	}
	if en != nil {
		s.table.dropLocked(en)
	}
}

// ownAgainLocked returns the hold of e that the session may take up under a new token, or take again.
func (s *Session) ownAgainLocked(e *node) *held {
	if len(e.holds) == 0 {
		return nil
	}
	if h, title, _ := s.spokenForLocked(e.name, e); title == byNonce || title == bySession && s.reentersLocked(e) {
		return h
	}
	return nil
}

func (s *Session) reentersLocked(e *node) bool {
	i, ok := s.table.rules.find(e.name)
	return ok && s.table.rules.ways[i].Reentrant
}

// takeAgainLocked renews the session's own hold and counts it, or adopts one of its job.
func (s *Session) takeAgainLocked(ctx context.Context, e *node, now Instant) (Hold, Cause, error) {
	h := s.ownAgainLocked(e)
	if h.session != s {
		hold, err := s.adoptLocked(ctx, e, h, now)
		if i, ok := s.table.rules.find(e.name); ok && err == nil {
			s.servedLocked(e.name, &s.table.rules.rules[i], s.table.rules.ways[i], &attempt{})
		}
		return hold, CauseAdopt, err
	}
	hold, err := s.renewLocked(ctx, e, h)
	if err == nil {
		h.again++
	}
	return hold, CauseRenew, err
}

// adoptLocked ends h and grants its like in one step.
func (s *Session) adoptLocked(ctx context.Context, e *node, h *held, now Instant) (Hold, error) {
	rule, ok := s.table.rules.For(e.name)
	if !ok {
		rule = h.Rule
	}
	return s.grantLocked(ctx, e, h, rule, h.Shared, now, CauseAdopt)
}

// grantLocked gives the session a hold of e, which is not busy, beside those that stand, in place of one of them if
// that is not nil. It lets go of the mutex meanwhile.
func (s *Session) grantLocked(ctx context.Context, e *node, instead *held, rule Rule, shared bool, now Instant, cause Cause) (Hold, error) {
	t := s.table
	e.busy, e.granting = true, true
	defer t.settleLocked(e)
	t.countLocked(e)
	t.agenda.remove(e)
	for instead != nil && e.pins > 0 {
		if err := t.waitLocked(ctx, e); err != nil {
			return Hold{}, err
		}
	}
	rule.MaxAge = shorter(rule.MaxAge, s.age)
	hold := Hold{Owner: s.owner, Acquired: now, Renewed: now, Rule: rule, Shared: shared}
	next := e.standing()
	if instead != nil {
		next = e.without(instead)
	}
	token, err := t.commitLocked(ctx, e, append(next, hold), reason{cause: cause, by: s.owner})
	if err != nil {
		return Hold{}, err
	}
	hold.Token = token
	if cause == CauseAdopt {
		hold.Adopted = instead.Token
	}
	return hold, nil
}

// shorter returns the shorter of two ages, where 0 is the longest of all.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// endingAbove returns a lock above e that is ending, or nil.
func (e *node) endingAbove() *node {
	for p := e.parent; p != nil; p = p.parent {
		if p.ending {
			return p
		}
	}
	return nil
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
		n = parentOf(n)
	}
}

// Renew counts the age of the hold that the session speaks for from now on anew, under the same
// token. Its errors are those of SpeaksFor and of the store. A hold that waits for its
// grace goes on to do so: it is taken up by Acquire.
func (s *Session) Renew(ctx context.Context, n Name) (Hold, error) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for range retries {
		e, err := t.quietLocked(ctx, n)
		if err != nil {
			return Hold{}, err
		}
		h, _, err := s.spokenForLocked(n, e)
		if err != nil {
			return Hold{}, err
		}
		hold, err := s.renewLocked(ctx, e, h)
		if !errors.Is(err, ErrConflict) {
			return hold, err
		}
	}
	return Hold{}, ErrConflict
}

func (s *Session) renewLocked(ctx context.Context, e *node, h *held) (Hold, error) {
	t := s.table
	e.busy = true
	defer t.settleLocked(e)
	renewed := h.Hold
	renewed.Renewed = t.clock.Now()
	next := e.standing()
	next[slices.Index(e.holds, h)] = renewed
	if _, err := t.commitLocked(ctx, e, next, reason{cause: CauseRenew, by: s.owner}); err != nil {
		return Hold{}, err
	}
	return renewed, nil
}
