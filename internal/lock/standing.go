package lock

import (
	"net/netip"
	"slices"
)

// standing is the reason why a session acts for a hold; a larger one is better.
type standing uint8

const (
	stranger  standing = iota
	byAccount          // the acquiring session of the same account has ended, and the rule accepts that, or that from the same address
	byJob              // of an automatic rule: the same job
	byNonce            // the same job on another connection
	bySession          // it acquired it
)

// standingOf is the one place that decides whether a session acts for a hold: it acquired it;
// or account and nonce are the same; or the acquiring session has ended, this session never lost
// a hold of the name, and the account is the same, with release = address also the address.
func (s *session) standingOf(h *hold) standing {
	o := h.Owner
	switch {
	case s.closed:
		return stranger
	case h.session == s && !h.Automatic:
		return bySession
	case h.view != nil && (h.view.job == s.client || h.view.job == s.own):
		return byJob
	case h.Automatic:
		return stranger
	case o.Account != s.owner.Account:
		return stranger
	case s.sameNonce(h):
		return byNonce
	case !h.session.closed:
		return stranger
	case h.Rule.Release == ReleaseAddress && s.sameClient(h), h.Rule.Release == ReleaseUser && !s.hasLost(h.Name):
		return byAccount
	}
	return stranger
}

// sameNonce reports whether a hold of the session's account belongs to the same job by its nonce.
func (s *session) sameNonce(h *hold) bool {
	return h.Owner.Nonce != "" && h.Owner.Nonce == s.owner.Nonce
}

// sameClient reports whether a hold of the session's account is from its address, and the session never lost one of the name.
func (s *session) sameClient(h *hold) bool {
	return sameAddress(h.Owner.Address, s.owner.Address) && !s.hasLost(h.Name)
}

// sameProgram reports whether the session may release a hold whose session is open because both are connections of one
// program, see [ReleaseAddress].
func (st *State) sameProgram(s *session, h *hold) bool {
	switch {
	case h.Rule.Release != ReleaseAddress || h.rival || !s.owner.sameClient(h.Owner):
		return false
	case s.worked == 0 || s.worked < h.Acquired.Boot:
		return false
	case slices.ContainsFunc(h.node.queue, func(p *place) bool { return s.owner.sameClient(p.owner) }):
		return false
	}
	for _, other := range st.sessions {
		if s.owner.sameClient(other.owner) && other.hasLost(h.Name) {
			return false
		}
	}
	return true
}

// sameClient reports whether two owners have one account and address.
func (o Owner) sameClient(p Owner) bool {
	return o.Account == p.Account && sameAddress(o.Address, p.Address)
}

// sameAddress reports whether two addresses count as one client's.
func sameAddress(a, b string) bool { return a == b || networkOf(a) == networkOf(b) }

// networkOf returns one text for all addresses that count as one client's. For IPv6 the first 64 bits count, since a machine
// changes the others at will, but not for link-local addresses, which have these bits in common on a whole network.
func networkOf(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if a = a.Unmap(); a.Is4() || a.IsLinkLocalUnicast() {
		return a.String()
	}
	return netip.PrefixFrom(a.WithZone(""), 64).Masked().String()
}

func (s *session) hasLost(name Name) bool {
	_, ok := s.lost[name]
	return ok || s.lostMany
}

// holdOf returns the hold of the name for which the session acts, and its title, or why there is none. Of several holds it is the
// session's own, else the one with the best title, then the oldest.
func (st *State) holdOf(s *session, name Name) (best *hold, title standing, err error) {
	if s.closed {
		return nil, stranger, ErrEnded
	}
	if own := s.holds[name]; own != nil && !own.Automatic { // without a search among many
		return own, bySession, nil
	}
	var holds []*hold
	if n := st.nodes[name]; n != nil {
		holds = n.holds
	}
	for _, h := range holds {
		if is := s.standingOf(h); is > title {
			best, title = h, is
		}
	}
	if best != nil {
		return best, title, nil
	}
	if lost, ok := s.lost[name]; ok {
		lost.Held = len(holds) > 0
		return nil, stranger, &lost
	}
	if len(holds) == 0 {
		return nil, stranger, ErrNotHeld
	}
	h := holds[0]
	elsewhere := h.Rule.Release == ReleaseAddress && h.Owner.Account == s.owner.Account && !sameAddress(h.Owner.Address, s.owner.Address)
	return nil, stranger, &NotYoursError{Name: name, Holder: h.Owner, Since: h.Acquired.Boot, Elsewhere: elsewhere}
}

// releasable returns the hold of the name that the session may release, or why there is none.
func (st *State) releasable(s *session, name Name) (*hold, error) {
	h, _, err := st.holdOf(s, name)
	n := st.nodes[name]
	if err == nil && h.Automatic && !h.sent {
		return nil, ErrAutomatic
	}
	if err == nil || n == nil || s.closed || s.hasLost(name) {
		return h, err
	}
	for _, h := range n.holds {
		if h.Automatic {
			break
		}
		if h.Rule.Release == ReleaseAnyone || st.sameProgram(s, h) {
			return h, nil
		}
	}
	return nil, err
}

// refreshed sets the durations of an error to those of now.
func (st *State) refreshed(err error, now Instant) error {
	switch e := err.(type) {
	case *LostError:
		e.Ago = max(0, now.Boot-e.At.Boot)
	case *NotYoursError:
		e.Held = max(0, now.Boot-e.Since)
	case *ProtectedError:
		st.refreshed(e.Why, now)
	}
	return err
}
