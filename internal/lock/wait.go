package lock

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Waiting is an Acquire that waits for its turn, or a Release that waits for the members of the lock to go. No
// goroutine waits: the table calls wake when there may be something to do, with its mutex held, so that wake must
// not block and must not use the table; then somebody has to call Poll soon, for the lock is kept until
// that. Poll and Withdraw are for one goroutine. Somebody has to call [Table.Expire], too, or
// the waiting does not end by time.
type Waiting struct {
	session *Session
	name    Name
	wake    func()
	began   time.Duration
	until   time.Duration
	entry   *entry // nil: it is a Release

	// What follows is guarded by the table's mutex.

	told   bool // that its time is over
	over   bool
	failed error // why it cannot go on
}

// due says when wake is to be called because the time is over.
func (w *Waiting) due() time.Duration {
	if w.told {
		return neverEnds
	}
	return w.until
}

func (w *Waiting) call(late bool) {
	w.told = w.told || late
	w.wake()
}

// AcquireOrWait is Acquire that waits in the queue for as long as the rule or SetWait says: then both the hold and
// the error are nothing, and the Waiting is not nil. The session must not acquire the same name otherwise meanwhile.
func (s *Session) AcquireOrWait(ctx context.Context, n Name, wake func()) (Hold, *Waiting, error) {
	a := attempt{wake: wake}
	hold, err := s.attempt(ctx, n, &a)
	return hold, a.waiting, err
}

// ReleaseOrWait is Release that waits for the members of the lock to go for as long as SetWait says: then the Waiting
// is not nil. again is how many releases the lock still needs, of those who took it more than once (reentrant).
func (s *Session) ReleaseOrWait(ctx context.Context, n Name, wake func()) (again int, w *Waiting, err error) {
	why := reason{cause: CauseRelease, by: s.Owner()}
	hold, again, w, err := s.release(ctx, n, why, wake)
	if err == nil && w == nil && again == 0 {
		s.table.logEnd(ctx, n, hold, why)
	}
	return again, w, err
}

// Poll does what is waited for, if it is time, and reports whether the waiting is over. The hold is the one that was
// acquired or released. The errors are those of Acquire or Release; when the time is over a
// *TimeoutError around one. One that timed out keeps its place in the queue as one that polls.
func (w *Waiting) Poll(ctx context.Context) (Hold, bool, error) {
	if w.entry == nil {
		return w.pollRelease(ctx)
	}
	hold, cause, over, err := w.pollAcquire(ctx)
	if over && err == nil {
		w.session.table.logGrant(ctx, w.name, hold, cause)
	}
	return hold, over, err
}

func (w *Waiting) pollAcquire(ctx context.Context) (Hold, Cause, bool, error) {
	t := w.session.table
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.clock.Now()
	now := at.Boot
	switch {
	case w.over:
		return Hold{}, "", true, ErrEnded
	case w.failed != nil:
		defer w.endLocked()
		return Hold{}, "", true, w.failed
	case !w.entry.turn && now < w.until:
		return Hold{}, "", false, nil
	}
	a := attempt{place: w.entry}
	hold, cause, err := w.session.acquireLocked(ctx, w.name, &a, at)
	if err != nil && err == a.inTheWay {
		if now < w.until {
			return Hold{}, "", false, nil
		}
		err = &TimeoutError{Waited: now - w.began, Err: err}
		w.pollsLocked(now)
	}
	w.endLocked()
	return hold, cause, true, err
}

// pollsLocked leaves the place in the queue to the session as one that polls, if the rule keeps places for those.
func (w *Waiting) pollsLocked(now time.Duration) {
	t := w.session.table
	i, ok := t.rules.find(w.name)
	if !ok || t.rules.ways[i].Queue == QueueOff {
		return
	}
	en := w.entry
	en.waiting, en.turn, en.last, en.gap = nil, false, now, 0
	t.passLocked(en.home)
	t.armLocked(en.home)
}

// endLocked ends the waiting, if it is not over, and passes the turn on.
func (w *Waiting) endLocked() {
	if w.over {
		return
	}
	w.over = true
	t := w.session.table
	w.session.waits = slices.DeleteFunc(w.session.waits, func(other *Waiting) bool { return other == w })
	if en := w.entry; en != nil {
		if en.waiting == w {
			t.dropLocked(en)
		}
		return
	}
	if e := t.nodes[w.name]; e != nil {
		e.want(e.queues(), slices.DeleteFunc(e.leavers(), func(other *Waiting) bool { return other == w }))
		t.armLocked(e)
		t.pruneLocked(e)
	}
}

// Withdraw ends the waiting without a result, unless it is over; the turn passes on.
func (w *Waiting) Withdraw() {
	w.session.table.mu.Lock()
	defer w.session.table.mu.Unlock()
	w.endLocked()
}

func (w *Waiting) pollRelease(ctx context.Context) (Hold, bool, error) {
	s, t := w.session, w.session.table
	t.mu.Lock()
	over, late, began := w.over, t.clock.Now().Boot >= w.until, w.began
	e := t.nodes[w.name]
	early := e != nil && !e.busy && len(e.holds) == 1 && e.below > 0
	t.mu.Unlock()
	switch {
	case over:
		return Hold{}, true, ErrEnded
	case early && !late:
		return Hold{}, false, nil
	}
	why := reason{cause: CauseRelease, by: s.Owner()}
	hold, _, _, err := s.release(ctx, w.name, why, nil)
	switch {
	case err == nil:
		t.logEnd(ctx, w.name, hold, why)
	case errors.Is(err, ErrMembers) && !late:
		return Hold{}, false, nil
	case errors.Is(err, ErrMembers):
		err = &TimeoutError{Waited: t.clock.Now().Boot - began, Err: err}
	}
	w.Withdraw()
	return hold, true, err
}

// queueUpLocked gives the session a place in the queue at which it waits.
func (s *Session) queueUpLocked(n Name, rule *Rule, c *Contention, a *attempt, now time.Duration) {
	t := s.table
	en := s.entryLocked(t.queueLocked(n, rule, c), n)
	if en == nil {
		en = &entry{name: n}
		s.ownLocked(en, s.sharesLocked(c), now)
		t.joinLocked(en, rule, c)
	} else {
		s.ownLocked(en, s.sharesLocked(c), now)
	}
	w := &Waiting{session: s, name: n, wake: a.wake, began: now, until: later(now, s.patienceLocked(c)), entry: en}
	en.waiting, en.turn = w, false
	s.waits = append(s.waits, w)
	a.waiting = w
	t.passLocked(en.home)
	t.armLocked(en.home)
}

// patienceLocked says how long the session waits for a lock.
func (s *Session) patienceLocked(c *Contention) time.Duration {
	if s.patient {
		return s.patience
	}
	return c.Wait
}

// lingerLocked has the session wait for the members of e to go, if it waits for that. nil: it does not.
func (s *Session) lingerLocked(e *node, wake func()) *Waiting {
	if wake == nil || !s.patient || s.patience == 0 {
		return nil
	}
	now := s.table.clock.Now().Boot
	w := &Waiting{session: s, name: e.name, wake: wake, began: now, until: later(now, s.patience)}
	s.waits = append(s.waits, w)
	e.want(e.queues(), append(e.leavers(), w))
	s.table.armLocked(e)
	return w
}
