package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// waitedTurn is the turn of a job that has waited.
const waitedTurn = 5 * time.Second

// look decides what happens when a session looks at files of an automatic lock. The first look of its job waits while another job holds
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
		out.mark(Record{At: now, volatile: volatile{mark: markActive, view: v}})
		return
	}
	if over {
		out.mark(Record{volatile: volatile{mark: markFresh, view: v}})
	}
	refused := st.conflict(a, rule, now)
	other := st.automaticHold(a.name)
	_, queued := refused.(*QueuedError)
	switch {
	case v.hold != nil || rule.automatic.Report || st.mayJoin(a) != nil:
		st.seen(a, now, out)
	case (other != nil || queued) && st.queueJob(a, rule, now, out): // the look goes on later
	case refused != nil || rule.automatic.Turn == 0:
		st.seen(a, now, out)
	default:
		st.grantUnlessBarred(a, rule, now, out)
	}
}

// seen notes what the job's first look has seen: not the changes of another job that holds the lock now.
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
	out.mark(Record{At: now, Hold: Hold{Token: token}, volatile: volatile{mark: markLooked, view: a.view}})
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
	h, _ := st.actsFor(s, n)
	holds := h != nil && len(n.holds) == 1 && !h.Shared
	switch {
	case v.refused != nil:
		out.mark(Record{At: now, volatile: volatile{mark: markActive, view: v}})
		if !rule.automatic.Report {
			out.refuse(v.refused)
		}
	case holds && h.Automatic:
		if h.turn != 0 {
			out.granted = &h.Hold
		}
		out.mark(Record{At: now, volatile: volatile{mark: markWorks, view: v}})
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
		st.grantUnlessBarred(a, rule, now, out)
	case rule.automatic.Report || !st.queueJob(a, rule, now, out):
		st.refuseJob(a, st.inTheWay(a, refused), now, out)
	}
}

// grantUnlessBarred grants the lock when nothing that is under way forbids that.
func (st *State) grantUnlessBarred(a *acquisition, rule *compiledRule, now Instant, out *outcome) {
	if barred, ok := st.barredBy(a.name); ok {
		out.busy = barred
		return
	}
	if above := st.endingAbove(a.name); above != nil {
		out.busy = above.name
		return
	}
	st.grantJob(a, rule, now, out)
}

// grantJob grants the lock to the session's job. Others of its sessions that wait for it wait no longer.
func (st *State) grantJob(a *acquisition, rule *compiledRule, now Instant, out *outcome) {
	h := st.newHold(a.session, a.name, &rule.Rule, now)
	h.Automatic, h.Asked = true, Asked{}
	n := st.nodes[a.name]
	turn, waited := rule.automatic.Turn, time.Duration(0)
	if a.place != nil {
		turn, waited = max(turn, waitedTurn), now.Boot-a.place.since
	}
	until := Time(0)
	if a.look {
		until = later(now.Boot, turn)
	}
	out.records = append(out.records, Record{
		Kind: Granted, Cause: CauseAcquire, Hold: h, By: a.session.owner, At: now, Waited: waited, Free: n.free(now),
		volatile: volatile{place: a.place, view: a.view, until: until},
	})
	out.granted = &out.records[len(out.records)-1].Hold
	if n == nil {
		return
	}
	for _, p := range n.queue {
		if p.view == a.view && p != a.place {
			out.unqueue(p, nil)
		}
	}
}

// queueJob has a look or a change of a job wait for the lock, and returns false if the rule lets none wait. All looks of a job wait
// equally long.
func (st *State) queueJob(a *acquisition, rule *compiledRule, now Instant, out *outcome) bool {
	wait := rule.contention.Wait
	if a.wake == nil || wait <= 0 {
		return false
	}
	p := &place{
		node: &node{name: a.name}, session: a.session, owner: a.session.owner, since: now.Boot, until: later(now.Boot, wait), wake: a.wake,
		view: a.view, look: a.look, path: a.path,
	}
	if n := st.nodes[a.name]; n != nil && a.look {
		for _, other := range n.queue {
			if other.view == a.view && other.look {
				p.until = other.until
			}
		}
	}
	out.records = append(out.records, Record{Kind: queued, volatile: volatile{place: p}})
	out.place = p
	return true
}

// acquisition returns what a place waits for.
func (p *place) acquisition() *acquisition {
	return &acquisition{session: p.session, name: p.node.name, place: p, view: p.view, look: p.look, path: p.path}
}

