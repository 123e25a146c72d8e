package lock

import (
	"context"
	"errors"
	"slices"
	"time"
)

// This file is the part of the model test about automatic locks. Jobs look at files and change them. The model has its own memory of jobs,
// and checks that no job changes files that another job changed since its look, and that a refused job changes nothing.

// modelSites are automatic locks. Under the first one a client is a job, under the second one each session.
var modelSites = []Name{"/w/1/.k", "/v/1/.k"}

const modelGrace = 3 * time.Second // of the automatic locks

func automaticRules(age time.Duration) []Rule {
	rule := func(dir string, a Automatic) Rule {
		return Rule{
			Match: dir + "/*/.k", MaxAge: age, MaxIdle: 40 * time.Second, Grace: modelGrace, Automatic: &a,
			Protection: &Protection{Paths: []string{dir + "/$1/**"}}, Contention: &Contention{Wait: 15 * time.Second},
		}
	}
	return []Rule{rule("/w", Automatic{Turn: 2 * time.Second}), rule("/v", Automatic{Session: true})}
}

// modelJob is the sessions of one client, or one session.
type modelJob struct {
	name   string
	open   int  // number of its sessions
	ended  Time // with open = 0: when the last one ended
	visits map[Name]*visit
}

// visit is what a job did at one automatic lock.
type visit struct {
	job     *modelJob
	looked  bool // the job's first look is over
	known   bool // the job has seen the first changes, as many as seen counts
	inherit bool // so have later jobs of the client, for ten minutes after the end of the last one that looked
	ended   Time // that end
	seen    int
	refused bool
	active  Time
}

// asked is a look or change that waits.
type asked struct {
	*visit
	session *Session
	site    Name
	look    bool
	waited  bool
}

// jobName returns the name of an owner's job at an automatic lock.
func jobName(o Owner, site Name) string {
	if site == modelSites[1] && o.Nonce == "" {
		return o.Session.String()
	}
	return clientName(o)
}

// clientName returns the name of the job of all sessions of a client.
func clientName(o Owner) string {
	if o.Nonce != "" {
		return o.Account + " as " + o.Nonce
	}
	return o.Account + "@" + o.Address
}

// job returns the job of a name.
func (m *model) job(name string) *modelJob {
	j := m.jobs[name]
	if j == nil {
		j = &modelJob{name: name, visits: make(map[Name]*visit)}
		m.jobs[name] = j
	}
	return j
}

// join adds a session to a job. After the grace that is a new job, which inherits the last look of the earlier one for ten minutes.
func (m *model) join(name string) {
	now, j := m.clock.Now().Boot, m.job(name)
	for name, v := range j.visits {
		switch {
		case j.open > 0 || m.holdOf(j, name) != nil:
		case now >= j.ended+10*time.Minute:
			delete(j.visits, name)
		case now > j.ended+modelGrace:
			v.restart()
			v.known = v.known && now < v.ended+10*time.Minute
		}
	}
	j.open++
}

// leave ends a session's part in a job.
func (m *model) leave(name string) {
	j := m.job(name)
	if j.open--; j.open == 0 {
		j.ended = m.clock.Now().Boot
		for _, v := range j.visits {
			if v.looked {
				v.ended = j.ended
			}
		}
	}
}

func (v *visit) restart() {
	v.looked, v.refused, v.known = false, false, v.known && v.inherit
}

// visit returns what the session's job did at a site. A lock that the session holds as a job of its own stays that of this job.
func (m *model) visit(o Owner, site Name) *visit {
	j := m.job(jobName(o, site))
	if own := m.job(o.Session.String()); m.holdOf(own, site) != nil {
		j = own
	}
	v := j.visits[site]
	if v == nil {
		v = &visit{job: j}
		j.visits[site] = v
	}
	return v
}

// holdOf returns the hold that a job acquired automatically, or nil.
func (m *model) holdOf(j *modelJob, site Name) *Hold {
	for _, h := range m.holds {
		if h.Name == site && h.Automatic && jobName(h.Owner, site) == j.name {
			return &h
		}
	}
	return nil
}

// changedBy returns another job than the visitor's that changed files since its look, or "".
func (v *visit) changedBy(changes []string) string {
	if v.known {
		for _, job := range changes[v.seen:] {
			if job != v.job.name {
				return job
			}
		}
	}
	return ""
}

