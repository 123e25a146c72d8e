package job

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// grant is one acquisition of a site's lock for a job.
type grant struct {
	visit  *visit
	lock   *lock.Session // of the manager: it acquires and holds the lock; nil: the process before a restart acquired it
	id     lock.SessionID
	client lock.SessionID // the session whose request acquired it; 0: not known
	end    sync.Mutex     // held while the end of the hold is set

	// The manager's mutex guards these.

	token   lock.Token
	live    bool      // the hold stands
	turn    lock.Time // end of the turn of a job that has only looked; 0: it has changed files
	unused  bool      // the job does not need the hold
	taken   bool      // the job has sent MKD, too
	adopted bool      // the job acquired it before a restart
}

// attempt is an acquisition under way. The looks and changes of a job wait for it together.
type attempt struct {
	grant   *grant                // with queued
	queued  *lock.Waiting         // nil: the table, or finish, decides
	polling bool                  // a caller polls queued
	decided bool                  // finish has the result
	waiting map[*Waiting]struct{} // empty: all have withdrawn
	woken   chan struct{}         // of a rule that only reports: has a message if queued may be over
}

// Waiting is a look or a change that waits for the site's lock. It needs no goroutine: wake is called, perhaps with the table's mutex
// held, when Poll may have something to do. Poll and Withdraw are for one goroutine.
type Waiting struct {
	session *Session
	owner   lock.Owner
	visit   *visit
	look    bool
	path    lock.Name
	wake    func()
	rule    *siteRule
	until   lock.Time // end of the wait

	// The manager's mutex guards these.

	attempt *attempt // nil: the wait is over
	err     error
}

// Look records a look of the session at a path. The first look of a run waits while another job holds the site's lock: then the Waiting is
// not nil, and the look continues after it, whatever its result. Call Look before the file or directory is read, and not for clients that
// may only read.
func (s *Session) Look(ctx context.Context, path lock.Name, command Command, wake func()) *Waiting {
	w, _ := s.request(ctx, true, path, command, wake)
	return w
}

// Change decides whether the session may change a path that has an automatic lock. Without the lock, it acquires it. While another job
// holds it, the change waits, and the Waiting is not nil. An *Error refuses this change and all later ones of the job at this site, until
// the job starts anew. Make the change in lock.Session.Write with the session of Under, and call Published in it.
func (s *Session) Change(ctx context.Context, path lock.Name, command Command, wake func()) (*Waiting, error) {
	return s.request(ctx, false, path, command, wake)
}

// Under returns the session whose hold allows a change of the path, for lock.Write; nil: that of the client.
func (s *Session) Under(path lock.Name) *lock.Session {
	m := s.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := s.grantOf(path); g != nil {
		return g.lock
	}
	return nil
}

// grantOf returns the hold of the session's job at the site of a path, or nil.
func (s *Session) grantOf(path lock.Name) *grant {
	name, _ := s.manager.rules.site(path)
	return s.grantAt(name)
}

// grantAt returns the hold of a lock by the session's job, or nil.
func (s *Session) grantAt(name lock.Name) *grant {
	for _, j := range []*job{s.own, s.job} {
		if j != nil && j.visits[name] != nil && j.visits[name].grant != nil {
			return j.visits[name].grant
		}
	}
	return nil
}

// Take is MKD of a lock that the session's job holds automatically: the job keeps it as after a change, and may release it. Take returns
// false if the job does not hold it.
func (s *Session) Take(name lock.Name) (lock.Hold, bool) {
	m := s.manager
	m.mu.Lock()
	g := s.grantAt(name)
	if g != nil {
		g.taken, g.turn = true, 0
	}
	m.mu.Unlock()
	if g == nil || !m.adjust(g) {
		return lock.Hold{}, false
	}
	g.lock.Touch()
	h, err := g.lock.ActsFor(name)
	return h, err == nil
}

