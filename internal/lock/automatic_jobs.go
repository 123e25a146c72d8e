package lock

import (
	"container/list"
	"time"
)

// An automatic lock belongs to a job: the sessions of one program. This file defines what a State records about jobs, and when it drops the
// records.

const (
	// rememberJob is the time after the end of a job that looked in which its last look counts for sessions of the same client that do not
	// look.
	rememberJob = 10 * time.Minute
	// freshAfter is the time of inactivity after which the next look of a job counts as its first.
	freshAfter = time.Minute
	// maxJobs bounds the ended jobs on record, and maxViews the views of one job.
	maxJobs, maxViews = 10_000, 64
)

// jobKey identifies a job: the sessions of an account with one nonce, or without a nonce from one address; or one session.
type jobKey struct {
	account, address, nonce string
	session                 SessionID
}

// keyOf returns the key of an owner's job. IPv6 addresses count as in NetworkOf.
func keyOf(o Owner) jobKey {
	if o.Nonce != "" {
		return jobKey{account: o.Account, nonce: o.Nonce}
	}
	return jobKey{account: o.Account, address: NetworkOf(o.Address)}
}

// job is the sessions with one jobKey.
type job struct {
	key          jobKey
	owner        Owner
	open         int           // number of open sessions
	ended        Time          // with open = 0: end of the last session
	endedElement *list.Element // with open = 0: its place in State.ended; nil: the end of its hold drops it
	views        map[Name]*jobView
}

// jobView records which changes one job has seen of the files of one automatic lock. An empty view has the same effect as none.
type jobView struct {
	job    *job
	name   Name
	looked bool // the first look of the job is over
	// With known, the job has seen the changes under tokens up to base.
	base         Token
	known        bool
	everLooked   bool      // the job, or its predecessor, has looked
	lookEnded    Time      // with everLooked: end of the last job that looked itself
	active       Time      // time of the last look, change or transferred byte
	hold         *liveHold // the automatic hold of the job; nil: none
	refused      *JobError // all changes of the job are refused; nil: they are not
	refusedOwner Owner     // of the refused session
	refusedAt    Instant   // time of the refusal
	// If each session is a job, the job of the client has these: sessions that open between from and until without a look of their own
	// continue the refused job.
	inheritFrom, inheritUntil Time
	signs                     signs
}

// site is the state of one automatic lock that all its jobs share.
type site struct {
	views   int // number of views
	changed fileChanges
}

// fileChanges counts the changes of files under the last token.
type fileChanges struct {
	token Token
	by    Owner
	files int
	last  Name // the last changed file
	at    Instant
}

// floor applies to jobs without a view after a start, a change of the rules, or the loss of old views: until the time, they count as having
// seen the changes under tokens up to this one.
type floor struct {
	token Token
	until Time
}

// join adds a session to the job of its client.
func (st *State) join(s *sessionState, now Time) {
	j := st.jobOf(keyOf(s.owner), s.owner)
	if j.open++; j.open == 1 {
		st.beginJob(j, now)
	}
	if j.endedElement != nil {
		st.ended.Remove(j.endedElement)
		j.endedElement = nil
	}
	s.clientJob = j
	st.armJob(j)
}

// jobOf returns the job with the key. It adds a new one if necessary.
func (st *State) jobOf(key jobKey, o Owner) *job {
	j := st.jobs[key]
	if j == nil {
		j = &job{key: key, owner: o}
		st.jobs[key] = j
	}
	return j
}

// beginJob ends the views of the client's earlier job. Within the grace the earlier job continues.
func (st *State) beginJob(j *job, now Time) {
	for _, v := range j.views {
		switch {
		case v.hold != nil:
		case now >= later(j.ended, rememberJob):
			st.dropView(v)
		case now > later(j.ended, st.graceAt(v.name)):
			v.restart()
			v.known = v.known && v.isInheritable(now)
		}
	}
}

// isInheritable reports whether the look of an earlier job counts for a new one that does not look.
func (v *jobView) isInheritable(now Time) bool {
	return v.everLooked && now < later(v.lookEnded, rememberJob)
}

// restart makes the view that of a new job, which inherits the last look of the old one, if there was a look.
func (v *jobView) restart() {
	v.looked, v.known, v.refused, v.signs = false, v.known && v.everLooked, nil, signs{}
}

// dropView drops a view, and its job if that has ended and has no other view.
func (st *State) dropView(v *jobView) {
	j := v.job
	if j.views[v.name] != v {
		return
	}
	delete(j.views, v.name)
	st.sites[v.name].views--
	st.dropSite(v.name)
	if len(j.views) == 0 && j.open == 0 && j.endedElement == nil {
		delete(st.jobs, j.key)
	}
}

// dropSite drops a site whose changes concern no job.
func (st *State) dropSite(name Name) {
	if site := st.sites[name]; site.views == 0 && (st.floor.until == 0 || site.changed.token <= st.floor.token) {
		delete(st.sites, name)
	}
}

// depart removes a session from its jobs. If each session is a job, the job of the client inherits its last look.
func (st *State) depart(s *sessionState, now Time) {
	if own := s.ownJob; own != nil {
		own.open, own.ended = 0, now
		for _, v := range own.views {
			v.depart(now)
			st.bequeath(v, s.clientJob, now)
		}
		st.armJob(own)
	}
	j := s.clientJob
	if j.open--; j.open > 0 {
		return
	}
	j.ended = now
	for _, v := range j.views {
		v.depart(now)
	}
	st.armJob(j)
	if len(j.views) == 0 {
		delete(st.jobs, j.key)
		return
	}
	j.endedElement = st.ended.PushBack(j)
	st.sweepJobs(now)
}

