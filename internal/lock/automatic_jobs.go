package lock

import (
	"container/list"
	"time"
)

// An automatic lock belongs to a job: the sessions of one program. This file has the memory of a State for jobs, and the rules by which it
// forgets them.

const (
	// rememberJob is how long after its end the last look of a job counts for sessions of the same client that do not look.
	rememberJob = 10 * time.Minute
	// freshAfter is how long a job does nothing until its next look makes a fresh start.
	freshAfter = time.Minute
	// maxJobs is how many jobs that have ended are remembered, and maxViews of how many locks a job is.
	maxJobs, maxViews = 10_000, 64
)

// jobKey names the sessions of an account that have the same nonce, or no nonce and the same address; or one session.
type jobKey struct {
	account, address, nonce string
	session                 SessionID
}

// keyOf returns the key of an owner's job. IPv6 addresses count as in sameAddress.
func keyOf(o Owner) jobKey {
	if o.Nonce != "" {
		return jobKey{account: o.Account, nonce: o.Nonce}
	}
	return jobKey{account: o.Account, address: networkOf(o.Address)}
}

// job is the sessions of one client: those of an account from one address, or with one nonce, or one session where the rule has it so.
type job struct {
	key   jobKey
	owner Owner
	open  int           // how many of its sessions are open
	ended Time          // with open = 0: when the last one ended
	at    *list.Element // with open = 0: its place among those that have ended; nil: it is forgotten when its hold ends
	views map[Name]*view
}

// view records the changes that one job has seen of the files of one automatic lock. An empty view means the same as none.
type view struct {
	job    *job
	name   Name
	looked bool // the job's first look is over
	// The job works on the state of the files that the changes under tokens up to base made, if known is set.
	base    Token
	known   bool
	seen    bool      // the job, or the one that it inherits from, has looked
	active  Time      // when the job last looked, changed something or moved bytes
	hold    *hold     // that of the job, acquired automatically
	refused *JobError // the job may not change anything any more
	by      Owner     // of the session that was refused
	at      Instant   // when
	// Of the job that consists of all sessions, where each session is a job: those that open in this time belong to the refused one,
	// unless they look.
	from, until Time
	signs       signs
}

// site is the state that all jobs at one automatic lock share.
type site struct {
	views   int // number of views of it
	changed change
}

// change counts the latest changes of files, all under one token.
type change struct {
	token Token
	by    Owner
	files int
	last  Name // the file
	at    Instant
}

// floor is for jobs of which nothing is known, after a start, a change of the rules, or when too many were to be remembered: until then
// they count as having seen the changes under tokens up to this one.
type floor struct {
	token Token
	until Time
}

// join adds a session to the job of its client.
func (st *State) join(s *session, now Time) {
	j := st.jobOf(keyOf(s.owner), s.owner)
	if j.open++; j.open == 1 {
		st.begin(j, now)
	}
	if j.at != nil {
		st.ended.Remove(j.at)
		j.at = nil
	}
	s.client = j
	st.armJob(j)
}

// jobOf returns the job with the key, new if need be.
func (st *State) jobOf(key jobKey, o Owner) *job {
	j := st.jobs[key]
	if j == nil {
		j = &job{key: key, owner: o}
		st.jobs[key] = j
	}
	return j
}

// begin forgets the views of an earlier job of the same client. Within the grace it is still the same job.
func (st *State) begin(j *job, now Time) {
	for _, v := range j.views {
		switch {
		case v.hold != nil:
		case now >= later(j.ended, rememberJob):
			st.forget(v)
		case now > later(j.ended, st.graceAt(v.name)):
			v.restart()
		}
	}
}

// restart ends the view of a job, of which its successor inherits the last look. Without a look it inherits nothing.
func (v *view) restart() {
	v.looked, v.known, v.refused, v.signs = false, v.known && v.seen, nil, signs{}
}

// forget drops a view, and a job that has ended and has no other one.
func (st *State) forget(v *view) {
	j := v.job
	if j.views[v.name] != v {
		return
	}
	delete(j.views, v.name)
	st.sites[v.name].views--
	st.dropSite(v.name)
	if len(j.views) == 0 && j.open == 0 && j.at == nil {
		delete(st.jobs, j.key)
	}
}

// dropSite forgets a site whose changes concern no job any more.
func (st *State) dropSite(name Name) {
	if site := st.sites[name]; site.views == 0 && (st.floor.until == 0 || site.changed.token <= st.floor.token) {
		delete(st.sites, name)
	}
}

// depart ends a session's part in its jobs. Its own job, where each session is one, leaves its last look to its client's.
func (st *State) depart(s *session, now Time) {
	if own := s.own; own != nil {
		own.open, own.ended = 0, now
		for _, v := range own.views {
			st.bequeath(v, s.client, now)
		}
		st.armJob(own)
	}
	j := s.client
	if j.open--; j.open > 0 {
		return
	}
	j.ended = now
	st.armJob(j)
	if len(j.views) == 0 {
		delete(st.jobs, j.key)
		return
	}
	j.at = st.ended.PushBack(j)
	st.sweepJobs(now)
}