// Holds reports whether the session's job holds a lock automatically.
func (s *Session) Holds(name lock.Name) bool {
	s.manager.mu.Lock()
	defer s.manager.mu.Unlock()
	return s.grantAt(name) != nil
}

// HoldsUntil is lock.Session.HoldsUntil for the locks that the session's job holds automatically.
func (s *Session) HoldsUntil() (until time.Duration, endless, ok bool) {
	var held []*lock.Session
	s.manager.mu.Lock()
	for _, j := range []*job{s.own, s.job} {
		if j == nil {
			continue
		}
		for _, v := range j.visits {
			if v.grant != nil {
				held = append(held, v.grant.lock)
			}
		}
	}
	s.manager.mu.Unlock()
	for _, h := range held {
		at, never, holds := h.HoldsUntil()
		until, endless, ok = max(until, at), endless || never, ok || holds
	}
	return until, endless, ok
}

// Release is RMD of a lock that the session's job holds automatically: only after Take it ends the hold, otherwise the error is
// ErrAutomatic. mine is false if the job does not hold it.
func (s *Session) Release(ctx context.Context, name lock.Name) (mine bool, err error) {
	m := s.manager
	m.mu.Lock()
	g := s.grantAt(name)
	taken := g != nil && g.taken
	m.mu.Unlock()
	switch {
	case g == nil:
		return false, nil
	case !taken:
		return true, ErrAutomatic
	}
	defer m.tidy()
	return true, g.lock.Release(ctx, name)
}

// Published counts a change of a path. Call it within the lock.Session.Write of the change, with the token of its permit. file reports that
// the content of a file changed, rather than its time or name.
func (s *Session) Published(path lock.Name, token lock.Token, file bool) {
	m := s.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if name, rule := m.rules.site(path); name != "" && !s.closed {
		now := m.clock.Now()
		m.visit(s, name, rule, now.Boot).publish(s.owner, token, path, file, now)
	}
}

// Wrote is a sign of life of a client that uploads bytes to a path, for the lock of its site.
func (s *Session) Wrote(path lock.Name) {
	m := s.manager
	m.mu.Lock()
	g := s.grantOf(path)
	m.mu.Unlock()
	if g != nil {
		g.lock.Touch()
	}
}

// Acquired records that the session acquired the site's lock by MKD, which counts as a look.
func (s *Session) Acquired(name lock.Name) {
	m := s.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	rule := m.rules.ruleOf(name)
	if rule == nil || s.closed {
		return
	}
	v := m.visit(s, name, rule, m.clock.Now().Boot)
	s.enter(v, true, m.clock.Now().Boot)
	if v.refused == nil {
		v.looked, v.seen = m.clock.Now().Boot, v.site.changes
	}
}

// request is Look or Change.
func (s *Session) request(ctx context.Context, look bool, path lock.Name, command Command, wake func()) (*Waiting, error) {
	m := s.manager
	m.mu.Lock()
	name, rule := m.rules.site(path)
	m.mu.Unlock()
	if name == "" {
		return nil, nil
	}
	defer m.tidy()
	_, err := s.client.ActsFor(name)
	explicit := err == nil // by MKD
	now := m.clock.Now()
	m.mu.Lock()
	if s.closed {
		m.mu.Unlock()
		return nil, lock.ErrEnded
	}
	v := m.visit(s, name, rule, now.Boot)
	s.enter(v, look, now.Boot)
	warning := v.note(command, path, s.owner.Session, now.Boot)
	w := &Waiting{
		session: s, owner: s.owner, visit: v, look: look, path: path, wake: wake, rule: rule, until: now.Boot + rule.Wait,
	}
	m.mu.Unlock()
	if warning != "" {
		_ = m.table.Remark(ctx, lock.CauseTwoRuns, lock.Hold{Name: name, Owner: w.owner}, path, warning)
	}
	if waits, err := m.begin(ctx, w, explicit); !waits || rule.Report {
		return nil, err
	}
	return w, nil
}