// handOverJob is handOver for the first place in a queue, of a job.
func (st *State) handOverJob(p *place, rule *compiledRule, now Instant, out *outcome) {
	a := p.acquisition()
	stale := st.stale(p.view, now)
	switch err := st.mayJoin(a); {
	case rule.automatic == nil: // since a reload; the check of protected files decides
		out.unqueue(p, nil)
	case p.look && (rule.automatic.Turn == 0 || err != nil):
		out.unqueue(p, nil)
		st.seen(a, now, out)
	case !p.look && stale != nil:
		st.giveUp(p, stale, now, out)
	case err != nil:
		st.giveUp(p, &JobError{Cause: "other", Why: err}, now, out)
	default:
		st.grantJob(a, rule, now, out)
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
	out.mark(Record{By: by, At: now, volatile: volatile{mark: markRefused, view: a.view, err: why}})
	out.records = append(out.records, Record{
		Kind: Published, Cause: CauseRefuse, Hold: Hold{Name: a.name, Token: why.Token, Owner: by}, By: by, At: now, Note: note,
		File: &Publication{Path: a.path},
	})
	if !why.Report {
		out.refuse(why)
	}
}

// JobError reports that a job may not change files that an automatic lock protects. It matches fs.ErrPermission.
type JobError struct {
	Lock   Name
	Cause  string // "stale": another job has changed them since this one looked; "held": one changes them; "lost": the lock was taken away
	By     Owner  // the other job, or the administrator who took the lock away
	Token  Token  // of its hold
	Files  int    // with "stale": how many changes it made; 0: not known
	When   time.Time
	Again  time.Duration // with "stale": the job can start again so much later
	Why    error         // with other causes
	Report bool          // the rule only reports: nothing was refused
}

func (e *JobError) Error() string {
	at := e.When.UTC().Format(time.TimeOnly)
	switch e.Cause {
	case "stale":
		files := fmt.Sprintf("%d files, ", e.Files)
		switch e.Files {
		case 0:
			files = ""
		case 1:
			files = "1 file, "
		}
		return fmt.Sprintf("changed by %s (%suntil %s) since you looked; start again in %s", e.By, files, at, e.Again)
	case "held":
		return fmt.Sprintf("being changed by %s since %s", e.By, at)
	case "lost":
		return fmt.Sprintf("lock taken away at %s: %s", at, e.Why)
	}
	return e.Why.Error()
}

// Is makes the error match fs.ErrPermission.
func (e *JobError) Is(target error) bool { return target == fs.ErrPermission }

// ErrAutomatic is the error of a client that releases a lock which its job holds automatically.
var ErrAutomatic error = &kind{"held automatically: it ends with its job, not by RMD", fs.ErrPermission}

// What follows is called by apply.

// applyJobGranted links a hold of an automatic rule with the job and the site.
func (st *State) applyJobGranted(h *hold, r *Record) {
	rule := st.rules.automaticFor(h.Name)
	if rule == nil && !h.Automatic {
		return
	}
	loaded := r.Cause == ""
	v := r.volatile.view
	switch {
	case h.Automatic && v == nil: // found at a start
		j := &job{owner: h.Owner, ended: r.At.Boot}
		if rule == nil || !rule.automatic.Session || h.Owner.Nonce != "" {
			if j = st.jobOf(h.Owner); j.open == 0 {
				j.ended = r.At.Boot
				st.ended = append(st.ended, j)
			}
		}
		v = st.viewIn(j, h.Name)
	case h.Automatic || h.session.client == nil:
	case !rule.automatic.Session:
		h.job = h.session.client
		v = h.job.views[h.Name]
	case h.session.own != nil:
		v = h.session.own.views[h.Name]
	}
	if h.Automatic {
		h.view, h.job, h.site, v.hold = v, v.job, st.siteOf(h.Name), h
		h.turn = r.volatile.until
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
	if v == nil {
		return
	}
	v.hold = nil
	switch r.Cause {
	case CauseExpire, CauseBreak, CauseHostGone: // after an idle end the job may go on
		lost := LostError{Cause: r.Cause, Limit: r.Limit, By: r.By, Note: r.Note}
		v.refused = &JobError{Lock: h.Name, Cause: "lost", By: r.By, Token: h.Token, When: r.At.Wall, Why: errors.New(lost.why())}
		v.by, v.at = h.Owner, r.At
	}
	j := v.job
	if j.open == 0 && (j.key == jobKey{} || r.At.Boot >= later(j.ended, rememberJob)) {
		st.forget(v)
		if len(j.views) == 0 && st.jobs[j.key] == j {
			delete(st.jobs, j.key)
		}
	}
}

// applyChange counts a change of a file that an automatic lock protects.
func (st *State) applyChange(r *Record) {
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

// applyNonce moves a session with another nonce to its new job, which has seen what the session has.
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
			}
		}
	}
	s.own = nil
	joined := s.client
	s.client = old
	st.depart(s, now)
	s.client, s.own = joined, own
}

// applyView makes the volatile changes of views.
func (st *State) applyView(r *Record) {
	v := r.volatile.view
	switch r.volatile.mark {
	case markActive:
		v.active = r.At.Boot
	case markFresh:
		v.restart()
	case markLooked:
		v.looked, v.seen, v.known, v.base, v.active = true, true, true, r.Hold.Token, r.At.Boot
		if s := v.job; s.key == (jobKey{}) { // sessions that do not look inherit it at once
			if heir := st.jobs[keyOf(s.owner)]; heir != nil {
				to := st.viewIn(heir, v.name)
				to.base, to.known, to.seen = v.base, true, true
			}
		}
	case markWorks:
		v.active = r.At.Boot
		v.hold.turn, v.hold.idleFrom = 0, r.At.Boot
		st.arm(v.hold)
	case markRefused:
		errors.As(r.volatile.err, &v.refused)
		v.by, v.at, v.active = r.By, r.At, r.At.Boot
	case markCleared:
		v.restart()
		v.base, v.known = st.last, true
	case markSign:
		v.signs.add(r.volatile.sign)
	}
}
