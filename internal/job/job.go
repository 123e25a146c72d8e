// Package job makes locks automatic: a program that sends no MKD gets the lock of the files that it changes.
//
// A [Manager] keeps, for each job and site, what the job has seen. A job is the sessions of one client, see [Rule]; a site is an automatic
// lock with the files that it protects. A [Session] is one client connection. Before a listing or a download it calls Look, before a
// change Change, and after a published change Published.
//
// Guarantees: a job changes files only while it holds the lock of their site, and only if no other job has changed the site since it
// looked. First it acquires the lock, as every client does, by a session of its own (lock.Table.OpenJob); then it compares the site's
// change counter with what it has seen. Published runs before the lock can end, so the holder compares a counter that does not move.
// After one refusal each change of the job is refused until the job starts anew, see the memory rules in visit.go.
//
// Caveats: a job of which nothing is remembered has seen everything, except in the first ten minutes after a start or new rules.
//
// Start reading at visit in visit.go, then at Session.Change in change.go.
package job

import (
	"cmp"
	"container/list"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Options are the parts of a Manager. All are needed.
type Options struct {
	Table *lock.Table
	Clock lock.Clock
	Rules *Rules
}

// Manager keeps the jobs of a table. It is for use by many goroutines.
//
// Its mutex is never held during a call of the table, because the table calls Observe and wakes waiting sessions with its own mutex held.
type Manager struct {
	table   *lock.Table
	clock   lock.Clock
	reports sync.WaitGroup // acquisitions under rules that only report
	stop    context.Context
	cancel  context.CancelFunc

	mu           sync.Mutex // guards everything below, the sessions, and all that these refer to
	rules        *Rules
	jobs         map[key]*job // jobs of open sessions, and ended ones with visits
	ended        list.List    // the ended jobs with visits, in the order of their ends
	sites        map[lock.Name]*site
	grants       map[lock.SessionID]*grant
	idle         []*lock.Session // sessions of ended grants, to close
	unknownUntil lock.Time       // until then, jobs of which nothing is known count as having seen nothing
}

// New returns a manager. Jobs that held locks at the end of an earlier process continue if they come back within their grace. Until Close,
// call Observe with each record of the table.
func New(o Options) *Manager {
	m := &Manager{
		table: o.Table, clock: o.Clock, rules: o.Rules,
		jobs: make(map[key]*job), sites: make(map[lock.Name]*site), grants: make(map[lock.SessionID]*grant),
	}
	m.stop, m.cancel = context.WithCancel(context.Background())
	now := m.clock.Now()
	if m.table.Granted() { // jobs may have looked before the start
		m.unknownUntil = now.Boot + rememberLook
	}
	for _, s := range m.table.All() {
		for _, h := range s.Holds {
			if !h.Job {
				continue
			}
			j := m.jobOf(keyOf(h.Owner))
			v := m.visitIn(j, h.Name, now.Boot)
			if rule := m.rules.ruleOf(h.Name); rule != nil {
				v.grace = rule.grace
			}
			v.left, v.ended, j.ended = now.Boot, now.Boot, now.Boot
			v.publish(h.Owner, h.Token, "", false, now)
			m.grants[h.Owner.Session] = &grant{visit: v, id: h.Owner.Session, token: h.Token, live: true}
			if j.inList == nil {
				j.inList = m.ended.PushBack(j)
			}
		}
	}
	return m
}

// Close ends the acquisitions under rules that only report. Close the sessions first.
func (m *Manager) Close() {
	m.cancel()
	m.reports.Wait()
}

// SetRules replaces the rules, after those of the table. Held locks stay until their jobs end. If rules differ, jobs may have looked
// unnoticed: for ten minutes those of which nothing is known count as having seen nothing.
// Nobody waits for a lock any more whose rule is gone or only reports.
func (m *Manager) SetRules(rules *Rules) {
	for _, a := range m.replaceRules(rules) {
		m.abandon(a)
	}
	m.tidy()
}

func (m *Manager) replaceRules(rules *Rules) (unwanted []*attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !rules.alike(m.rules) {
		m.unknownUntil = m.clock.Now().Boot + rememberLook
	}
	m.rules = rules
	return m.freeWaits()
}

// freeWaits ends the waits whose rule is gone or only reports now, and returns the attempts that no request waits for any more.
func (m *Manager) freeWaits() (unwanted []*attempt) {
	for _, j := range m.jobs {
		for _, v := range j.visits {
			a := v.attempt
			if a == nil {
				continue
			}
			if rule := m.rules.ruleOf(v.site.name); rule != nil && !rule.Report {
				continue
			}
			for w := range a.waiting {
				if w.rule.Report {
					continue
				}
				w.over()
				delete(a.waiting, w)
				if w.wake != nil {
					w.wake()
				}
			}
			if len(a.waiting) == 0 && !a.decided {
				v.attempt = nil
				if !a.polling {
					unwanted = append(unwanted, a)
				}
			}
		}
	}
	return unwanted
}

// Observe is for lock.Options.Observe: it follows the grants and ends of holds.
func (m *Manager) Observe(r *lock.Record) {
	if !r.Hold.Job || r.Kind != lock.Granted && r.Kind != lock.Ended {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.grants[r.Hold.Owner.Session]
	switch {
	case g == nil:
	case r.Kind == lock.Granted:
		g.token, g.live = r.Hold.Token, true
		maps.DeleteFunc(m.grants, func(_ lock.SessionID, old *grant) bool { return r.Replaces != 0 && old.token == r.Replaces })
	case r.Hold.Token == g.token:
		switch r.Cause {
		case lock.CauseExpire, lock.CauseBreak, lock.CauseHostGone: // after an idle end the job may continue
			lost := lock.LostError{Cause: r.Cause, Limit: r.Limit, By: r.By, Note: r.Note}
			if v := g.visit; v.refused == nil {
				v.refuse(&Error{Cause: Lost, By: r.By, Token: g.token, When: r.At.Wall, Why: &takenAway{lost}}, r.Hold.Owner, "", r.At)
			}
		}
		m.endGrant(g)
	}
}

// endGrant forgets a grant whose hold has ended or was never given. tidy closes its session later.
func (m *Manager) endGrant(g *grant) {
	if m.grants[g.id] != g {
		return
	}
	g.live = false
	delete(m.grants, g.id)
	if g.lock != nil {
		m.idle = append(m.idle, g.lock)
	}
	if v := g.visit; v.grant == g {
		v.grant = nil
	}
	m.dropIfEnded(g.visit)
}

// tidy closes the sessions of ended grants.
func (m *Manager) tidy() {
	m.mu.Lock()
	idle := m.idle
	m.idle = nil
	m.mu.Unlock()
	for _, s := range idle {
		s.Close(context.Background())
	}
}

// Session is one client connection. Its methods are for several goroutines, but no method after Close.
type Session struct {
	manager  *Manager
	client   *lock.Session
	maxLocks int

	// The manager's mutex guards these.

	owner  lock.Owner
	job    *job // of all sessions of the client
	own    *job // of this session alone, under rules with Session; nil: none
	visits map[*visit]struct{}
	waits  map[*Waiting]struct{}
	closed bool
}

// Open adds a connection to the job of its client. maxLocks is that of lock.Session.SetMaxLocks.
func (m *Manager) Open(client *lock.Session, maxLocks int) *Session {
	s := &Session{manager: m, client: client, maxLocks: maxLocks, owner: client.Owner()}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.join(s, m.clock.Now().Boot)
	return s
}

// Rejoin moves the connection to the job of its new job key, which inherits the looks of the old one. Call it after
// lock.Session.SetJobKey.
func (s *Session) Rejoin() {
	m, owner := s.manager, s.client.Owner()
	m.mu.Lock()
	if s.closed || keyOf(owner) == s.job.key {
		s.owner = owner
		m.mu.Unlock()
		return
	}
	now, old := m.clock.Now().Boot, s.job
	grants := m.leave(s, now)
	s.owner, s.own, s.visits = owner, nil, nil
	m.join(s, now)
	for name, was := range old.visits {
		if was.looked == 0 {
			continue
		}
		if v := m.visitIn(s.job, name, now); v.looked == 0 && !v.worked && v.refused == nil {
			v.grace, v.looked, v.seen = was.grace, was.looked, was.seen
			if was.grant != nil && was.grant.turn == 0 { // its other sessions may change files later
				v.seen = min(v.seen, was.site.changes)
			}
		}
	}
	m.mu.Unlock()
	m.adjust(grants...)
	m.tidy()
}

// Close ends the connection after its transfers. The grace of a lock begins if no other session of the job has touched its site.
func (s *Session) Close() {
	m := s.manager
	m.mu.Lock()
	if s.closed {
		m.mu.Unlock()
		return
	}
	waits := make([]*Waiting, 0, len(s.waits))
	for w := range s.waits {
		waits = append(waits, w)
	}
	m.mu.Unlock()
	for _, w := range waits {
		w.Withdraw()
	}
	m.mu.Lock()
	s.closed = true
	now := m.clock.Now().Boot
	grants := m.leave(s, now)
	m.sweep(now)
	m.mu.Unlock()
	m.adjust(grants...)
	m.tidy()
}

// join adds a session to the job of its client.
func (m *Manager) join(s *Session, now lock.Time) {
	j := m.jobOf(keyOf(s.owner))
	if j.inList != nil {
		m.ended.Remove(j.inList)
		j.inList = nil
	}
	if j.open++; j.open == 1 {
		for _, v := range j.visits {
			v.forget(now, m.isUnknown(v.site, now))
		}
	}
	s.job = j
}

// isUnknown reports whether jobs of which nothing is known count as having looked long ago.
func (m *Manager) isUnknown(s *site, now lock.Time) bool {
	return now < m.unknownUntil || now < s.unseenUntil
}

// leave removes a session from its jobs, and returns the grants whose end changes.
func (m *Manager) leave(s *Session, now lock.Time) (grants []*grant) {
	for v := range s.visits {
		if v.sessions--; v.sessions == 0 {
			v.left = now
			if v.grant != nil {
				grants = append(grants, v.grant)
			}
		}
	}
	if own := s.own; own != nil {
		own.open = 0
		for _, v := range own.visits {
			v.ended = now
			if v.looked != 0 || v.refused != nil || v.worked && m.isUnknown(v.site, now) {
				heir := m.visitIn(s.job, v.site.name, now)
				heir.memory, heir.grace = v.memory, v.grace
			}
			m.dropIfEnded(v)
		}
	}
	j := s.job
	if j.open--; j.open > 0 {
		return grants
	}
	j.ended = now
	for _, v := range j.visits {
		v.duplicates.commands = nil
		v.ended = now
		m.dropIfEnded(v)
	}
	if len(j.visits) == 0 {
		delete(m.jobs, j.key)
		return grants
	}
	j.inList = m.ended.PushBack(j)
	return grants
}

// jobOf returns the job with the key. It adds a new one if necessary.
func (m *Manager) jobOf(k key) *job {
	j := m.jobs[k]
	if j == nil {
		j = &job{key: k, visits: make(map[lock.Name]*visit)}
		m.jobs[k] = j
	}
	return j
}

// visitIn returns the visit of a job at a site. It adds an empty one if necessary.
func (m *Manager) visitIn(j *job, name lock.Name, now lock.Time) *visit {
	if v := j.visits[name]; v != nil {
		return v
	}
	if len(j.visits) >= maxVisits {
		m.dropOldest(j, now)
	}
	is := m.sites[name]
	if is == nil {
		is = &site{name: name}
		m.sites[name] = is
	}
	is.visits++
	v := &visit{job: j, site: is}
	j.visits[name] = v
	return v
}

// visit returns the visit of the session at a site. A lock that the session's job holds stays that of this visit, even if a reload has
// changed the rule.
func (m *Manager) visit(s *Session, name lock.Name, rule *siteRule, now lock.Time) *visit {
	for _, j := range []*job{s.own, s.job} {
		if j != nil && j.visits[name] != nil && j.visits[name].grant != nil {
			return j.visits[name]
		}
	}
	if !rule.Session || s.owner.JobKey != "" {
		v := m.visitIn(s.job, name, now)
		v.grace = rule.grace
		return v
	}
	if s.own == nil {
		s.own = m.jobOf(key{session: s.owner.Session})
		s.own.open = 1
	}
	v := s.own.visits[name]
	if v == nil {
		v = m.visitIn(s.own, name, now)
		if heir := s.job.visits[name]; heir != nil {
			v.memory = heir.memory
			v.forget(now, m.isUnknown(v.site, now))
		}
	}
	v.grace = rule.grace
	return v
}

// enter adds the session to the visit. A look of a session that is the first one at the site begins a new run, after the grace of the
// last one.
func (s *Session) enter(v *visit, look bool, now lock.Time) {
	if _, there := s.visits[v]; there {
		return
	}
	if look && v.sessions == 0 && v.grant == nil && now >= v.left+v.grace {
		v.begin()
	}
	if s.visits == nil {
		s.visits = make(map[*visit]struct{})
	}
	s.visits[v] = struct{}{}
	v.sessions++
}

// dropIfEnded drops a visit without a session that no later session of its job needs.
func (m *Manager) dropIfEnded(v *visit) {
	if v.job.open > 0 || v.grant != nil || v.attempt != nil {
		return
	}
	known := v.looked != 0 || v.refused != nil || v.worked && m.isUnknown(v.site, m.clock.Now().Boot)
	if !known || v.job.key.session != 0 {
		m.drop(v)
	}
}

// drop drops a visit, its site without visits, and its job if that has ended and has no other visit.
func (m *Manager) drop(v *visit) {
	j, is := v.job, v.site
	if j.visits[is.name] != v {
		return
	}
	delete(j.visits, is.name)
	if is.visits--; is.visits == 0 && (is.changes == 0 || !m.isUnknown(is, m.clock.Now().Boot)) {
		m.unknownUntil = max(m.unknownUntil, is.unseenUntil) // a client may look at any number of sites
		delete(m.sites, is.name)
	}
	if len(j.visits) == 0 && j.open == 0 {
		if j.inList != nil {
			m.ended.Remove(j.inList)
			j.inList = nil
		}
		delete(m.jobs, j.key)
	}
}

// dropOldest drops the visit with the oldest look of a job, without a hold.
func (m *Manager) dropOldest(j *job, now lock.Time) {
	var old *visit
	for _, v := range j.visits {
		if v.grant == nil && v.attempt == nil && v.refused == nil && (old == nil || v.looked < old.looked) {
			old = v
		}
	}
	if old != nil {
		m.dropEarly(old, now)
	}
}

// dropEarly drops a visit that later sessions could need: for ten minutes, its job counts as having seen no more than it says.
func (m *Manager) dropEarly(v *visit, now lock.Time) {
	if is := v.site; v.looked != 0 {
		if now >= is.unseenUntil || v.seen < is.unseen {
			is.unseen = v.seen
		}
		is.unseenUntil = now + rememberLook
	}
	m.drop(v)
}

// sweep drops jobs that ended long ago, and the oldest ended jobs above maxJobs.
func (m *Manager) sweep(now lock.Time) {
	for m.ended.Len() > 0 {
		j := m.ended.Front().Value.(*job)
		old := now >= j.ended+rememberLook
		if !old && m.ended.Len() <= maxJobs {
			break
		}
		m.ended.Remove(j.inList)
		j.inList = nil
		for _, v := range j.visits {
			switch {
			case v.grant != nil || v.attempt != nil: // until the grace is over
			case old:
				m.drop(v)
			default:
				m.dropEarly(v, now)
			}
		}
		if len(j.visits) > 0 {
			j.inList = m.ended.PushBack(j)
			break
		}
	}
	if m.unknownUntil != 0 && now >= m.unknownUntil { // sites that were kept for unknown jobs
		m.unknownUntil = 0
		for name, is := range m.sites {
			if is.visits == 0 && now >= is.unseenUntil {
				delete(m.sites, name)
			}
		}
	}
}

// Refused is a job that may not change the files of an automatic lock.
type Refused struct {
	Lock   lock.Name
	Owner  lock.Owner   // of the session that was refused first
	At     lock.Instant // time of the refusal
	Why    *Error
	Report bool // the rule only reports: nothing is refused
}

// Refused returns the refused jobs, sorted by lock and time.
func (m *Manager) Refused() (all []Refused) {
	m.mu.Lock()
	now := m.clock.Now().Boot
	m.eachRefused(now, func(v *visit) {
		rule := m.rules.ruleOf(v.site.name)
		all = append(all, Refused{Lock: v.site.name, Owner: v.by, At: v.at, Why: v.refused, Report: rule != nil && rule.Report})
	})
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b Refused) int {
		return cmp.Or(strings.Compare(string(a.Lock), string(b.Lock)), cmp.Compare(a.At.Boot, b.At.Boot))
	})
	return all
}