// visitSite has a session look at a site, or change it.
func (m *model) visitSite(look bool) {
	s, site := m.session(), modelSites[m.random.IntN(len(modelSites))]
	for p := range s.s.waiters { // a session waits for one thing at a time
		if p.view != nil {
			return
		}
	}
	a := asked{m.visit(s.s.owner, site), s, site, look, false}
	n := m.table.st.nodes[site]
	if n != nil && n.claim != nil {
		return
	}
	path, sign := site.Parent()+"/x", Sign(m.random.IntN(4))
	m.note("%s of %s (%s), look %v", s.ID(), path, a.job.name, look)
	fresh := (a.looked || a.refused) && m.holdOf(a.job, site) == nil && m.clock.Now().Boot >= a.active+freshAfter
	if look {
		if fresh {
			a.restart()
		}
		if w := s.Look(context.Background(), path, sign, func() {}); w != nil {
			m.asks(w, a)
		} else {
			m.answer(a, nil)
		}
		return
	}
	h, refused := m.holdOf(a.job, site), a.refused
	w, err := s.Change(context.Background(), path, sign, func() {})
	switch {
	case w != nil:
		m.asks(w, a)
	case errors.As(err, new(*JobError)) && !refused && h != nil && n.byToken(h.Token) != nil && !m.invalid && m.clock.Now().Boot < h.tooOld():
		m.fail("%s is refused though it holds the lock: %v", a.job.name, err)
	default:
		m.answer(a, err)
	}
}

func (m *model) asks(w *Waiting, a asked) {
	if a.refused {
		m.fail("%s waits though it is refused", a.job.name)
	}
	m.waiting = append(m.waiting, w)
	m.asked[w.waiter] = a
}

// over ends what waited, if it is for an automatic lock.
func (m *model) over(w *waiter) {
	if a, ok := m.asked[w]; ok {
		delete(m.asked, w)
		a.waited = true
		m.answer(a, w.err)
	}
}

// answer ends a look or a change. After a change that was allowed the session writes.
func (m *model) answer(a asked, err error) {
	now := m.clock.Now().Boot
	switch {
	case a.look && err != nil: // the session has ended
		return
	case a.look:
		counts := !a.refused || a.waited // a look that waited counts, although the job was refused meanwhile
		if !a.looked && counts && m.holdOf(a.job, a.site) == nil {
			a.seen, a.known, a.inherit = len(m.changes[a.site]), true, true
		}
		a.looked, a.inherit, a.active = a.looked || counts, a.inherit || counts, now
		return
	case a.refused && errors.Is(err, ErrEnded): // the end of a session is no activity of a job that is refused already
		return
	case err != nil:
		m.note("  %s: %v", a.job.name, err)
		a.refused, a.active = true, now
		return
	}
	a.active = now
	over, cancel := context.WithCancel(context.Background())
	cancel() // if something is under way the write is given up
	wrote := false
	err = a.session.Write(over, []Write{{Path: a.site.Parent() + "/x"}}, func(permits []Permit) error {
		m.changed(a, permits[0])
		wrote = true
		return nil
	})
	if !wrote {
		m.note("  no write: %v", err)
		if h := m.holdOf(a.job, a.site); h != nil {
			m.used[h.Token] = true // the change has ended the turn, even if the write was refused
		}
	}
}

// changed checks a change while it is made, and notes it.
func (m *model) changed(a asked, by Permit) {
	m.note("  %s changes %s", a.job.name, a.site)
	h, ok := m.holds[by.Token]
	switch other := a.changedBy(m.changes[a.site]); {
	case !ok || h.Name != a.site:
		m.fail("%s changes %s by token %d, which does not stand", a.job.name, a.site, by.Token)
	case h.Automatic && jobName(h.Owner, a.site) != a.job.name:
		m.fail("%s changes %s by the lock of %s", a.job.name, a.site, h.Owner)
	case a.refused:
		m.fail("%s changes %s though it was refused", a.job.name, a.site)
	case other != "" && h.Automatic:
		m.fail("%s changes %s, which %s has changed since its look", a.job.name, a.site, other)
	}
	m.changes[a.site] = append(m.changes[a.site], a.job.name)
	a.known, a.seen = a.known || h.Automatic, len(m.changes[a.site])
	m.used[by.Token] = true
	publish := func(h Hold, note string) {
		if err := m.table.Published(context.Background(), h, h.Owner, note, Publication{Path: a.site.Parent() + "/x"}); err != nil {
			m.fail("%v", err)
		}
	}
	publish(h, "")
	m.published = append(m.published, h)
	if earlier := m.published[m.random.IntN(len(m.published))]; earlier.Name == a.site && m.random.IntN(4) == 0 {
		publish(earlier, NoteUnconfirmed)
	}
}

