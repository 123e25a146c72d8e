package lock

import "net/netip"

// standing is how a session stands to a hold; a larger one is the better title.
type standing uint8

const (
	stranger  standing = iota
	byAccount          // the acquiring session of the same account has ended, and the rule takes that, or that from the same address
	byNonce            // the same job on another connection
	bySession          // it acquired it
)

// standingLocked is the one place that says whether a session speaks for a hold: it acquired it;
// or the account and the nonce are the same; or the acquiring session has ended, this session never lost
// a hold of the name, and the account is the same, with release = address also the address.
func (s *Session) standingLocked(h *held) standing {
	o := h.Owner
	switch {
	case s.closed || h.Host():
		return stranger
	case h.session == s:
		return bySession
	case o.Account != s.owner.Account:
		return stranger
	case s.sameNonce(h):
		return byNonce
	case !h.session.closed:
		return stranger
	case h.Rule.Release == ReleaseAddress && s.sameClientLocked(h), h.Rule.Release == ReleaseUser && !s.hasLostLocked(h.node.name):
		return byAccount
	}
	return stranger
}

// sameNonce reports whether a hold of the session's account is of the same job by its nonce.
func (s *Session) sameNonce(h *held) bool {
	return h.Owner.Nonce != "" && h.Owner.Nonce == s.owner.Nonce
}

// sameClientLocked reports whether a hold of the session's account is from its address, and the session never lost one of the name.
func (s *Session) sameClientLocked(h *held) bool {
	return sameAddress(h.Owner.Address, s.owner.Address) && !s.hasLostLocked(h.node.name)
}

// sameClientReleasesLocked reports whether the session may release a hold whose session lives because both are connections of one
// program, as [ReleaseAddress] has it.
func (s *Session) sameClientReleasesLocked(h *held) bool {
	switch {
	case h.Rule.Release != ReleaseAddress || h.Host() || h.rival || !s.owner.sameClient(h.Owner):
		return false
	case s.worked == 0 || s.worked < h.Acquired.Boot:
		return false
	case h.node.queue != nil && h.node.queue.has(s.owner):
		return false
	}
	for _, other := range s.table.sessions {
		if s.owner.sameClient(other.owner) && other.hasLostLocked(h.node.name) {
			return false
		}
	}
	return true
}

// sameClient reports whether two owners have one account and address.
func (o Owner) sameClient(p Owner) bool {
	return o.Account == p.Account && sameAddress(o.Address, p.Address)
}

// noteRivalLocked notes in the holds of e, which may be nil, that the session was refused the lock.
func (s *Session) noteRivalLocked(e *node) {
	if e == nil {
		return
	}
	for _, h := range e.holds {
		h.rival = h.rival || h.session != s && s.owner.sameClient(h.Owner)
	}
}

// sameAddress reports whether two addresses count as one client's: of IPv6 those that share the first 64 bits, since a machine
// takes new ones below that whenever it likes; not so link-local ones, where all machines of a network share these.
func sameAddress(a, b string) bool {
	if a == b {
		return true
	}
	x, err := netip.ParseAddr(a)
	if err != nil {
		return false
	}
	y, err := netip.ParseAddr(b)
	if err != nil {
		return false
	}
	x, y = x.Unmap(), y.Unmap()
	if x.Is4() || y.Is4() || x.IsLinkLocalUnicast() {
		return x == y
	}
	net, err := x.WithZone("").Prefix(64)
	return err == nil && net.Contains(y.WithZone(""))
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
	elsewhere := h.Rule.Release == ReleaseAddress && !h.Host() && h.Owner.Account == s.owner.Account && !sameAddress(h.Owner.Address, s.owner.Address)
	return &NotYoursError{Name: n, Holder: h.Owner, Held: s.table.clock.Now().Boot - h.Acquired.Boot, Elsewhere: elsewhere}
}

// SpeaksFor returns the hold of the name that the session speaks for: one that it acquired; or
// one of its account with its nonce; or, with release = address, one of its account from the same address whose
// session has ended, with release = user from any address, if this session never lost a hold of that name. The
// errors are a *LostError, a *NotYoursError, ErrNotHeld and ErrEnded.
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