// begin decides a request, or makes it wait for an attempt.
func (m *Manager) begin(ctx context.Context, w *Waiting, explicit bool) (waits bool, err error) {
	v := w.visit
	for {
		m.mu.Lock()
		now, held := m.clock.Now().Boot, v.grant
		switch {
		case !w.look && v.refused != nil:
			refused := v.refused
			m.mu.Unlock()
			return false, m.reply(w, refused)
		case w.look && (explicit || held != nil || v.looked != 0 || v.refused != nil):
			v.look(now)
			m.mu.Unlock()
			m.adjust(held)
			return false, nil
		case explicit:
			m.mu.Unlock()
			return false, nil
		}
		stale := v.stale(now, m.unknownUntil)
		switch {
		case w.look:
		case stale != nil:
			if held != nil { // by a look that came after a refusal was cleared
				held.unused = true
			}
			m.mu.Unlock()
			m.adjust(held)
			return false, m.refuse(ctx, w, stale)
		case held != nil:
			held.turn = 0
			m.mu.Unlock()
			if m.adjust(held) {
				held.lock.Touch()
				return false, nil
			}
			m.mu.Lock()
			m.endGrant(held)
			m.mu.Unlock()
			continue
		}
		a, joins := v.attempt, v.attempt != nil
		if !joins {
			a = &attempt{waiting: make(map[*Waiting]struct{}), woken: make(chan struct{}, 1)}
			v.attempt = a
		}
		if !joins || !w.rule.Report || !w.look {
			w.attempt = a
			a.waiting[w] = struct{}{}
		}
		if !w.rule.Report {
			w.session.addWait(w)
		}
		m.mu.Unlock()
		switch {
		case joins:
			return true, nil
		case w.rule.Report:
			m.reports.Go(func() { m.acquireAlone(a, w) })
			return true, nil
		}
		m.acquire(ctx, a, w)
		m.mu.Lock()
		defer m.mu.Unlock()
		return w.attempt != nil, w.err
	}
}

func (s *Session) addWait(w *Waiting) {
	if s.waits == nil {
		s.waits = make(map[*Waiting]struct{})
	}
	s.waits[w] = struct{}{}
}

// acquire begins the acquisition of an attempt, for its first request.
func (m *Manager) acquire(ctx context.Context, a *attempt, w *Waiting) {
	g := &grant{visit: w.visit, lock: m.table.OpenJob(w.owner), client: w.owner.Session}
	g.id = g.lock.ID()
	g.lock.SetMaxLocks(w.session.maxLocks)
	g.lock.SetWait(w.until - m.clock.Now().Boot)
	m.mu.Lock()
	m.grants[g.id] = g
	m.mu.Unlock()
	_, adopted, queued, err := g.lock.AcquireOrWait(ctx, w.visit.site.name, func() { m.wake(a) })
	g.adopted = adopted != 0
	if queued == nil {
		m.finish(ctx, a, g, err, false)
		return
	}
	m.mu.Lock()
	a.queued, a.grant = queued, g
	unwanted := len(a.waiting) == 0
	m.mu.Unlock()
	if unwanted {
		m.abandon(a)
		return
	}
	m.wake(a)
}

// acquireAlone makes an attempt under a rule that only reports. No client waits for it.
func (m *Manager) acquireAlone(a *attempt, w *Waiting) {
	defer m.tidy()
	m.acquire(m.stop, a, w)
	for {
		m.mu.Lock()
		queued, g := a.queued, a.grant
		m.mu.Unlock()
		if queued == nil {
			return
		}
		select {
		case <-a.woken:
			if _, done, err := queued.Poll(m.stop); done {
				m.finish(m.stop, a, g, err, true)
				return
			}
		case <-m.stop.Done():
			queued.Withdraw()
			return
		}
	}
}

// wake wakes all that wait for an attempt.
func (m *Manager) wake(a *attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case a.woken <- struct{}{}:
	default:
	}
	for w := range a.waiting {
		if w.wake != nil {
			w.wake()
		}
	}
}

