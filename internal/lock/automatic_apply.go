package lock

import (
	"errors"
	"strings"
)

// The functions of this file change what the state records about jobs. Only apply and its parts call them.

// applyJobGranted connects a hold of an automatic rule to its job and its site.
func (st *State) applyJobGranted(h *liveHold, r *Record) {
	rule := st.rules.automaticFor(h.Name)
	if rule == nil && !h.Automatic {
		return
	}
	loaded := r.Cause == ""
	v := r.view
	switch {
	case h.Automatic && v == nil: // loaded at a start
		key := keyOf(h.Owner)
		if rule != nil && rule.automatic.Session && h.Owner.Nonce == "" {
			key = jobKey{session: h.Owner.Session}
		}
		j := st.jobOf(key, h.Owner)
		j.ended = r.At.Boot
		v = st.viewIn(j, h.Name, r.At.Boot)
	case h.Automatic || h.session.closed:
	default: // by MKD
		v = st.viewOf(h.session, h.Name, rule, r.At.Boot)
	}
	h.view = v
	if h.Automatic {
		v.hold, h.turn = h, r.turn
		if h.turn != 0 || v.job.key.nonce != "" { // a nonce names one run: its own changes count as its look
			v.looked, v.everLooked = true, true
		}
	}
	if v != nil && (h.Automatic || v.refused == nil) {
		v.base, v.known, v.active = h.Token, true, r.At.Boot
	}
	if loaded {
		st.siteOf(h.Name).changed = fileChanges{token: h.Token, by: h.Owner, at: r.At}
	}
}

// applyJobEnded records the end of a hold in the view of its job.
func (st *State) applyJobEnded(h *liveHold, r *Record) {
	v := h.view
	if v == nil || v.hold != h {
		return
	}
	v.hold = nil
	switch r.Cause {
	case CauseExpire, CauseBreak, CauseHostGone: // after an idle end the job may continue
		lost := LostError{Cause: r.Cause, Limit: r.Limit, By: r.By, Note: r.Note}
		v.refused = &JobError{Cause: "lost", By: r.By, Token: h.Token, When: r.At.Wall, Why: errors.New(lost.why())}
		v.refusedOwner, v.refusedAt = h.Owner, r.At
	}
	if j := v.job; j.open == 0 && j.endedElement == nil {
		st.dropView(v)
	}
}

// applyPublished counts a change of a file that an automatic lock protects. A record about an earlier upload is no change, and its token may
// be older than those of later changes.
func (st *State) applyPublished(r *Record) {
	site := st.sites[r.Hold.Name]
	if r.Cause != CausePublish || r.Note == NoteUnconfirmed || site == nil && (st.floor.until == 0 || st.rules.automaticFor(r.Hold.Name) == nil) {
		return
	}
	if site == nil {
		site = st.siteOf(r.Hold.Name)
	}
	c := &site.changed
	if c.token != r.Hold.Token {
		*c = fileChanges{token: r.Hold.Token, by: r.Hold.Owner}
	}
	if r.Note != NoteTimes && !strings.HasPrefix(r.Note, NoteRenamed) {
		c.files++
	}
	c.last, c.at = r.File.Path, r.At
}

// applyReported counts a change that a job will make under a rule that only reports: such changes are not published.
func (st *State) applyReported(a *acquisition, now Instant) {
	if h := st.automaticHold(a.name); h != nil && h.view == a.view {
		st.applyPublished(&Record{Cause: CausePublish, Hold: h.Hold, At: now, File: &Publication{Path: a.path}})
	}
}

// applyNonce moves a session with a new nonce to the job of that nonce, which inherits the looks of the old job.
func (st *State) applyNonce(s *sessionState, nonce string, now Time) {
	s.owner.Nonce = nonce
	if s.closed || s.clientJob == nil || s.clientJob.key == keyOf(s.owner) {
		return
	}
	old, own := s.clientJob, s.ownJob
	st.join(s, now)
	for name, v := range old.views {
		if v.known && v.looked {
			if to := st.viewIn(s.clientJob, name, now); !to.known {
				to.base, to.known, to.everLooked, to.lookEnded = v.base, true, true, now
				if v.hold != nil { // other sessions of the old job may change files under its token
					to.base = v.hold.Token - 1
				}
			}
		}
	}
	s.ownJob = nil
	joined := s.clientJob
	s.clientJob = old
	st.depart(s, now)
	s.clientJob, s.ownJob = joined, own
}

// applyLooked records that a job has seen the changes under tokens up to this one.
func (st *State) applyLooked(v *jobView, token Token, now Time) {
	v.looked, v.everLooked, v.known, v.base, v.active = true, true, true, token, now
	if j := v.job; j.key.session != 0 { // sessions of the client without a look inherit this one
		if heir := st.jobs[keyOf(j.owner)]; heir != nil {
			to := st.viewIn(heir, v.name, now)
			to.base, to.known, to.everLooked, to.lookEnded, to.active = v.base, true, true, now, now
		}
	}
}

// refuse records that all changes of the job are refused from now on.
func (v *jobView) refuse(why *JobError, by Owner, now Instant) {
	v.refused, v.refusedOwner, v.refusedAt, v.active = why, by, now, now.Boot
}
