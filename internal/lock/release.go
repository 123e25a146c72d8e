package lock

import "errors"

// end ends a hold. If it has a directory, and is the last hold of its name, the directory goes first.
func (st *State) end(h *hold, why *ending, now Instant, out *outcome) {
	if h.Directory != (DirectoryID{}) && len(h.node.holds) == 1 && why.cause != CauseHostGone {
		out.claim(&claim{hold: h.Hold, cause: why.cause, by: why.by, note: why.note, limit: why.limit, late: why.late})
		return
	}
	out.records = append(out.records, endRecord(h.Hold, why, now))
}

func endRecord(h Hold, why *ending, now Instant) Record {
	return Record{Kind: Ended, Cause: why.cause, Hold: h, By: why.by, At: now, Note: why.note, Limit: why.limit, Late: why.late}
}

// removed decides the result of a claim whose directory was removed, or could not be removed.
func (st *State) removed(c *claim, note string, failed error, now Instant, out *outcome) {
	if errors.Is(failed, ErrDirectoryGone) {
		if failed = nil; c.cause == CauseRelease {
			st.removedByHost(c, now, out)
			return
		}
	}
	if failed == nil {
		if c.note != "" && note != "" {
			note = " " + note
		}
		out.records = append(out.records, endRecord(c.hold, &ending{c.cause, c.by, c.note + note, c.limit, c.late}, now))
		return
	}
	out.refuse(failed)
	out.records = append(out.records, Record{Kind: unclaimed, volatile: volatile{claim: c}})
	if h := c.node.byToken(c.hold.Token); h != nil && h.over(now.Boot) {
		until := later(now.Boot, min(askAgain<<min(h.failures, 10), maxBackoff))
		out.mark(Record{volatile: volatile{mark: markRetry, holds: []*hold{h}, until: until}})
	}
}

// removedByHost ends a hold whose directory a program on the host had removed before the release: perhaps another job has worked
// meanwhile, so the reply is that the lock was lost.
func (st *State) removedByHost(c *claim, now Instant, out *outcome) {
	ended := endRecord(c.hold, &ending{cause: CauseHostGone, by: Owner{Account: HostAccount}}, now)
	out.records = append(out.records, ended)
	if h := c.node.byToken(c.hold.Token); h != nil {
		out.mark(Record{Hold: c.hold, volatile: volatile{mark: markForgive, session: h.session}})
	}
	out.refuse(&LostError{Name: c.hold.Name, Token: c.hold.Token, Cause: CauseHostGone, By: ended.By, At: now})
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
		out.mark(Record{Hold: Hold{Name: name}, volatile: volatile{mark: markForgive, session: s}})
	}
	switch {
	case err != nil:
		out.refuse(st.refreshed(err, now))
	case len(n.holds) == 1 && n.below > 0:
		out.refuse(ErrMembers)
	case len(n.holds) == 1 && n.pins > 0:
		out.busy = name
	default:
		st.end(h, &ending{cause: CauseRelease, by: s.owner}, now, out)
	}
}

// undo takes the last grant of a hold back, which the client did not receive: the hold ends as soon as it can, see [State.next].
func (st *State) undo(granted Hold, out *outcome) {
	h := st.nodes[granted.Name].byToken(granted.Token)
	switch {
	case h == nil || h.Owner.Session != granted.Owner.Session:
		out.refuse(ErrStale)
	default:
		out.mark(Record{Hold: h.Hold, volatile: volatile{mark: markUnheard}})
	}
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
	case len(n.holds) == 1 && n.below > 0:
		out.refuse(ErrMembers)
	case len(n.holds) == 1 && n.pins > 0:
		out.busy = name
	default:
		st.end(h, &ending{cause: CauseBreak, by: by, note: why}, now, out)
	}
}

// hostGone decides the end of a hold whose directory a program on the host removed. While the directory is being changed, or a write
// under the hold is under way, nothing ends: the directory is looked at again later.
func (st *State) hostGone(name Name, token Token, now Instant, out *outcome) {
	n := st.nodes[name]
	if h := n.byToken(token); h != nil && n.claim == nil && n.pins == 0 {
		st.end(h, &ending{cause: CauseHostGone, by: Owner{Account: HostAccount}}, now, out)
	}
}

// renew decides a new age for the hold for which the session acts.
func (st *State) renew(s *session, name Name, now Instant, out *outcome) {
	n := st.nodes[name]
	if n != nil && n.claim != nil {
		out.busy = name
		return
	}
	h, err := st.spokenFor(s, name)
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
		out.claim(&claim{hold: n.holds[0].Hold, adds: true, by: s.owner})
	}
}
