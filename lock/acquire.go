package lock

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"
)

// Acquire takes the lock, if its rule and its holders let the session. It waits for changes of that
// name and for exclusions that are under way, never for the lock to come free.
//
// A session of the same account and nonce as the hold that stands, other than the one that
// acquired it, adopts it: it gets a new hold with a new token and a full age, and the old token
// stands no longer.
//
// The errors are a *HeldError and a *DelayedError (both match ErrHeld); ErrNoRule if the name
// is not a lock's; ErrNoParent if a lock above it ended while it waited; ErrEnded; and what the
// store says. After one that matches ErrUncertain the lock may be the session's, and nobody else
// gets it before its age is over or the session releases it.
//
// No lock above the name ends before it, from the moment that Acquire has begun to grant. Where the
// store keeps no directories nobody looks whether there is anything to make the lock in: then the
// caller looks afterwards, when what is there stays, and calls Undo if there is not.
func (s *Session) Acquire(ctx context.Context, n Name) (Hold, error) {
	hold, cause, err := s.acquire(ctx, n)
	if err == nil && s.table.log.Enabled(ctx, slog.LevelDebug) {
		s.table.log.LogAttrs(ctx, slog.LevelDebug, "lock acquired",
			slog.String("name", string(n)), slog.String("cause", string(cause)),
			slog.String("holder", hold.Owner.String()), slog.Uint64("token", uint64(hold.Token)))
	}
	return hold, err
}

func (s *Session) acquire(ctx context.Context, n Name) (Hold, Cause, error) {
	t := s.table
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
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
		case e != nil && len(e.holds) > 0:
			h := s.adoptableLocked(e)
			if h == nil {
				return Hold{}, "", t.heldErrorLocked(e, now)
			}
			hold, err := s.adoptLocked(ctx, e, h, now)
			if !errors.Is(err, ErrConflict) {
				return hold, CauseAdopt, err
			}
			try++
		default:
			rule, ok := t.rules.For(n)
			if !ok {
				return Hold{}, "", ErrNoRule
			}
			if e != nil && e.delayedTo > now.Boot {
				return Hold{}, "", &DelayedError{Name: n, Remaining: e.delayedTo - now.Boot}
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
			hold, err := s.grantLocked(ctx, e, nil, rule, now, CauseAcquire)
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

// adoptableLocked returns the hold of e that the session may take up under a new token.
func (s *Session) adoptableLocked(e *node) *held {
	h, title, _ := s.spokenForLocked(e.name, e)
	if title != byNonce {
		return nil
	}
	return h
}

// adoptLocked ends h and grants its like in one step.
func (s *Session) adoptLocked(ctx context.Context, e *node, h *held, now Instant) (Hold, error) {
	rule, ok := s.table.rules.For(e.name)
	if !ok {
		rule = h.Rule
	}
	return s.grantLocked(ctx, e, h, rule, now, CauseAdopt)
}

// grantLocked gives the session a hold of e, which is not busy, in place of another if that is
// not nil. It lets go of the mutex meanwhile.
func (s *Session) grantLocked(ctx context.Context, e *node, instead *held, rule Rule, now Instant, cause Cause) (Hold, error) {
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
	hold := Hold{Owner: s.owner, Acquired: now, Renewed: now, Rule: rule}
	var next []Hold
	if instead != nil {
		next = e.without(instead)
	}
	token, err := t.commitLocked(ctx, e, append(next, hold), reason{cause: cause, by: s.owner})
	if err != nil {
		return Hold{}, err
	}
	hold.Token = token
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
