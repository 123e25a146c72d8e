package lock

import (
	"errors"
	"strings"
)

// The functions of this file change the memory of the state for jobs. Only apply calls them.

// applyJobGranted links a hold of an automatic rule with the job and the site.
func (st *State) applyJobGranted(h *hold, r *Record) {
	rule := st.rules.automaticFor(h.Name)
	if rule == nil && !h.Automatic {
		return
	}
	loaded := r.Cause == ""
	v := r.view
	switch {
	case h.Automatic && v == nil: // found at a start
		key := keyOf(h.Owner)
		if rule != nil && rule.automatic.Session && h.Owner.Nonce == "" {
			key = jobKey{session: h.Owner.Session}
		}
		j := st.jobOf(key, h.Owner)
		j.ended = r.At.Boot
		v = st.viewIn(j, h.Name)
	case h.Automatic || h.session.closed:
	default: // by MKD
		v = st.viewOf(h.session, h.Name, rule)
	}
	h.view = v
	if h.Automatic {
		v.hold, h.turn = h, r.turn
		if h.turn != 0 {
			v.looked, v.seen = true, true
		}
	}
	if v != nil && (h.Automatic || v.refused == nil) {
		v.base, v.known, v.active = h.Token, true, r.At.Boot
	}
	if loaded {
		st.siteOf(h.Name).changed = change{token: h.Token, by: h.Owner, at: r.At}
	}
}

// applyJobEnded notes the end of a hold in the view of its job.
func (st *State) applyJobEnded(h *hold, r *Record) {
	v := h.view
	if v == nil || v.hold != h {
		return
	}
	v.hold = nil
	switch r.Cause {
	case CauseExpire, CauseBreak, CauseHostGone: // after an idle end the job may go on
		lost := LostError{Cause: r.Cause, Limit: r.Limit, By: r.By, Note: r.Note}
		v.refused = &JobError{Lock: h.Name, Cause: "lost", By: r.By, Token: h.Token, When: r.At.Wall, Why: errors.New(lost.why())}
		v.by, v.at = h.Owner, r.At
	}
	if j := v.job; j.open == 0 && j.at == nil {
		st.forget(v)
	}
}

// applyPublished counts a change of a file that an automatic lock protects.
func (st *State) applyPublished(r *Record) {
	site := st.sites[r.Hold.Name]
	if r.Cause != CausePublish || site == nil && (st.floor.until == 0 || st.rules.automaticFor(r.Hold.Name) == nil) {
		return
	}
	if site == nil {
		site = st.siteOf(r.Hold.Name)
	}
	c := &site.changed
	if c.token != r.Hold.Token {
		*c = change{token: r.Hold.Token, by: r.Hold.Owner}
	}
	if r.Note != NoteTimes && !strings.HasPrefix(r.Note, NoteRenamed) {
		c.files++
	}
	c.last, c.at = r.File.Path, r.At
}

// applyNonce moves a session with another nonce to its new job, which has seen the same changes as the session.
func (st *State) applyNonce(s *session, nonce string, now Time) {
	s.owner.Nonce = nonce
	if s.closed || s.client == nil || s.client.key == keyOf(s.owner) {
		return
	}
	old, own := s.client, s.own
	st.join(s, now)
	for name, v := range old.views {
		if v.known && v.looked {
			if to := st.viewIn(s.client, name); !to.known {
				to.base, to.known, to.seen = v.base, true, true
				if v.hold != nil { // sessions that stay in the old job may change files under its token
					to.base = v.hold.Token - 1
				}
			}
		}
	}
	s.own = nil
	joined := s.client
	s.client = old
	st.depart(s, now)
	s.client, s.own = joined, own
}

// applyLooked records that a job has seen the changes under tokens up to this one.
func (st *State) applyLooked(v *view, token Token, now Time) {
	v.looked, v.seen, v.known, v.base, v.active = true, true, true, token, now
	if j := v.job; j.key.session != 0 { // sessions that do not look inherit it at once
		if heir := st.jobs[keyOf(j.owner)]; heir != nil {
			to := st.viewIn(heir, v.name)
			to.base, to.known, to.seen = v.base, true, true
		}
	}
}

// refuse refuses all changes of the job from now on.
func (v *view) refuse(why *JobError, by Owner, now Instant) {
	v.refused, v.by, v.at, v.active = why, by, now, now.Boot
}
