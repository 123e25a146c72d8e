package lock

import (
	"context"
	"slices"
	"time"
)

// Waiting is an AcquireOrWait that waits for its turn, or a ReleaseOrWait that waits for the members of the lock to end. No
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
	members bool // it releases, and waits for members

	// What follows is guarded by the table's mutex.

	place  *place // of one that acquires; nil when it is over
	alarm  alarm
	failed error // why it cannot go on
	over   bool
}

// newWaitingLocked has the session wait for something of a name for so long.
func (s *Session) newWaitingLocked(n Name, wake func(), now, patience time.Duration) *Waiting {
	w := &Waiting{session: s, name: n, wake: wake, began: now, until: later(now, patience)}
	w.alarm.waiting = w
	if s.waits == nil {
		s.waits = make(map[*Waiting]struct{})
	}
	s.waits[w] = struct{}{}
	s.table.wanting.set(&w.alarm, w.until)
	s.table.hurryLocked()
	return w
}

// waitLocked gives the session a place in the queue at which it waits. It takes over the place at which it polled.
func (a *attempt) waitLocked(rule *compiledRule, now time.Duration) {
	s, t := a.session, a.table
	w := s.newWaitingLocked(a.name, a.wake, now, s.patienceLocked(rule))
	a.waiting = w
	if polled := s.pollerLocked(a.name); polled != nil && polled.place != nil {
		w.place, polled.place = polled.place, nil
		w.place.poller = nil
		t.polls.forgetLocked(t, polled)
	} else {
		w.place = &place{}
		t.joinLocked(w.place, a.name)
	}
	p := w.place
	p.waiting, p.session, p.owner, p.shared = w, s, s.owner, s.sharesLocked(rule)
	t.offerLocked(p.node)
}

// patienceLocked says how long the session waits for a lock.
func (s *Session) patienceLocked(rule *compiledRule) time.Duration {
	if s.patient {
		return s.patience
	}
	return rule.contention.Wait
}

// Poll does what is waited for, if it is time, and reports whether the waiting is over. The hold is the one that was
// acquired or released. The errors are those of AcquireOrWait or ReleaseOrWait; when the time is over a
// *TimeoutError around one. Under [QueueFair] one that timed out keeps its place in the queue as one that polls. While
// nothing may be changed the session goes on waiting, in its place, and is woken each second.
func (w *Waiting) Poll(ctx context.Context) (hold Hold, over bool, err error) {
	if w.members {
		hold, over, err = w.pollRelease(ctx)
	} else {
		hold, over, err = w.pollAcquire(ctx)
	}
	if isSuspended(err) {
		over, err = w.putOff(err)
	}
	if !over {
		return Hold{}, false, nil
	}
	w.Withdraw()
	return hold, true, err
}

// rearmLocked has it called when its time is over, and not before any more.
func (w *Waiting) rearmLocked() {
	if !w.over {
		w.session.table.wanting.set(&w.alarm, w.until)
	}
}

// putOff has it tried again a moment later, if the time is not over.
func (w *Waiting) putOff(why error) (over bool, err error) {
	t := w.session.table
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now().Boot
	switch {
	case w.over:
		return true, ErrEnded
	case now >= w.until:
		return true, &TimeoutError{Waited: now - w.began, Err: why}
	}
	t.wanting.set(&w.alarm, min(w.until, later(now, askAgain)))
	t.hurryLocked()
	return false, nil
}

// pollAcquire is Poll of one that acquires.
func (w *Waiting) pollAcquire(ctx context.Context) (Hold, bool, error) {
	t := w.session.table
	a := attempt{session: w.session, table: t, name: w.name}
	waits := false
	err := t.change(ctx, w.name, func(now Instant) (*change, <-chan struct{}, error) {
		waits = false
		late := now.Boot >= w.until
		w.rearmLocked()
		switch {
		case w.over:
			return nil, nil, ErrEnded
		case w.failed != nil:
			return nil, nil, w.failed
		case !w.place.turn && !late:
			waits = true
			return nil, nil, nil
		}
		a.place = w.place
		c, wait, err := a.beginLocked(now)
		if _, inTheWay := err.(placed); !inTheWay {
			return c, wait, err
		}
		if waits = !late; waits {
			return nil, nil, nil
		}
		err.(placed).setPlace(w.place.where())
		w.pollsLocked(now.Boot)
		return nil, nil, &TimeoutError{Waited: now.Boot - w.began, Err: err}
	})
	if waits {
		return Hold{}, false, nil
	}
	if err != nil {
		return Hold{}, true, err
	}
	return a.hold, true, nil
}

// pollsLocked leaves the place in the queue to the session as one that polls, if the rule keeps places for those.
func (w *Waiting) pollsLocked(now time.Duration) {
	t := w.session.table
	rule := t.rules.find(w.name)
	if rule == nil || !rule.contention.keepsPlaces() {
		return
	}
	t.polls.forgetOwnLocked(t, w.session, w.name) // it may have polled beside; that place's turn comes to this one while it waits
	p := w.place
	if p.turn {
		t.turnLocked(p, false, now)
	}
	w.place, p.waiting = nil, nil
	t.polls.keepLocked(t, w.session, p, w.name, rule, now, now-w.began)
	t.offerLocked(p.node)
}

// endLocked ends the waiting, if it is not over, and passes the turn on.
func (w *Waiting) endLocked() {
	if w.over {
		return
	}
	w.over = true
	t := w.session.table
	delete(w.session.waits, w)
	t.wanting.remove(&w.alarm)
	if p := w.place; p != nil {
		w.place = nil
		t.removeLocked(p)
		return
	}
	if e := t.nodes[w.name]; e != nil {
		e.leavers = slices.DeleteFunc(e.leavers, func(other *Waiting) bool { return other == w })
		t.pruneLocked(e)
	}
}

// Withdraw ends the waiting without a result, unless it is over; the turn passes on.
func (w *Waiting) Withdraw() {
	w.session.table.mu.Lock()
	defer w.session.table.mu.Unlock()
	w.endLocked()
}