// finish decides the requests of an attempt after its acquisition has ended. The job holds the lock if err is nil.
func (m *Manager) finish(ctx context.Context, a *attempt, g *grant, err error, waited bool) {
	m.mu.Lock()
	v, now := g.visit, m.clock.Now()
	a.queued, a.decided = nil, true
	if v.attempt == a {
		v.attempt = nil
	}
	var over, again []*Waiting
	looks, changes := false, false
	for w := range a.waiting {
		late := err == nil && !g.live || errors.As(err, new(*lock.TimeoutError)) && now.Boot < w.until
		switch {
		case w.look:
			looks = true
		case late: // it joined the attempt of a look
			again = append(again, w)
			continue
		default:
			changes = true
		}
		over = append(over, w)
	}
	refused := v.refused
	if refused == nil && changes && !errors.Is(err, lock.ErrNoRule) { // without a rule, nothing protects the site any more
		if refused = conflict(err, now); err == nil {
			refused = v.stale(now.Boot, m.unknownUntil)
		}
	}
	m.keep(g, looks, changes, refused != nil, err, waited, now.Boot)
	if looks {
		v.look(now.Boot)
	}
	m.mu.Unlock()
	m.tidy() // ends a hold that the log failed to record
	for _, w := range over {
		if !w.look && refused != nil {
			w.setError(m.refuse(ctx, w, refused))
		}
	}
	m.adjust(g)
	m.mu.Lock()
	for _, w := range over {
		w.over()
	}
	m.mu.Unlock()
	m.wake(a)
	for _, w := range again {
		m.repeat(ctx, a, w)
	}
}

// keep decides how long the job keeps the lock after an acquisition.
func (m *Manager) keep(g *grant, looks, changes, refused bool, err error, waited bool, now lock.Time) {
	v := g.visit
	if err != nil || !g.live {
		m.endGrant(g)
		return
	}
	turn := m.turnAt(v.site.name)
	if waited && turn > 0 {
		turn = max(turn, waitedTurn)
	}
	switch {
	case refused, !looks && !changes, !changes && turn == 0 && !g.adopted:
		g.unused = true
		return
	case !changes && !g.adopted:
		g.turn = now + turn
	}
	v.grant = g
}

// turnAt returns the turn of the rule of a site.
func (m *Manager) turnAt(name lock.Name) time.Duration {
	if rule := m.rules.ruleOf(name); rule != nil {
		return rule.Turn
	}
	return 0
}

// adjust sets the ends of holds as their visits require, and reports whether the job holds the last one.
func (m *Manager) adjust(grants ...*grant) (held bool) {
	for _, g := range grants {
		if g == nil {
			continue
		}
		g.end.Lock()
		m.mu.Lock()
		v, now := g.visit, m.clock.Now().Boot
		at, why := g.turn, lock.CauseUnused
		if left := v.left + v.grace; v.sessions == 0 && (at == 0 || left < at) {
			at, why = max(left, 1), lock.CauseDisconnect
		}
		if g.unused {
			at, why = now, lock.CauseUnused
		}
		m.mu.Unlock()
		held = g.lock.EndAt(v.site.name, at, why)
		g.end.Unlock()
		if at != 0 && at <= now {
			m.table.Expire(context.Background())
		}
	}
	return held
}

// repeat begins the acquisition anew for a request whose time is not over.
func (m *Manager) repeat(ctx context.Context, a *attempt, w *Waiting) {
	m.mu.Lock()
	withdrawn := w.attempt != a
	m.mu.Unlock()
	if withdrawn {
		return
	}
	waits, err := m.begin(ctx, w, false)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !waits {
		w.err = err
		w.over()
	}
	if w.wake != nil {
		w.wake()
	}
}