// depart records the end of the last session of the view's job.
func (v *jobView) depart(now Time) {
	v.signs.commands = nil // up to 100 KiB
	if v.looked {
		v.lookEnded = now
	}
}

// bequeath copies a view of a session's own job to the job of its client, unless that has a nonce.
func (st *State) bequeath(v *jobView, to *job, now Time) {
	if to.key.nonce == "" && (v.everLooked || v.refused != nil || v.known && now < st.floor.until) {
		heir := st.viewIn(to, v.name, now)
		heir.active = now
		switch {
		case v.everLooked:
			heir.base, heir.known, heir.everLooked, heir.lookEnded = v.base, true, true, max(heir.lookEnded, v.lookEnded)
		case !heir.everLooked: // with a floor, the client's own changes are no reason for a refusal
			heir.base = max(heir.base, v.base)
		}
		heir.refused, heir.refusedOwner, heir.refusedAt = v.refused, v.refusedOwner, v.refusedAt
		heir.inheritFrom, heir.inheritUntil = now, later(now, st.graceAt(v.name))
	}
	if v.hold == nil {
		st.dropView(v)
	}
}

// sweepJobs drops jobs that ended long ago, and the oldest ended jobs above maxJobs.
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
		st.ended.Remove(j.endedElement)
		j.endedElement = nil
		for _, v := range j.views {
			if v.hold != nil {
				continue // the end of the hold drops it
			}
			if !old {
				st.raiseFloor(v, now)
			}
			st.dropView(v)
		}
	}
}

// raiseFloor sets the floor for a view that has to be dropped early, so that its job counts as having seen no more than the view says.
func (st *State) raiseFloor(v *jobView, now Time) {
	if v.known {
		if st.floor.until == 0 || v.base < st.floor.token {
			st.floor.token = v.base
		}
		st.floor.until = later(now, rememberJob)
	}
}

// viewOf returns the view of the session's job. It adds an empty one if necessary, which changes no decision.
func (st *State) viewOf(s *sessionState, name Name, rule *compiledRule, now Time) *jobView {
	if h := st.automaticHold(name); h != nil && (h.view.job == s.clientJob || h.view.job == s.ownJob) {
		return h.view // even if a reload has changed the key job
	}
	if !rule.automatic.Session || s.owner.Nonce != "" {
		return st.viewIn(s.clientJob, name, now)
	}
	if s.ownJob == nil {
		s.ownJob = st.jobOf(jobKey{session: s.owner.Session}, s.owner)
		s.ownJob.open = 1
	}
	v := s.ownJob.views[name]
	if v == nil {
		v = st.viewIn(s.ownJob, name, now)
		if heir := s.clientJob.views[name]; heir != nil {
			v.base, v.known = heir.base, heir.known && heir.isInheritable(now)
			v.everLooked, v.lookEnded = v.known, heir.lookEnded
			if heir.refused != nil && s.opened.Boot >= heir.inheritFrom && s.opened.Boot <= heir.inheritUntil {
				v.refused, v.refusedOwner, v.refusedAt = heir.refused, heir.refusedOwner, heir.refusedAt
			}
		}
	}
	return v
}

// viewIn returns the view of a job. It adds an empty one if necessary.
func (st *State) viewIn(j *job, name Name, now Time) *jobView {
	v := j.views[name]
	if v != nil {
		return v
	}
	if len(j.views) >= maxViews {
		st.dropOldestView(j, now)
	}
	if j.views == nil {
		j.views = make(map[Name]*jobView)
	}
	v = &jobView{job: j, name: name}
	j.views[name] = v
	st.siteOf(name).views++
	return v
}

// dropOldestView drops the least active view of a job without a hold.
func (st *State) dropOldestView(j *job, now Time) {
	var old *jobView
	for _, v := range j.views {
		if v.hold == nil && (old == nil || v.active < old.active) {
			old = v
		}
	}
	if old != nil {
		st.raiseFloor(old, now)
		st.dropView(old)
	}
}

// siteOf returns the site of a lock. It adds a new one if necessary.
func (st *State) siteOf(name Name) *site {
	is := st.sites[name]
	if is == nil {
		is = &site{}
		st.sites[name] = is
	}
	return is
}

// automaticHold returns the automatic hold of a name, or nil.
func (st *State) automaticHold(name Name) *liveHold {
	if n := st.nodes[name]; n != nil && len(n.holds) > 0 && n.holds[0].Automatic {
		return n.holds[0]
	}
	return nil
}

// graceAt returns the time from the end of the last session of a job to the end of the job.
func (st *State) graceAt(name Name) time.Duration {
	if h := st.automaticHold(name); h != nil {
		return h.Rule.Grace
	}
	if rule := st.rules.find(name); rule != nil {
		return rule.holdRule.Grace
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

// eachView visits the views of a session's jobs.
func (s *sessionState) eachView(visit func(*jobView)) {
	for _, v := range s.clientJob.views {
		visit(v)
	}
	if s.ownJob != nil {
		for _, v := range s.ownJob.views {
			visit(v)
		}
	}
}