// eachRefused visits the refused jobs.
func (m *Manager) eachRefused(now lock.Time, visit func(*visit)) {
	for _, j := range m.jobs {
		for _, v := range j.visits {
			if j.open == 0 {
				v.forget(now, m.isUnknown(v.site, now))
			}
			if v.refused != nil {
				visit(v)
			}
		}
	}
}

// Clear ends the refusals of the jobs of a lock, or of those of one account and address, and returns their number. The jobs count as having
// seen all changes.
func (m *Manager) Clear(name lock.Name, account, address string) (cleared int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now().Boot
	m.eachRefused(now, func(v *visit) {
		if v.site.name == name && (account == "" || v.by.Account == account && (address == "" || v.by.Address == address)) {
			v.begin()
			v.look(now)
			cleared++
		}
	})
	return cleared
}

// Changed returns the number of files that the holder of a lock has changed, and the last one.
func (m *Manager) Changed(name lock.Name, token lock.Token) (files int, last lock.Name) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is := m.sites[name]; is != nil && is.token == token {
		return is.files, is.last
	}
	return 0, ""
}

// Client returns the session of the client for which a session of the manager holds a lock; other sessions, and those of locks from before a
// restart, are their own.
func (m *Manager) Client(id lock.SessionID) lock.SessionID {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.grants[id]; g != nil && g.client != 0 {
		return g.client
	}
	return id
}
