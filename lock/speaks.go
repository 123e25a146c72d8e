package lock

// standing is how a session stands to a hold; a larger one is the better title.
type standing uint8

const (
	stranger  standing = iota
	byAccount          // the acquiring session of the same account has ended
	byNonce            // the same job on another connection
	bySession          // it acquired it
)

// standingLocked is the one place that says whether a session speaks for a hold: it acquired it;
// or the account and the nonce are the same; or, with release = user, the account is the
// same, the acquiring session has ended, and this session never lost a hold of the name.
func (s *Session) standingLocked(h *held) standing {
	o := h.Owner
	switch {
	case s.closed || h.Host():
		return stranger
	case h.session == s:
		return bySession
	case o.Account != s.owner.Account:
		return stranger
	case o.Nonce != "" && o.Nonce == s.owner.Nonce:
		return byNonce
	case h.Rule.Release == ReleaseUser && h.session.closed && !s.hasLostLocked(h.node.name):
		return byAccount
	}
	return stranger
}

func (s *Session) hasLostLocked(n Name) bool {
	_, ok := s.lost[n]
	return ok || s.lostMany
}

// spokenForLocked returns the hold of e, which may be nil, that the session speaks for; of several
// the one with the best title, then the oldest. Without one it says why.
func (s *Session) spokenForLocked(n Name, e *node) (*held, standing, error) {
	if s.closed {
		return nil, stranger, ErrEnded
	}
	var best *held
	title := stranger
	if e != nil {
		for _, h := range e.holds {
			if is := s.standingLocked(h); is > title {
				best, title = h, is
			}
		}
	}
	if best == nil {
		return nil, stranger, s.refusalLocked(n, e)
	}
	return best, title, nil
}

func (s *Session) refusalLocked(n Name, e *node) error {
	isHeld := e != nil && len(e.holds) > 0
	if lost, ok := s.lost[n]; ok {
		lost.Held = isHeld
		lost.Ago = s.table.clock.Now().Boot - lost.At.Boot
		return &lost
	}
	if !isHeld {
		return ErrNotHeld
	}
	h := e.holds[0]
	return &NotYoursError{Name: n, Holder: h.Owner, Held: s.table.clock.Now().Boot - h.Acquired.Boot}
}

// SpeaksFor returns the hold of the name that the session speaks for: one that it acquired; or
// one of its account with its nonce; or, with release = user, one of its account whose session has
// ended, if this session never lost a hold of that name. The errors are a *LostError, a
// *NotYoursError, ErrNotHeld and ErrEnded.
//
// The answer is true of one moment. What must not happen after the hold has
// ended belongs into [Table.Publish] with its token.
func (s *Session) SpeaksFor(n Name) (Hold, error) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	h, _, err := s.spokenForLocked(n, t.nodes[n])
	if err != nil {
		return Hold{}, err
	}
	return h.Hold, nil
}
