package lock

import (
	"context"
	"errors"
	"time"
)

// ReleaseOrWait gives back the hold of the name that the session speaks for, of several its own, else the oldest; with
// release = address also one of another connection of its client, see [ReleaseAddress]; with release = anyone any hold, but not at the first try of a session that lost one of the name: that is told so. It
// waits for publications under way. Once it is over the session has forgotten that it lost a hold of the name.
//
// again is how many releases the lock still needs, of a session that took it more than once (reentrant). A lock with members
// does not end before them: if wake is not nil, the session waits for them for as long as SetWait says, and the Waiting is not nil.
//
// The errors are a *LostError (matches ErrNotHeld or ErrNotYours), a *NotYoursError, ErrNotHeld,
// ErrMembers if there are locks below it, ErrEnded, and what the store says: ErrNotEmpty if there
// is something in its directory. After ErrUncertain the lock may stand until its age is over.
func (s *Session) ReleaseOrWait(ctx context.Context, n Name, wake func()) (again int, w *Waiting, err error) {
	r := giveBack{session: s, name: n, wake: wake}
	err = r.run(ctx)
	return r.again, r.waiting, err
}

// giveBack is one try to release a lock.
type giveBack struct {
	session *Session
	name    Name
	wake    func() // nil: it does not wait for members

	// What comes of it, without an error: a hold that ended, or a Waiting, or releases that are still needed.

	hold    Hold
	waiting *Waiting
	again   int
}

func (r *giveBack) run(ctx context.Context) error {
	return r.session.table.change(ctx, r.name, r.beginLocked)
}

// beginLocked is the first step of a release.
func (r *giveBack) beginLocked(now Instant) (*change, <-chan struct{}, error) {
	s := r.session
	e := s.table.nodes[r.name]
	if e != nil && e.doing != idle {
		return nil, e.wait(), nil
	}
	h, err := s.releasableLocked(r.name, e)
	if err != nil {
		delete(s.lost, r.name)
		return nil, nil, err
	}
	r.hold = h.Hold
	if h.session == s && h.again > 0 {
		h.again--
		r.again = h.again + 1
		return nil, nil, nil
	}
	if len(e.holds) == 1 && e.below > 0 {
		if r.wake == nil || s.patience == 0 {
			return nil, nil, ErrMembers
		}
		r.waiting = s.waitForMembersLocked(e, r.wake, now.Boot)
		return nil, nil, nil
	}
	c := e.endOf(h, reason{cause: CauseRelease, by: s.owner})
	c.done = func(Token) { delete(s.lost, r.name) }
	return c, nil, nil
}

func (s *Session) releasableLocked(n Name, e *node) (*held, error) {
	h, _, err := s.spokenForLocked(n, e)
	if err == nil || e == nil || s.closed || s.hasLostLocked(n) {
		return h, err
	}
	for _, h := range e.holds {
		if h.Rule.Release == ReleaseAnyone || s.sameClientReleasesLocked(h) {
			return h, nil
		}
	}
	return nil, err
}

// Undo ends a hold that the session acquired but whose grant could not be delivered to
// the client, and no other one; of one that it took more than once (reentrant) it takes back the last time. It works on a session that was closed, too. The errors are ErrStale if
// the token does not stand or is not the session's, ErrMembers, and what the store says. While nothing may be changed it is no
// error: the hold ends as soon as it can, by Expire.
func (s *Session) Undo(ctx context.Context, n Name, token Token) error {
	err := s.table.endToken(ctx, n, token, reason{cause: CauseUndeliver, by: s.Owner()}, s)
	if isSuspended(err) {
		return s.undoLater(n, token)
	}
	return err
}

// undoLater has Expire end a hold.
func (s *Session) undoLater(n Name, token Token) error {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.nodes[n]
	if e == nil {
		return ErrStale
	}
	h := e.byToken(token)
	switch {
	case h == nil || h.Owner.Session != s.id:
		return ErrStale
	case h.again > 0:
		h.again--
	default:
		h.undelivered = t.clock.Now().Boot
		t.armLocked(e)
	}
	return nil
}

// Break takes the lock away from the holder with the token, and has the reason recorded. Nothing else ends: whoever
// breaks a lock has looked at it before, and it may be another one's by now. The errors are ErrNotHeld, ErrStale,
// ErrMembers, and what the store says.
func (t *Table) Break(ctx context.Context, n Name, token Token, by Owner, why string) error {
	return t.endToken(ctx, n, token, reason{cause: CauseBreak, by: by, note: why}, nil)
}

// endToken ends one hold; of nobody else than s, if that is not nil.
func (t *Table) endToken(ctx context.Context, n Name, token Token, why reason, s *Session) error {
	return t.change(ctx, n, func(Instant) (*change, <-chan struct{}, error) {
		e := t.nodes[n]
		switch {
		case e != nil && e.doing != idle:
			return nil, e.wait(), nil
		case s == nil && (e == nil || len(e.holds) == 0):
			return nil, nil, ErrNotHeld
		case e == nil:
			return nil, nil, ErrStale
		}
		h := e.byToken(token)
		if h == nil || s != nil && h.Owner.Session != s.id { // it may have been granted after the session was closed
			return nil, nil, ErrStale
		}
		if s != nil && h.again > 0 {
			h.again--
			return nil, nil, nil
		}
		if len(e.holds) == 1 && e.below > 0 {
			return nil, nil, ErrMembers
		}
		return e.endOf(h, why), nil, nil
	})
}

// waitForMembersLocked has the session wait for the members of e to end.
func (s *Session) waitForMembersLocked(e *node, wake func(), now time.Duration) *Waiting {
	w := s.newWaitingLocked(e.name, wake, now, s.patience)
	w.members = true
	e.leavers = append(e.leavers, w)
	return w
}

// pollRelease is Poll of one that releases.
func (w *Waiting) pollRelease(ctx context.Context) (Hold, bool, error) {
	t := w.session.table
	ready, late, err := w.look()
	switch {
	case err != nil:
		return Hold{}, true, err
	case !ready && !late:
		return Hold{}, false, nil
	}
	r := giveBack{session: w.session, name: w.name}
	err = r.run(ctx)
	if errors.Is(err, ErrMembers) {
		if !late {
			return Hold{}, false, nil
		}
		err = &TimeoutError{Waited: t.clock.Now().Boot - w.began, Err: err}
	}
	return r.hold, true, err
}

// look reports whether a release that waits may be tried, and whether its time is over.
func (w *Waiting) look() (ready, late bool, err error) {
	t := w.session.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.over {
		return false, false, ErrEnded
	}
	e := t.nodes[w.name]
	hasMembers := e != nil && e.doing == idle && len(e.holds) == 1 && e.below > 0
	w.rearmLocked()
	return !hasMembers, t.clock.Now().Boot >= w.until, nil
}