// observeAutomatic checks a record of an automatic lock.
func (m *model) observeAutomatic(r *Record) {
	site := r.Hold.Name
	if !slices.Contains(modelSites, site) {
		return
	}
	owner := r.Hold.Owner
	i := slices.IndexFunc(m.sessions, func(s *Session) bool { return s.ID() == owner.Session })
	if i >= 0 && !r.Hold.Automatic { // its job may have changed while the directory was made
		owner = m.sessions[i].s.owner
	}
	a := m.visit(owner, site)
	switch {
	case r.Kind == Granted && r.Cause == CauseAcquire && r.Hold.Automatic:
		if other := a.changedBy(m.changes[site]); other != "" && r.turn == 0 {
			m.fail("%s gets %s to change files that %s has changed since its look", a.job.name, site, other)
		}
		if r.turn != 0 || r.Hold.Owner.Nonce != "" {
			a.looked, a.inherit = true, true
		}
		a.known, a.seen, a.active = true, len(m.changes[site]), r.At.Boot
	case r.Kind == Granted && !r.Hold.Automatic && !a.refused && i >= 0: // by MKD
		a.known, a.seen, a.active = true, len(m.changes[site]), r.At.Boot
	case r.Kind != Ended || !r.Hold.Automatic:
	case r.Cause == CauseUnused && m.used[r.Hold.Token]:
		m.fail("%s lost its turn at %s though it used it", a.job.name, site)
	case r.Cause == CauseDisconnect && a.job.open > 0:
		m.fail("%s ends with a connection of %s, which has another one", site, a.job.name)
	case r.Cause == CauseRelease && !m.used[r.Hold.Token]:
		m.fail("RMD ends the automatic lock %s", site)
	case r.Cause == CauseExpire || r.Cause == CauseBreak || r.Cause == CauseHostGone:
		a.refused = true
	}
}

// checkAutomatic finds automatic locks that stand without their job, and memory of jobs that is counted wrongly.
func (m *model) checkAutomatic() {
	views := make(map[Name]int)
	m.table.st.eachView(func(v *jobView) { views[v.name]++ })
	for name, site := range m.table.st.sites {
		if site.views != views[name] {
			m.fail("%s counts %d views, there are %d", name, site.views, views[name])
		}
	}
	now := m.clock.Now().Boot
	for _, h := range m.holds {
		if !h.Automatic || m.invalid {
			continue
		}
		j := m.visit(h.Owner, h.Name).job
		n := m.table.st.nodes[h.Name]
		if j.open == 0 && now > j.ended+modelGrace+retryAfter && !n.cannotEnd() {
			m.fail("%s is held by %s, which has ended", h.Name, j.name)
		}
		if j.open > 0 && !m.used[h.Token] && now > h.Acquired.Boot+waitedTurn+retryAfter && !n.cannotEnd() {
			m.fail("%s: the turn of %s does not end", h.Name, j.name)
		}
	}
}

// rename gives a session another nonce: it is of another job then, which has seen the same changes.
func (m *model) rename(s *Session, nonce string) {
	for w := range s.s.waiters {
		if w.view != nil {
			return
		}
	}
	old := s.Owner()
	if old.Nonce == nonce {
		return
	}
	m.note("%s is of the job %q", s.ID(), nonce)
	if err := s.SetNonce(nonce); err != nil {
		m.fail("%v", err)
	}
	is := s.Owner()
	m.join(clientName(is))
	was, will := m.visit(old, modelSites[0]), m.visit(is, modelSites[0])
	if was.known && was.looked && !will.known {
		will.known, will.inherit, will.seen, will.ended = true, true, was.seen, m.clock.Now().Boot
	}
	m.leave(clientName(old))
}
