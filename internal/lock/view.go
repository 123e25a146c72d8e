package lock

import (
	"slices"
	"time"
)

// View is a lock as one session sees it.
type View struct {
	Status            // without Holds if the lock is free
	Seen   []SeenHold // of each of the Holds
	// Next is the error that [Session.AcquireOrWait] would return now: nil for a grant, an error that matches ErrHeld if the session can get
	// the lock later, or if AcquireOrWait would first wait: for the end of a change, such as that of its directory, or for room in the log.
	Next error
	// Place is the place in the queue that the session still has although its wait has ended, and Kept how long it has it; zero: none. It
	// counts only the sessions that wait now.
	Place QueuePosition
	Kept  time.Duration
}

// SeenHold is a hold as one session sees it.
type SeenHold struct {
	Hold
	Expiry
	Own        bool  // the session acquired it
	SameJobKey bool  // the session acquired it, or has its job key
	Adopted    Token // token of the adopted hold; 0: none
}

// View returns a lock as the session sees it, held or free. It changes nothing and does not read the disk. The error is ErrNoRule for a
// free name that no rule makes a lock.
func (s *Session) View(name Name) (View, error) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	var v View
	n := t.st.nodes[name]
	if n != nil {
		v.Status = t.st.statusOf(n, now)
		for _, h := range n.holds {
			v.Seen = append(v.Seen, s.s.viewHold(h, now))
		}
		if place := n.placeOf(s.s); place != nil {
			queue := t.st.queueOf(name)
			before, _ := slices.BinarySearchFunc(queue, place, byTicket)
			v.Place, v.Kept = QueuePosition{At: before + 1, Of: len(queue) + 1}, max(place.timer.at-now.Boot, 0)
		}
	}
	if len(v.Holds) == 0 && t.st.rules.find(name) == nil {
		return View{}, ErrNoRule
	}
	v.Next = t.nextLocked(&acquisition{session: s.s, name: name, wake: func() {}}, now)
	return v, nil
}

// nextLocked returns View.Next.
func (t *Table) nextLocked(a *acquisition, now Instant) error {
	if err := t.checkValid(); err != nil {
		return err
	}
	var out outcome
	_, room := t.checkLocked(func(now Instant, out *outcome) { t.st.acquire(a, now, out) }, now, &out)
	if out.waiter != nil || out.busy != "" || !room {
		return ErrHeld
	}
	return out.err
}

// viewHold returns a hold as the session sees it.
func (s *sessionState) viewHold(h *liveHold, now Instant) SeenHold {
	end, _ := h.deadline(now.Boot)
	latest, _ := h.hardDeadline()
	reason := s.reasonFor(h)
	seen := SeenHold{Hold: h.Hold, Expiry: h.expiryAt(end, latest, now), Own: reason == bySession, SameJobKey: reason >= byJobKey}
	if h.previous != nil {
		seen.Adopted = h.previous.Token
	}
	return seen
}
