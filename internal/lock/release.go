package lock

import (
	"errors"
	"strings"
)

// end ends a hold with the cause and note of the record. If it has a directory, and is the last hold of its name, the directory goes first.
func (st *State) end(h *hold, r Record, now Instant, out *outcome) {
	r.Kind, r.Hold, r.At = Ended, h.Hold, now
	if h.Directory != (DirectoryID{}) && len(h.node.holds) == 1 && r.Cause != CauseHostGone {
		out.claim(&claim{record: r})
		return
	}
	out.records = append(out.records, r)
}

// endIfFree is end for a client: a lock with others below it does not end, and the end waits for a write.
func (st *State) endIfFree(h *hold, r Record, now Instant, out *outcome) {
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
func (st *State) endByHost(h *hold, now Instant, out *outcome) {
	st.end(h, Record{Cause: CauseHostGone, By: Owner{Account: HostAccount}}, now, out)
}

// removed decides the result of a claim whose directory was removed, or could not be removed.
func (st *State) removed(c *claim, note string, failed error, now Instant, out *outcome) {
	r := c.record
	h := c.node.byToken(r.Hold.Token)
	switch gone := errors.Is(failed, ErrDirectoryGone); {
	case gone && r.Cause == CauseRelease: // perhaps another job has worked meanwhile, so the reply is that the lock was lost
		st.endByHost(h, now, out)
		out.forgive(h.session, r.Hold.Name)
		out.refuse(&LostError{Name: r.Hold.Name, Token: r.Hold.Token, Cause: CauseHostGone, By: Owner{Account: HostAccount}, At: now})
	case gone || failed == nil:
		r.Note, r.At = strings.TrimSpace(r.Note+" "+note), now
		out.records = append(out.records, r)
	default:
		out.refuse(failed)
		out.do(func(st *State) { st.applyUnclaimed(c) })
		if h.over(now.Boot) {
			out.do(func(st *State) {
				h.retry = later(now.Boot, min(askAgain<<min(h.failures, 10), maxBackoff))
				h.failures++
				st.arm(h)
			})
		}
	}
}

// forgive forgets that a session lost a hold of the name: the client has received that error.
func (o *outcome) forgive(s *session, name Name) {
	o.do(func(*State) { delete(s.lost, name) })
}

// release decides whether a session may release a lock: now, or when its directory is removed.
func (st *State) release(s *session, name Name, now Instant, out *outcome) {
	n := st.nodes[name]
	if n != nil && n.claim != nil {
		out.busy = name
		return
	}
	h, err := st.releasable(s, name)
	if _, lost := s.lost[name]; lost {
		out.forgive(s, name)
	}
	switch {
	case err != nil:
		out.refuse(st.refreshed(err, now))
	default:
		st.endIfFree(h, Record{Cause: CauseRelease, By: s.owner}, now, out)
	}
}

// undo takes the last grant of a hold back, which the client did not receive: the hold ends as soon as it can, see [State.next].
func (st *State) undo(granted Hold, out *outcome) {
	h := st.nodes[granted.Name].byToken(granted.Token)
	if h == nil || h.Owner.Session != granted.Owner.Session {
		out.refuse(ErrStale)
		return
	}
	out.do(func(st *State) { st.applyHeard(h.Name, h.Token, false) })
}

// restore gives an adopted hold back to the session that had it, so that its job keeps the lock.
func (st *State) restore(h *hold, now Instant, out *outcome) {
	before := *h.previous
	before.Directory, before.Rule = h.Directory, h.Rule
	out.records = append(out.records, Record{Kind: Granted, Cause: CauseRestore, Hold: before, Replaces: h.Token, By: h.Owner, At: now})
}

// breakUp decides the end of a hold that an administrator takes away.
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

// hostGone decides the end of a hold whose directory a program on the host removed. While the directory is being changed, or a write
// under the hold is under way, nothing ends: the directory is looked at again later.
func (st *State) hostGone(name Name, token Token, now Instant, out *outcome) {
	n := st.nodes[name]
	if h := n.byToken(token); h != nil && n.claim == nil && n.pins == 0 {
		st.endByHost(h, now, out)
	}
}

// renew decides a new age for the hold for which the session acts.
func (st *State) renew(s *session, name Name, now Instant, out *outcome) {
	n := st.nodes[name]
	if n != nil && n.claim != nil {
		out.busy = name
		return
	}
	h, _, err := st.holdOf(s, name)
	if err != nil {
		out.refuse(st.refreshed(err, now))
		return
	}
	st.renewHold(h, s.owner, now, out)
	out.granted = &out.records[len(out.records)-1].Hold
}

func (st *State) renewHold(h *hold, by Owner, now Instant, out *outcome) {
	renewed := h.Hold
	renewed.Renewed = now
	out.records = append(out.records, Record{Kind: Changed, Cause: CauseRenew, Hold: renewed, By: by, At: now})
}

// addDirectory decides that the lock gets a directory for the files in it, if it has none.
func (st *State) addDirectory(s *session, name Name, out *outcome) {
	n := st.nodes[name]
	switch {
	case n == nil || len(n.holds) == 0 || n.holds[0].Directory != (DirectoryID{}) || n.holds[0].Automatic:
	case n.claim != nil:
		out.busy = name
	default:
		out.claim(&claim{record: Record{Hold: n.holds[0].Hold, By: s.owner}, adds: true})
	}
}
