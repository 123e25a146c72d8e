package lock

import (
	"slices"
	"time"
)

// waitedTurn is the turn of a job that has waited.
const waitedTurn = 5 * time.Second

// look decides the effect of a look of a session at files of an automatic lock. The first look of its job waits while another job holds
// the lock automatically; then it holds the lock for a turn. Each later one only shows that the job is alive.
func (st *State) look(a *acquisition, now Instant, out *outcome) {
	n := st.nodes[a.name]
	rule := st.rules.automaticFor(a.name)
	switch {
	case rule == nil || a.session.closed:
		return
	case n != nil && n.claim != nil:
		out.busy = a.name
		return
	}
	v := st.viewOf(a.session, a.name, rule)
	a.view = v
	st.noteSign(a, now, out)
	over := v.looked || v.refused != nil
	if over && (v.hold != nil || now.Boot < later(v.active, freshAfter)) {
		out.do(func(*State) { v.active = now.Boot })
		return
	}
	if over {
		out.do(func(*State) { v.restart() })
	}
	refused := st.conflict(a, rule, now)
	other := st.automaticHold(a.name)
	_, queued := refused.(*QueuedError)
	switch {
	case a.only || v.hold != nil || rule.automatic.Report || st.mayJoin(a) != nil:
		st.seen(a, now, out)
	case (other != nil || queued) && st.wait(a, rule, now, out): // the look goes on later
	case refused != nil || rule.automatic.Turn == 0:
		st.seen(a, now, out)
	default:
		st.grant(a, rule, now, out)
	}
}

// seen records the token up to which the job's first look has seen changes: not those of another job that holds the lock now.
func (st *State) seen(a *acquisition, now Instant, out *outcome) {
	token := st.last
	if n := st.nodes[a.name]; n != nil {
		for _, h := range n.holds {
			if a.session.standingOf(h) < byJob {
				token = min(token, h.Token-1)
			}
		}
	}
	if a.view.hold != nil {
		token = a.view.base
	}
	out.do(func(st *State) { st.applyLooked(a.view, token, now.Boot) })
}

// change decides whether a session may change files of an automatic lock. The first change of its job acquires the lock, perhaps after
// it has waited. If the job has to be refused, then for all its changes.
func (st *State) change(a *acquisition, now Instant, out *outcome) {
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
	v := st.viewOf(s, a.name, rule)
	a.view = v
	st.noteSign(a, now, out)
	h, _, _ := st.holdOf(s, a.name)
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
	case holds: // by MKD
	default:
		st.acquireJob(a, rule, now, out)
	}
}

// acquireJob decides whether a job gets an automatic lock for its first change.
func (st *State) acquireJob(a *acquisition, rule *compiledRule, now Instant, out *outcome) {
	if stale := st.stale(a.view, now); stale != nil {
		st.refuseJob(a, stale, now, out)
		return
	}
	if err := st.mayJoin(a); err != nil {
		st.refuseJob(a, &JobError{Cause: "other", Why: err}, now, out)
		return
	}
	refused := st.conflict(a, rule, now)
	switch {
	case refused == nil:
		st.grant(a, rule, now, out)
	case rule.automatic.Report || !st.wait(a, rule, now, out):
		st.refuseJob(a, st.inTheWay(a, refused), now, out)
	}
}

// turn returns the end of the turn of a job that only looks; 0 for a job that changes something.
func (a *acquisition) turn(rule *compiledRule, now Instant) Time {
	turn := rule.automatic.Turn
	if a.place != nil {
		turn = max(turn, waitedTurn)
	}
	if !a.look {
		return 0
	}
	return later(now.Boot, turn)
}

// leaveQueue ends the waiting of the other sessions of a job that gets the lock.
func (st *State) leaveQueue(a *acquisition, n *node, out *outcome) {
	if n == nil {
		return
	}
	for _, p := range n.queue {
		if p.view == a.view && p != a.place {
			if p.look {
				out.do(func(*State) { p.view.looked, p.view.seen = true, true })
			}
			out.unqueue(p, nil)
		}
	}
}

// acquisition returns the acquisition that a place waits for.
func (p *place) acquisition() *acquisition {
	return &acquisition{session: p.session, name: p.node.name, place: p, view: p.view, look: p.look, path: p.path}
}

// handOverJob is handOver for the first place in a queue, of a job. If a change of that job waits, too, that decides.
func (st *State) handOverJob(p *place, rule *compiledRule, now Instant, out *outcome) {
	if i := slices.IndexFunc(p.node.queue, func(other *place) bool { return other.view == p.view && !other.look }); i > 0 {
		p = p.node.queue[i]
	}
	a := p.acquisition()
	stale := st.stale(p.view, now)
	switch err := st.mayJoin(a); {
	case p.view.refused != nil: // since it waits
		st.giveUp(p, nil, now, out)
	case p.look && (rule.automatic.Turn == 0 || err != nil):
		out.unqueue(p, nil)
		st.seen(a, now, out)
	case !p.look && stale != nil:
		st.giveUp(p, stale, now, out)
	case err != nil:
		st.giveUp(p, &JobError{Cause: "other", Why: err}, now, out)
	default:
		st.grant(a, rule, now, out)
	}
}

// giveUp ends the waiting of a place of a job. A look goes on, a change is refused.
func (st *State) giveUp(p *place, why *JobError, now Instant, out *outcome) {
	a := p.acquisition()
	if p.look {
		out.unqueue(p, nil)
		st.seen(a, now, out)
		return
	}
	if refused := p.view.refused; refused != nil {
		out.do(func(*State) { p.view.active = now.Boot })
		out.unqueue(p, refused)
		return
	}
	if why == nil {
		why = st.inTheWay(a, nil)
	}
	st.refuseJob(a, why, now, out)
	out.unqueue(p, why)
}

// stale returns an error if another job has changed files since the job looked.
func (st *State) stale(v *view, now Instant) *JobError {
	site := st.sites[v.name]
	if site == nil {
		return nil
	}
	base, known := v.base, v.known
	if !known {
		base, known = max(base, st.floor.token), now.Boot < st.floor.until // base is a token of its own, if any
	}
	c := site.changed
	if !known || c.token <= base {
		return nil
	}
	return &JobError{Cause: "stale", By: c.by, Token: c.token, Files: c.files, When: c.at.Wall, Again: st.graceAt(v.name) + 2*time.Second}
}

// inTheWay returns the error for a job that cannot have the lock.
func (st *State) inTheWay(a *acquisition, refused error) *JobError {
	if n := st.nodes[a.name]; n != nil && len(n.holds) > 0 {
		h := n.holds[0]
		return &JobError{Cause: "held", By: h.Owner, Token: h.Token, When: h.Acquired.Wall}
	}
	if refused == nil {
		refused = ErrHeld
	}
	return &JobError{Cause: "other", Why: refused}
}

// refuseJob refuses this change of a job, and all that follow. The history has the first one.
func (st *State) refuseJob(a *acquisition, why *JobError, now Instant, out *outcome) {
	why.Lock = a.name
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