// Poll reports whether the wait is over. The error is that of Change.
func (w *Waiting) Poll(ctx context.Context) (done bool, err error) {
	m := w.session.manager
	m.mu.Lock()
	a := w.attempt
	if a == nil || a.queued == nil || a.polling {
		defer m.mu.Unlock()
		return a == nil, w.err
	}
	a.polling = true
	queued, g := a.queued, a.grant
	m.mu.Unlock()
	_, done, err = queued.Poll(ctx)
	m.mu.Lock()
	a.polling = false
	unwanted := len(a.waiting) == 0
	m.mu.Unlock()
	switch {
	case done:
		m.finish(ctx, a, g, err, true)
		m.tidy()
	case unwanted:
		m.abandon(a)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return w.attempt == nil, w.err
}

// Withdraw ends the wait without a result. The other changes of the job are refused, too: it may not continue after one failed change.
func (w *Waiting) Withdraw() {
	m := w.session.manager
	m.mu.Lock()
	a := w.attempt
	if a == nil {
		m.mu.Unlock()
		return
	}
	w.err = lock.ErrEnded
	w.over()
	delete(a.waiting, w)
	refused := !w.look && !a.decided
	abandoned := len(a.waiting) == 0 && !a.decided
	if abandoned && w.visit.attempt == a {
		w.visit.attempt = nil
	}
	abandoned = abandoned && !a.polling
	m.mu.Unlock()
	ctx := context.Background()
	if refused {
		_ = m.refuse(ctx, w, &Error{Cause: Other, Why: errWithdrawn})
	}
	if abandoned {
		m.abandon(a)
	}
	m.wake(a) // another one polls now
	m.tidy()
}

// abandon withdraws an attempt that no request waits for.
func (m *Manager) abandon(a *attempt) {
	m.mu.Lock()
	queued, g := a.queued, a.grant
	a.queued = nil
	m.mu.Unlock()
	if queued != nil { // otherwise acquire finds that nobody waits
		queued.Withdraw()
		m.finish(context.Background(), a, g, lock.ErrEnded, true)
	}
}

// over ends the wait. The manager's mutex is held.
func (w *Waiting) over() {
	w.attempt = nil
	delete(w.session.waits, w)
}

func (w *Waiting) setError(err error) {
	m := w.session.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	w.err = err
}

var errWithdrawn = errors.New("a change was withdrawn while it waited")

// conflict returns the refusal of a job that did not get the lock.
func conflict(err error, now lock.Instant) *Error {
	var held *lock.HeldError
	if errors.As(err, &held) {
		return &Error{Cause: Held, By: held.Holder, Token: held.Token, When: now.Wall.Add(-held.Held)}
	}
	return &Error{Cause: Other, Why: err}
}

// refuse refuses this change of a job and all later ones. The history gets an entry for the first.
func (m *Manager) refuse(ctx context.Context, w *Waiting, why *Error) error {
	v := w.visit
	m.mu.Lock()
	first := v.refused == nil
	if first {
		v.refuse(why, w.owner, w.path, m.clock.Now())
	}
	why = v.refused
	m.mu.Unlock()
	if first {
		note := m.current(v, why).Error()
		if w.rule.Report {
			note = "would be refused: " + note
		}
		_ = m.table.Remark(ctx, lock.CauseRefuse, lock.Hold{Name: v.site.name, Token: why.Token, Owner: w.owner}, w.path, note)
	}
	return m.reply(w, why)
}

// reply returns the error of a refused change; nil under a rule that only reports.
func (m *Manager) reply(w *Waiting, why *Error) error {
	if w.rule.Report {
		return nil
	}
	return m.current(w.visit, why)
}

// current returns the refusal with the job that holds the lock now.
func (m *Manager) current(v *visit, why *Error) *Error {
	is, held := m.table.Get(v.site.name)
	if !held {
		return why
	}
	h := is.Holds[0]
	m.mu.Lock()
	g := m.grants[h.Owner.Session]
	m.mu.Unlock()
	if g != nil && g.visit == v {
		return why
	}
	now := *why
	now.Holder, now.Since = h.Owner, h.Acquired.Wall
	return &now
}
