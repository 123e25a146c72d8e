package lock

import (
	"net/netip"
	"slices"
)

// actReason is the reason why a session acts for a hold; a larger one is better.
type actReason uint8

const (
	stranger  actReason = iota
	byAccount           // the acquiring session has ended; the rule lets its account (ReleaseUser) or account and address (ReleaseAddress) act
	byJobKey            // the same account and job key on another connection
	bySession           // it acquired it
)

// reasonFor returns the reason why the session acts for a hold. It acquired the hold; or it has the same account and job key; or the acquiring
// session has ended, and the account is the same, with release = address also the address. The last reason does not count for a session that
// lost a hold of the name, or has another job key. The session must be open. holdOf returns bySession itself, without a search.
func (s *sessionState) reasonFor(h *liveHold) actReason {
	o := h.Owner
	switch {
	case h.session == s:
		return bySession
	case s.adoptsJob(h):
		return byJobKey
	case s.job || h.Job:
		return stranger
	case o.Account != s.owner.Account:
		return stranger
	case s.sameJobKey(h):
		return byJobKey
	case !h.session.closed, s.hasLost(h.Name), s.otherJobKey(h):
		return stranger
	case h.Rule.Release == ReleaseAddress && s.sameClient(h.session), h.Rule.Release == ReleaseUser:
		return byAccount
	}
	return stranger
}

// sameJobKey reports whether the hold, of the session's account, has the session's job key.
func (s *sessionState) sameJobKey(h *liveHold) bool {
	return h.Owner.JobKey != "" && h.Owner.JobKey == s.owner.JobKey
}

// otherJobKey reports whether the session and the hold have different job keys, so they belong to different jobs.
func (s *sessionState) otherJobKey(h *liveHold) bool {
	return s.owner.JobKey != "" && h.Owner.JobKey != "" && s.owner.JobKey != h.Owner.JobKey
}

// sameClient reports whether two sessions have one account and address.
func (s *sessionState) sameClient(t *sessionState) bool {
	return s.owner.Account == t.owner.Account && s.network == t.network
}

// sameProgram reports whether the session and the open session of the hold seem to be connections of one program, so that it may release
// the hold, see [ReleaseAddress].
func (st *State) sameProgram(s *sessionState, h *liveHold) bool {
	switch {
	case h.Rule.Release != ReleaseAddress || h.contested || !s.sameClient(h.session) || s.otherJobKey(h):
		return false
	case s.worked == 0 || s.worked < h.Acquired.Boot:
		return false
	case slices.ContainsFunc(h.node.queue, func(w *waiter) bool { return s.sameClient(w.session) }):
		return false
	}
	for other := range st.losers {
		if s.sameClient(other) && other.hasLost(h.Name) {
			return false
		}
	}
	return true
}

// NetworkOf returns one text for all addresses that count as the address of one client. An IPv6 machine changes the last 64 bits at will,
// so only the first 64 count, except for link-local addresses, whose first 64 bits are the same in a whole network.
func NetworkOf(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if a = a.Unmap(); a.Is4() || a.IsLinkLocalUnicast() {
		return a.String()
	}
	return netip.PrefixFrom(a.WithZone(""), 64).Masked().String()
}

func (s *sessionState) hasLost(name Name) bool {
	_, ok := s.lost[name]
	return ok || s.lostMany
}

// lostError returns the error about the hold of the name that the session lost, or nil.
func (s *sessionState) lostError(name Name, held bool, now Instant) *LostError {
	lost, ok := s.lost[name]
	if !ok {
		return nil
	}
	lost.Held, lost.Ago = held, max(0, now.Boot-lost.At.Boot)
	return &lost
}

// holdOf returns the hold of the name that the session acts for, and the reason. Of several holds it returns the session's own, otherwise
// the one with the best reason, then the oldest. The errors are ErrEnded, a *LostError, ErrNotHeld and a *NotYoursError.
func (st *State) holdOf(s *sessionState, name Name, now Instant) (best *liveHold, reason actReason, err error) {
	if s.closed {
		return nil, stranger, ErrEnded
	}
	if own := s.holds[name]; own != nil { // saves a search among many holds
		return own, bySession, nil
	}
	var holds []*liveHold
	if n := st.nodes[name]; n != nil {
		holds = n.holds
	}
	for _, h := range holds {
		if r := s.reasonFor(h); r > reason {
			best, reason = h, r
		}
	}
	if best != nil {
		return best, reason, nil
	}
	if lost := s.lostError(name, len(holds) > 0, now); lost != nil {
		return nil, stranger, lost
	}
	if len(holds) == 0 {
		return nil, stranger, ErrNotHeld
	}
	h := holds[0]
	refused := &NotYoursError{Name: name, Holder: h.Owner, Held: max(0, now.Boot-h.Acquired.Boot)}
	if h.Owner.Account == s.owner.Account {
		refused.OtherJobKey = s.otherJobKey(h)
		refused.Elsewhere = !refused.OtherJobKey && h.Rule.Release == ReleaseAddress && h.session.network != s.network
	}
	return nil, stranger, refused
}

// releasable returns the hold of the name that the session may release. The errors are those of holdOf.
func (st *State) releasable(s *sessionState, name Name, now Instant) (*liveHold, error) {
	h, _, err := st.holdOf(s, name, now)
	n := st.nodes[name]
	if err == nil || n == nil || s.closed || s.hasLost(name) {
		return h, err
	}
	for _, h := range n.holds {
		if h.Job {
			break
		}
		if h.Rule.Release == ReleaseAnyone || st.sameProgram(s, h) {
			return h, nil
		}
	}
	return nil, err
}