// bequeath copies a view of a session's own job to the job of its client. A job with a nonce has looks of its own.
func (st *State) bequeath(v *view, to *job, now Time) {
	if to.key.nonce == "" && (v.seen || v.refused != nil) {
		heir := st.viewIn(to, v.name)
		if v.seen {
			heir.base, heir.known, heir.seen = v.base, true, true
		}
		heir.refused, heir.by, heir.at = v.refused, v.by, v.at
		heir.from, heir.until = now, later(now, st.graceAt(v.name))
	}
	if v.hold == nil {
		st.forget(v)
	}
}

// sweepJobs forgets jobs that ended long ago, or too many of them.
func (st *State) sweepJobs(now Time) {
	if st.floor.until != 0 && now >= st.floor.until {
		st.floor = floor{}
		for name := range st.sites {
			st.dropSite(name)
		}
	}
	for st.ended.Len() > 0 {
		j := st.ended.Front().Value.(*job)
		old := now >= later(j.ended, rememberJob)
		if !old && st.ended.Len() <= maxJobs {
			return
		}
		st.ended.Remove(j.at)
		j.at = nil
		for _, v := range j.views {
			if v.hold != nil {
				continue // the end of the hold forgets it
			}
			if !old {
				st.raise(v, now)
			}
			st.forget(v)
		}
	}
}

// raise has jobs of which nothing is known count as having seen no more than a view that has to be forgotten.
func (st *State) raise(v *view, now Time) {
	if v.known {
		if st.floor.until == 0 || v.base < st.floor.token {
			st.floor.token = v.base
		}
		st.floor.until = later(now, rememberJob)
	}
}

// viewOf returns the view that a session's job has of an automatic lock, new if need be. A new view changes no decision.
func (st *State) viewOf(s *session, name Name, rule *compiledRule) *view {
	if h := st.automaticHold(name); h != nil && (h.view.job == s.client || h.view.job == s.own) {
		return h.view // also after a reload of the key job
	}
	if !rule.automatic.Session || s.owner.Nonce != "" {
		return st.viewIn(s.client, name)
	}
	if s.own == nil {
		s.own = st.jobOf(jobKey{session: s.owner.Session}, s.owner)
		s.own.open = 1
	}
	v := s.own.views[name]
	if v == nil {
		v = st.viewIn(s.own, name)
		if heir := s.client.views[name]; heir != nil {
			v.base, v.known, v.seen = heir.base, heir.known, heir.seen
			if heir.refused != nil && s.opened.Boot >= heir.from && s.opened.Boot <= heir.until {
				v.refused, v.by, v.at = heir.refused, heir.by, heir.at
			}
		}
	}
	return v
}

// viewIn returns the view of a job, new if need be.
func (st *State) viewIn(j *job, name Name) *view {
	v := j.views[name]
	if v != nil {
		return v
	}
	if len(j.views) >= maxViews {
		st.evict(j)
	}
	if j.views == nil {
		j.views = make(map[Name]*view)
	}
	v = &view{job: j, name: name}
	j.views[name] = v
	st.siteOf(name).views++
	return v
}

// evict forgets one of the views of a job that has too many.
func (st *State) evict(j *job) {
	var old *view
	for _, v := range j.views {
		if v.hold == nil && (old == nil || v.active < old.active) {
			old = v
		}
	}
	if old != nil {
		st.raise(old, old.active)
		st.forget(old)
	}
}

// siteOf returns the site of a lock, new if need be.
func (st *State) siteOf(name Name) *site {
	is := st.sites[name]
	if is == nil {
		is = &site{}
		st.sites[name] = is
	}
	return is
}

// automaticHold returns the hold of a name that a job acquired automatically, or nil.
func (st *State) automaticHold(name Name) *hold {
	if n := st.nodes[name]; n != nil && len(n.holds) > 0 && n.holds[0].Automatic {
		return n.holds[0]
	}
	return nil
}

// graceAt returns how long after its last session a job ends.
func (st *State) graceAt(name Name) time.Duration {
	if h := st.automaticHold(name); h != nil {
		return h.Rule.Grace
	}
	if rule := st.rules.find(name); rule != nil {
		return rule.Grace
	}
	return 0
}

// armJob sets the alarms of a job's holds anew.
func (st *State) armJob(j *job) {
	for _, v := range j.views {
		if v.hold != nil {
			st.arm(v.hold)
		}
	}
}

// each visits the views of a session's jobs.
func (s *session) each(visit func(*view)) {
	for _, v := range s.client.views {
		visit(v)
	}
	if s.own != nil {
		for _, v := range s.own.views {
			visit(v)
		}
	}
}
