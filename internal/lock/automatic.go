package lock

import (
	"slices"
	"time"
)

// waitedTurn is the shortest turn of a job that has waited.
const waitedTurn = 5 * time.Second

// decideLook decides the effect of a session's look at files of an automatic lock. The first look of a job waits while another job holds
// the lock automatically, and then holds the lock for a turn. Later looks only show that the job is alive.
func (st *State) decideLook(a *acquisition, now Instant, out *outcome) {
	n := st.nodes[a.name]
	rule := st.rules.automaticFor(a.name)
	switch {
	case rule == nil || a.session.closed:
		return
	case n != nil && n.claim != nil:
		out.busy = a.name
		return
	}
	v := st.viewOf(a.session, a.name, rule, now.Boot)
	a.view = v
	st.noteSign(a, now, out)
	repeated := v.looked || v.refused != nil
	if repeated && (v.hold != nil || now.Boot < later(v.active, freshAfter)) {
		out.do(func(*State) { v.active = now.Boot })
		return
	}
	if repeated {
		out.do(func(*State) { v.restart() })
	}
	refused := st.conflict(a, rule, now)
	other := st.automaticHold(a.name)
	_, queued := refused.(*QueuedError)
	switch {
	case a.recordOnly || v.hold != nil || rule.automatic.Report || st.checkMayAcquire(a, now) != nil:
		st.recordLook(a, now, out)
	case (other != nil || queued) && st.enqueue(a, rule, now, out): // the look continues after the wait
	case refused != nil || rule.automatic.Turn == 0:
		st.recordLook(a, now, out)
	default:
		st.grant(a, rule, now, out)
	}
}

// recordLook records the token up to which the first look of the job has seen changes. It excludes the token of another job that holds the
// lock.
func (st *State) recordLook(a *acquisition, now Instant, out *outcome) {
	if a.waiter != nil && a.view.looked { // another session of the job has looked during the wait
		out.do(func(*State) { a.view.active = now.Boot })
		return
	}
	token := st.last
	if n := st.nodes[a.name]; n != nil {
		for _, h := range n.holds {
			if a.session.reasonFor(h) < byAutomaticJob {
				token = min(token, h.Token-1)
			}
		}
	}
	if a.view.hold != nil {
		token = a.view.base
	}
	out.do(func(st *State) { st.applyLooked(a.view, token, now.Boot) })
}

// decideChange decides whether a session may change files of an automatic lock. The first change of a job acquires the lock, if necessary
// after a wait. A refusal applies to all later changes of the job.
func (st *State) decideChange(a *acquisition, now Instant, out *outcome) {
	s, n := a.session, st.nodes[a.name]
	rule := st.rules.automaticFor(a.name)
	switch {
	case rule == nil:
		return
	case s.closed:
		out.refuse(ErrEnded)
		return
	case n != nil && n.claim != nil:
		out.busy = a.name
		return
	}
	v := st.viewOf(s, a.name, rule, now.Boot)
	a.view = v
	st.noteSign(a, now, out)
	h, _, _ := st.holdOf(s, a.name, now)
	holds := h != nil && len(n.holds) == 1 && !h.Shared
	switch {
	case v.refused != nil:
		out.do(func(*State) { v.active = now.Boot })
		if !rule.automatic.Report {
			out.refuse(v.refused)
		}
	case holds && h.Automatic:
		if h.turn != 0 {
			out.granted = &h.Hold
		}
		out.do(func(st *State) {
			v.active, h.turn, h.idleFrom = now.Boot, 0, now.Boot
			st.arm(h)
		})
	case holds: // the job acquired the lock by MKD
	default:
		st.acquireJob(a, rule, now, out)
	}
	if rule.automatic.Report {
		out.do(func(st *State) { st.applyReported(a, now) })
	}
}

// acquireJob decides whether a job gets an automatic lock for its first change.
func (st *State) acquireJob(a *acquisition, rule *compiledRule, now Instant, out *outcome) {
	if stale := st.staleError(a.view, now); stale != nil {
		st.refuseJob(a, stale, now, out)
		return
	}
	if err := st.checkMayAcquire(a, now); err != nil {
		st.refuseJob(a, &JobError{Cause: "other", Why: err}, now, out)
		return
	}
	refused := st.conflict(a, rule, now)
	switch {
	case refused == nil:
		st.grant(a, rule, now, out)
	case rule.automatic.Report || !st.enqueue(a, rule, now, out):
		st.refuseJob(a, st.jobConflict(a, refused), now, out)
	}
}

