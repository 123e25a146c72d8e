package lock

import (
	"errors"
	"strings"
)

// end ends a hold with the cause and note of the record. If it is the last hold of its name, its directory is removed first.
func (st *State) end(h *liveHold, r Record, now Instant, out *outcome) {
	r.Kind, r.Hold, r.At = Ended, h.Hold, now
	if h.Directory != (DirectoryID{}) && len(h.node.holds) == 1 && r.Cause != CauseHostGone {
		out.addClaim(&claim{kind: claimEnd, record: r})
		return
	}
	out.records = append(out.records, r)
}

// endIfFree is end for a client: it refuses the end of a lock with members, and waits for a write under way.
func (st *State) endIfFree(h *liveHold, r Record, now Instant, out *outcome) {
	switch n := h.node; {
	case len(n.holds) == 1 && n.below > 0:
		out.refuse(ErrMembers)
	case len(n.holds) == 1 && n.pins > 0:
		out.busy = n.name
	default:
		st.end(h, r, now, out)
	}
}

// endByHost ends a hold whose directory a program on the host removed.
func (st *State) endByHost(h *liveHold, now Instant, out *outcome) {
	st.end(h, Record{Cause: CauseHostGone, By: Owner{Account: HostAccount}}, now, out)
}

// decideRemoved decides the result of a claim whose directory was removed, or could not be removed.
func (st *State) decideRemoved(c *claim, note string, failed error, now Instant, out *outcome) {
	r := c.record
	h := c.node.byToken(r.Hold.Token)
	switch gone := errors.Is(failed, ErrDirectoryGone); {
	case gone && r.Cause == CauseRelease: // another job may have worked meanwhile, so the client gets a *LostError
		st.endByHost(h, now, out)
		out.refuse(&LostError{Name: r.Hold.Name, Token: r.Hold.Token, Cause: CauseHostGone, By: Owner{Account: HostAccount}, At: now})
	case gone || failed == nil:
		r.Note, r.At = strings.TrimSpace(r.Note+" "+note), now
		out.records = append(out.records, r)
	default:
		out.refuse(failed)
		out.do(unclaimed{c})
		if r.Cause != CauseRelease && r.Cause != CauseBreak { // State.next tries again
			out.do(endPostponed{h, later(now.Boot, min(retryAfter<<min(h.failures, 10), maxBackoff))})
		}
	}
}

// release decides whether a session may release a lock: now, or when its directory is removed.
func (st *State) release(s *sessionState, name Name, now Instant, out *outcome) {
	n := st.nodes[name]
	if n != nil && n.claim != nil {
		out.busy = name
		return
	}
	h, err := st.releasable(s, name, now)
	if err == nil {
		st.endIfFree(h, Record{Cause: CauseRelease, By: s.owner}, now, out)
		return
	}
	out.refuse(err)
}

// markUndelivered marks a hold of the session whose 257 the client did not receive. [State.next] ends it as soon as possible.
func (st *State) markUndelivered(name Name, token Token, by SessionID, out *outcome) {
	h := st.nodes[name].byToken(token)
	if h == nil || h.Owner.Session != by {
		out.refuse(ErrStale)
		return
	}
	out.do(acknowledged{h.Name, h.Token, false})
}

// revertAdoption undoes an adoption: the earlier session has its hold again, so its job keeps the lock.
func (st *State) revertAdoption(h *liveHold, now Instant, out *outcome) {
	before := *h.previous
	before.Directory, before.Rule = h.Directory, h.Rule
	out.records = append(out.records, Record{Kind: Granted, Cause: CauseRestore, Hold: before, Replaces: h.Token, By: h.Owner, At: now})
}

// breakUp decides the end of a hold that an administrator breaks.
func (st *State) breakUp(name Name, token Token, by Owner, why string, now Instant, out *outcome) {
	n := st.nodes[name]
	h := n.byToken(token)
	switch {
	case n != nil && n.claim != nil:
		out.busy = name
	case n == nil || len(n.holds) == 0:
		out.refuse(ErrNotHeld)
	case h == nil:
		out.refuse(ErrStale)
	default:
		st.endIfFree(h, Record{Cause: CauseBreak, By: by, Note: why}, now, out)
	}
}

// hostGone decides the end of a hold whose directory a program on the host removed, and of the holds that share this directory. While a
// change of the directory or a write under the hold is under way, it does nothing; the next check repeats it.
func (st *State) hostGone(name Name, token Token, now Instant, out *outcome) {
	n := st.nodes[name]
	h := n.byToken(token)
	if h == nil || n.claim != nil || n.pins > 0 {
		return
	}
	for _, other := range n.holds {
		if other.Directory == h.Directory {
			st.endByHost(other, now, out)
		}
	}
}

// renew decides a new age for the hold that the session acts for.
func (st *State) renew(s *sessionState, name Name, now Instant, out *outcome) {
	n := st.nodes[name]
	if n != nil && n.claim != nil {
		out.busy = name
		return
	}
	h, _, err := st.holdOf(s, name, now)
	if err != nil {
		out.refuse(err)
		return
	}
	st.renewHold(h, s.owner, now, out)
	out.granted = &out.records[len(out.records)-1].Hold
}

func (st *State) renewHold(h *liveHold, by Owner, now Instant, out *outcome) {
	renewed := h.Hold
	renewed.Renewed = now
	out.records = append(out.records, Record{Kind: Changed, Cause: CauseRenew, Hold: renewed, By: by, At: now})
}

// restoredDirectory decides that the loaded holds of a name have the directory. A crash may have recorded it in some of them only.
func (st *State) restoredDirectory(name Name, id DirectoryID, now Instant, out *outcome) {
	for _, h := range st.nodes[name].holds {
		if h.Directory != id {
			out.setDirectory(h, id, h.Owner, now)
		}
	}
}

// setDirectory records the directory of a hold.
func (o *outcome) setDirectory(h *liveHold, id DirectoryID, by Owner, now Instant) {
	changed := h.Hold
	changed.Directory = id
	o.records = append(o.records, Record{Kind: Changed, Cause: CauseDirectory, Hold: changed, By: by, At: now})
}

// addDirectory claims a directory for the files in a held lock that has none.
func (st *State) addDirectory(s *sessionState, name Name, out *outcome) {
	n := st.nodes[name]
	switch {
	case n == nil || len(n.holds) == 0 || n.holds[0].Directory != (DirectoryID{}) || n.holds[0].Job:
	case n.claim != nil:
		out.busy = name
	default:
		out.expects = len(n.holds)
		out.addClaim(&claim{record: Record{Hold: n.holds[0].Hold, By: s.owner}, kind: claimFiles, expects: out.expects})
	}
}
