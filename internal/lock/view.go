package lock

// View is a lock as one session sees it.
type View struct {
	Status            // without Holds if the lock is free
	Seen   []SeenHold // of each of the Holds
	// Next is the error that [Session.AcquireOrWait] would return now: nil if it would grant the lock, an error that matches ErrHeld if the session
	// can get the lock later.
	Next error
}

// SeenHold is a hold as one session sees it.
type SeenHold struct {
	Hold
	Expiry
	Own     bool  // the session acquired it
	Job     bool  // the session acquired it, or has its nonce
	Adopted Token // of the hold that it was adopted from; 0: of none
}

// View returns a lock as the session sees it, held or free, and changes nothing. It does not look at the disk. The error is ErrNoRule if no
// rule makes the name a lock and it is not held.
func (s *Session) View(name Name) (View, error) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	var v View
	if n := t.st.nodes[name]; n != nil {
		v.Status = t.st.status(n, now)
		for _, h := range n.holds {
			v.Seen = append(v.Seen, s.s.see(h, now))
		}
	}
	if len(v.Holds) == 0 && t.st.rules.find(name) == nil {
		return View{}, ErrNoRule
	}
	var out outcome
	t.st.acquire(&acquisition{session: s.s, name: name, wake: func() {}}, now, &out)
	v.Next = out.err
	if out.place != nil {
		v.Next = ErrHeld
	}
	return v, nil
}

// see returns a hold as the session sees it.
func (s *session) see(h *hold, now Instant) SeenHold {
	end, _ := h.deadline(now.Boot)
	latest, _ := h.latest()
	title := s.standingOf(h)
	seen := SeenHold{Hold: h.Hold, Expiry: h.expiry(end, latest, now), Own: title == bySession, Job: title >= byNonce}
	if h.previous != nil {
		seen.Adopted = h.previous.Token
	}
	return seen
}