// turn returns the end of the turn of a job that only looks; 0 for a job that changes files.
func (a *acquisition) turn(rule *compiledRule, now Instant) Time {
	turn := rule.automatic.Turn
	if a.waiter != nil {
		turn = max(turn, waitedTurn)
	}
	if !a.look {
		return 0
	}
	return later(now.Boot, turn)
}

// leaveQueue ends the waits of the other sessions of a job that gets the lock.
func (st *State) leaveQueue(a *acquisition, n *node, out *outcome) {
	if n == nil {
		return
	}
	for _, w := range n.queue {
		if w.view == a.view && w != a.waiter {
			if w.look {
				out.do(func(*State) { w.view.looked, w.view.everLooked = true, true })
			}
			out.unqueue(w, nil)
		}
	}
}

// acquisition returns the attempt of a waiter.
func (w *waiter) acquisition() *acquisition {
	return &acquisition{session: w.session, name: w.node.name, waiter: w, view: w.view, look: w.look, path: w.path}
}

// handOverJob is handOver for a job at the head of a queue. If a look and a change of the job wait, it decides about the change.
func (st *State) handOverJob(w *waiter, rule *compiledRule, now Instant, out *outcome) {
	if i := slices.IndexFunc(w.node.queue, func(other *waiter) bool { return other.view == w.view && !other.look }); i > 0 {
		w = w.node.queue[i]
	}
	a := w.acquisition()
	stale := st.staleError(w.view, now)
	switch err := st.checkMayAcquire(a, now); {
	case w.view.refused != nil: // refused during the wait
		st.endJobWait(w, nil, now, out)
	case w.look && (rule.automatic.Turn == 0 || err != nil):
		out.unqueue(w, nil)
		st.recordLook(a, now, out)
	case !w.look && stale != nil:
		st.endJobWait(w, stale, now, out)
	case err != nil:
		st.endJobWait(w, &JobError{Cause: "other", Why: err}, now, out)
	default:
		st.grant(a, rule, now, out)
	}
}

// endJobWait ends the wait of a job without the lock: a look continues, a change is refused.
func (st *State) endJobWait(w *waiter, why *JobError, now Instant, out *outcome) {
	a := w.acquisition()
	if w.look {
		out.unqueue(w, nil)
		st.recordLook(a, now, out)
		return
	}
	if refused := w.view.refused; refused != nil {
		out.do(func(*State) { w.view.active = now.Boot })
		out.unqueue(w, refused)
		return
	}
	if why == nil {
		why = st.jobConflict(a, nil)
	}
	st.refuseJob(a, why, now, out)
	out.unqueue(w, why)
}

// staleError returns an error if another job has changed files since the job looked.
func (st *State) staleError(v *jobView, now Instant) *JobError {
	site := st.sites[v.name]
	if site == nil {
		return nil
	}
	base, known := v.base, v.known
	if !known {
		base, known = max(base, st.floor.token), now.Boot < st.floor.until // base may be the token of a lock that the job had
	}
	c := site.changed
	if !known || c.token <= base {
		return nil
	}
	return &JobError{Cause: "stale", By: c.by, Token: c.token, Files: c.files, Looked: v.looked, When: c.at.Wall, Again: st.graceAt(v.name) + 2*time.Second}
}

// jobConflict returns the refusal of a job that cannot have the lock.
func (st *State) jobConflict(a *acquisition, refused error) *JobError {
	if n := st.nodes[a.name]; n != nil && len(n.holds) > 0 {
		h := n.holds[0]
		return &JobError{Cause: "held", By: h.Owner, Token: h.Token, When: h.Acquired.Wall}
	}
	if refused == nil {
		refused = ErrHeld
	}
	return &JobError{Cause: "other", Why: refused}
}

// refuseJob refuses this change of a job and all later ones. The history gets an entry for the first.
func (st *State) refuseJob(a *acquisition, why *JobError, now Instant, out *outcome) {
	rule := st.rules.automaticFor(a.name)
	why.Report = rule != nil && rule.automatic.Report
	note := why.Error()
	if why.Report {
		note = "would be refused: " + note
	}
	by := a.session.owner
	v := a.view
	out.do(func(*State) { v.refuse(why, by, now) })
	out.records = append(out.records, Record{
		Kind: Published, Cause: CauseRefuse, Hold: Hold{Name: a.name, Token: why.Token, Owner: by}, By: by, At: now, Note: note,
		File: &Publication{Path: a.path},
	})
	if !why.Report {
		out.refuse(why)
	}
}
