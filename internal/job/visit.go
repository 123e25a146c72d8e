package job

import (
	"container/list"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The memory rules. Real programs were tried with each of them: shorter ones mix the versions of two jobs.
const (
	// rememberLook is the time after a look, or after the refusal of a run, in which it counts for the next sessions of the job.
	// Later sessions do not renew it.
	rememberLook = 10 * time.Minute
	// rememberUsed replaces it for a look whose job has changed something since: the time without a session.
	rememberUsed = time.Minute
	// rememberRefused is the time without a session after which a refused job starts anew. Each session renews it.
	rememberRefused = 2 * time.Minute

	waitedTurn = 5 * time.Second // the shortest turn of a job that has waited

	// maxJobs bounds the ended jobs on record, and maxVisits the visits of one job.
	maxJobs, maxVisits = 10_000, 64
)

// key identifies a job: the sessions of an account with one job key, or without a job key from one address; or one session.
type key struct {
	account, address, jobKey string
	session                  lock.SessionID
}

// keyOf returns the key of a client.
func keyOf(o lock.Owner) key {
	if o.JobKey != "" {
		return key{account: o.Account, jobKey: o.JobKey}
	}
	return key{account: o.Account, address: lock.NetworkOf(o.Address)}
}

// job is the sessions with one key.
type job struct {
	key    key
	open   int           // number of open sessions
	ended  lock.Time     // with open = 0: end of the last session
	inList *list.Element // with open = 0: its place in Manager.ended
	visits map[lock.Name]*visit
}

// memory is what a job has seen of a site. The sessions of a client share it, one run after the other.
type memory struct {
	seen    uint64     // the site's change counter at the job's first look of this run, and after each change of its own
	looked  lock.Time  // of that look; 0: the job has not looked
	worked  bool       // the job has changed something, so it knows seen without a look
	changed bool       // it has changed something in this run
	left    lock.Time  // with no session at the site: end of the last one there
	ended   lock.Time  // end of the last session of the job, anywhere
	refused *Error     // why every change is refused; nil: none is
	by      lock.Owner // with refused: the refused session
	at      lock.Instant
	path    lock.Name // with refused: the path of the change
}

// visit is a job at one site: at an automatic lock and the files that it protects.
type visit struct {
	memory
	job        *job
	site       *site
	grace      time.Duration // of the rule, at the last look or change
	sessions   int           // open sessions that have looked at or changed this site
	grant      *grant        // while the job holds the site's lock; nil: it does not
	attempt    *attempt      // to acquire it; nil: none is under way
	duplicates duplicates
}

// site is the state of one automatic lock that all its jobs share.
type site struct {
	name    lock.Name
	visits  int
	changes uint64 // number of changes of its files

	// Of the last change:

	by    lock.Owner
	token lock.Token // of its hold; 0 under a rule that only reports
	files int        // number of files changed under the token
	last  lock.Name  // its path
	at    lock.Instant

	// Jobs of which nothing is known count as having seen the changes up to unseen, until the time.
	unseen      uint64
	unseenUntil lock.Time
}

// forget drops what later sessions of the job do not remember: it applies the memory rules. The job has had no session since ended.
func (m *memory) forget(now lock.Time, keepSeen bool) {
	if m.refused != nil {
		if now < m.at.Boot+rememberLook && now < m.ended+rememberRefused {
			return
		}
		m.refused = nil
		m.changed = false
		m.looked = 0
	}
	if m.looked != 0 && now >= m.looked+rememberLook || m.changed && now >= m.ended+rememberUsed {
		m.looked, m.changed = 0, false
	}
	if m.looked == 0 && !keepSeen {
		m.worked = false
	}
}

// begin begins a new run, with a look.
func (v *visit) begin() {
	v.looked, v.changed, v.refused = 0, false, nil
	v.duplicates = duplicates{}
}

// refuse records that all changes of the job are refused from now on.
func (v *visit) refuse(why *Error, by lock.Owner, path lock.Name, at lock.Instant) {
	v.refused, v.by, v.path, v.at = why, by, path, at
}

// look records the first look of a run.
func (v *visit) look(now lock.Time) {
	if v.looked == 0 && v.refused == nil {
		v.looked, v.seen = now, v.site.changes
	}
}

// publish counts a change of the job under a token.
func (v *visit) publish(o lock.Owner, token lock.Token, path lock.Name, file bool, now lock.Instant) {
	s := v.site
	current := v.seen == s.changes || v.looked == 0 && !v.worked
	s.changes++
	if s.token != token || keyOf(s.by) != keyOf(o) {
		s.files = 0
	}
	if file {
		s.files++
	}
	s.by, s.token, s.last, s.at = o, token, path, now
	if current { // under a rule that only reports, another job may have changed files meanwhile
		v.seen = s.changes
	}
	v.worked, v.changed = true, true
	if v.job.key.jobKey != "" { // it names one run: its own changes count as its look
		v.looked, v.changed = now.Boot, false
	}
}

// stale returns an error if another job has changed the site since this one looked.
func (v *visit) stale(now, unknownUntil lock.Time) *Error {
	s, seen := v.site, v.seen
	if v.looked == 0 && !v.worked { // nothing is known
		switch {
		case now < unknownUntil:
			seen = 0
		case now < s.unseenUntil:
			seen = s.unseen
		default:
			return nil
		}
	}
	if s.changes <= seen {
		return nil
	}
	return &Error{Cause: Stale, By: s.by, Token: s.token, Files: s.files, Looked: v.looked != 0, When: s.at.Wall}
}
