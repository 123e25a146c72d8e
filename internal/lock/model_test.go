package lock

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

var (
	modelRuns  = flag.Int("model.runs", 150, "random histories of the model test")
	modelSeed  = flag.Uint64("model.seed", 0, "the first seed of the model test; 0: a random one")
	modelLines = flag.Int("model.lines", 60, "how many of the last lines of a history a failure shows")
)

// The model test makes random decisions, with random times and random results of the disk, and checks the invariants of the state
// after each. Directories are made and removed in an order of its own, so that every decision meets every claim.

// model is one random history.
type model struct {
	*testing.T
	random   *rand.Rand
	clock    *testClock
	log      *memoryLog
	table    *Table
	sessions []*Session
	waiting  []*Waiting
	tasks    []*claim           // directories to be made or removed
	pins     []writeScope       // writes under way
	last     Token              // the largest token that was granted
	tokens   map[Token]Name     // every token that was granted, with its name
	idleFrom map[Token]Time     // when the idle time of a hold begins
	signs    map[SessionID]Time // the last sign of life of a session
	closed   map[SessionID]Time // the end of a session
	delayed  map[Name]Time      // the end of lock_delay
	overdue  map[Token]Time     // since when nothing has kept a hold whose time is over
	turns    map[*waiter]int    // the time of the first request of each session that waits or waited, as a number
	places   []modelPlace       // of waits that reached their time limits
	lines    []string           // the steps so far, which a failure prints
	invalid  bool               // the server is suspended
	undoable []Hold             // grants that may still be undone
	rules    [][]Rule           // the sets that reloads choose from
	stale    []Name             // the names that do not follow the reload under way
	holds    map[Token]Hold     // those that stand, by the records
	adopted  map[Token]Hold     // the last hold with a client that a hold was adopted from, by its token
	undone   map[Token]bool     // holds whose client did not receive the grant
}

var modelNames = []Name{"/l/a", "/l/b", "/l/g", "/l/g/m", "/l/g/n", "/s/x", "/p/1", "/p/2", "/p/3"}

func modelRules() [][]Rule {
	limited := func(match string, age time.Duration) []Rule {
		return []Rule{
			{Match: "/l/g", MaxIdle: 40 * time.Second, MaxAge: 5 * time.Minute, OnDisconnect: ReleaseOnDisconnect, Grace: 5 * time.Second, Contention: &Contention{Wait: 20 * time.Second}},
			{Match: "/l/**", MaxAge: age, Contention: &Contention{Wait: 15 * time.Second}},
			{Match: "/s/*", MaxAge: age, LockDelay: 3 * time.Second, Contention: &Contention{Shared: []string{"reader"}, Wait: 30 * time.Second}},
			{Match: match, MaxIdle: time.Minute, Contention: &Contention{Limit: 2, Wait: 25 * time.Second}},
		}
	}
	without := append(limited("/p/*", 2*time.Minute)[:2], Rule{Match: "/s/none"}, Rule{Match: "/p/none"})
	return [][]Rule{limited("/p/*", 2*time.Minute), limited("/p/?", time.Minute), without}
}

func TestModel(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for i := range uint64(*modelRuns) {
		m := newModel(t, seed+i, (seed+i)%2 == 0)
		m.run(400)
		if t.Failed() {
			return
		}
	}
}

func newModel(t *testing.T, seed uint64, directories bool) *model {
	m := &model{
		T: t, random: rand.New(rand.NewPCG(seed, 0)), clock: newTestClock(), log: &memoryLog{}, rules: modelRules(),
		tokens: make(map[Token]Name), turns: make(map[*waiter]int), holds: make(map[Token]Hold), adopted: make(map[Token]Hold),
		undone: make(map[Token]bool), idleFrom: make(map[Token]Time), signs: make(map[SessionID]Time), closed: make(map[SessionID]Time),
		delayed: make(map[Name]Time), overdue: make(map[Token]Time),
	}
	m.note("go test -run TestModel -model.runs 1 -model.seed %d", seed)
	table, err := NewTable(context.Background(), Options{
		Log: m.log, Clock: m.clock, Rules: mustRules(m.rules[0]...), Observe: m.observe,
		Valid: func() error {
			if m.invalid {
				return &SuspendedError{Reason: "a test"}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	table.st.disk = directories
	m.table = table
	return m
}

func (m *model) note(format string, args ...any) {
	m.lines = append(m.lines, m.clock.Now().Wall.Format("04:05 ")+fmt.Sprintf(format, args...))
}

// fail reports a broken invariant with the history.
func (m *model) fail(format string, args ...any) {
	m.Helper()
	if m.Failed() {
		return
	}
	for _, line := range m.lines[max(0, len(m.lines)-*modelLines):] {
		m.Log(line)
	}
	m.Log(m.lines[0])
	m.Errorf(format, args...)
}

// observe checks each record in its order.
func (m *model) observe(r *Record) {
	m.note("  record kind %d %s %s token %d replaces %d %s", r.Kind, r.Cause, r.Hold.Name, r.Hold.Token, r.Replaces, r.Hold.Owner)
	switch {
	case r.Kind == Granted && r.Cause != CauseRestore:
		if r.Hold.Token <= m.last {
			m.fail("token %d was granted after %d", r.Hold.Token, m.last)
		}
		m.last, m.tokens[r.Hold.Token] = r.Hold.Token, r.Hold.Name
	case r.Kind == Ended && r.Cause != CauseHostGone:
		n := m.table.st.nodes[r.Hold.Name]
		if n != nil && len(n.holds) == 0 && n.below > 0 {
			m.fail("%s ended before its members", r.Hold.Name)
		}
	}
	switch {
	case r.Cause == CauseAdopt && m.undone[r.Replaces]:
		if before, ok := m.adopted[r.Replaces]; ok {
			m.adopted[r.Hold.Token] = before
		}
	case r.Cause == CauseAdopt:
		m.adopted[r.Hold.Token] = m.holds[r.Replaces]
		if r.Hold.Renewed != r.At {
			m.fail("an adopted hold is %s old", r.At.Boot-r.Hold.Renewed.Boot)
		}
	case r.Cause == CauseUndeliver && r.Note != "":
		m.fail("%s ended since the grant of its group was not delivered", r.Hold.Name)
	case r.Cause == CauseUndeliver:
		if before, ok := m.adopted[r.Hold.Token]; ok && !m.holdsName(before.Owner.Session, r.Hold.Name) {
			m.fail("the undo of an adoption freed %s", r.Hold.Name)
		}
	case r.Cause == CauseRestore:
		if before := m.adopted[r.Replaces]; r.Hold.Token != before.Token || r.Hold.Owner != before.Owner || r.Hold.Acquired != before.Acquired || r.Hold.Shared != before.Shared {
			m.fail("the undo of an adoption restored %+v, it was adopted from %+v", r.Hold, before)
		}
		delete(m.adopted, r.Hold.Token) // only the last adoption can be undone
	}
	if r.Kind == Ended && (r.Hold.Directory == DirectoryID{} || r.Cause == CauseHostGone || len(m.holdsOf(r.Hold.Name)) > 1) { // else see settle
		m.checkEnd(r)
	}
	delete(m.overdue, r.Replaces) // an undo brings that token back
	switch delete(m.holds, r.Replaces); r.Kind {
	case Granted:
		if r.At.Boot < m.delayed[r.Hold.Name] && len(m.holdsOf(r.Hold.Name)) == 0 && r.Replaces == 0 {
			m.fail("%s was granted during its lock_delay", r.Hold.Name)
		}
		if id := r.Hold.Owner.Session; m.closed[id] > 0 && !m.hasHolds(id) {
			m.closed[id] = r.At.Boot // its end was forgotten, and its grace begins anew
		}
		m.holds[r.Hold.Token], m.idleFrom[r.Hold.Token] = r.Hold, r.At.Boot
	case Changed:
		m.holds[r.Hold.Token] = r.Hold
	case Ended:
		if delete(m.holds, r.Hold.Token); slices.Contains([]Cause{CauseExpire, CauseIdle, CauseBreak, CauseDisconnect, CauseHostGone}, r.Cause) && len(m.holdsOf(r.Hold.Name)) == 0 {
			m.delayed[r.Hold.Name] = r.At.Boot + r.Hold.Rule.LockDelay
		}
	}
	switch w := r.waiter; {
	case r.Kind != Granted:
	case w == nil:
		m.usePlace(m.table.st.sessions[r.Hold.Owner.Session], r.Hold.Name)
	case m.anyBefore(m.turns[w], r.Hold.Name) || r.Hold.Directory == DirectoryID{} && m.anyBeforeUnderLimit(w): // one can come while the disk makes the directory
		m.fail("%s: a session was served before one that came earlier", r.Hold.Name)
	}
	for _, pin := range m.pins {
		if slices.Contains(pin.pins, r.Hold.Name) && r.Kind != Changed && len(m.table.st.nodes[r.Hold.Name].holds) != 1 {
			m.fail("%s changed during a write", r.Hold.Name)
		}
		if slices.Contains(pin.excluded, r.Hold.Name) && r.Kind == Granted {
			m.fail("%s was granted during a write", r.Hold.Name)
		}
	}
}

// checkEnd finds a hold that ends before its time.
func (m *model) checkEnd(r *Record) {
	ends := []Hold{r.Hold}
	if r.Note == "with its group" {
		ends = m.holdsOf(r.Hold.Name.Parent())
	}
	for _, h := range ends {
		if now := m.table.st.nodes[h.Name].byToken(h.Token); now != nil {
			h = now.Hold // a reload may have changed its rule
		}
		if at := m.deadline(h, r.Cause); at > r.At.Boot {
			m.fail("%s token %d ended %s early by %s", h.Name, h.Token, at-r.At.Boot, r.Cause)
		}
	}
}

// deadline returns when a hold may end for a cause: an early time if the cause is not one of time.
func (m *model) deadline(h Hold, why Cause) Time {
	switch why {
	case CauseExpire:
		if age := min(cmp.Or(h.Rule.MaxAge, never), cmp.Or(h.Asked.Age, never)); age < never {
			return h.Renewed.Boot + age
		}
		return never
	case CauseDisconnect:
		grace := never
		if h.Rule.OnDisconnect == ReleaseOnDisconnect {
			grace = h.Rule.Grace
		}
		if h.Asked.Release {
			grace = min(grace, h.Asked.Grace)
		}
		closed, ok := m.closed[h.Owner.Session]
		if !ok || grace == never || slices.ContainsFunc(m.members(h), func(h Hold) bool { _, closed := m.closed[h.Owner.Session]; return !closed }) {
			return never
		}
		return closed + grace
	case CauseIdle:
		if h.Rule.MaxIdle == 0 {
			return never
		}
		var alive Time
		for _, h := range append(m.members(h), h) {
			alive = max(alive, m.idleFrom[h.Token], m.signs[h.Owner.Session])
		}
		return alive + h.Rule.MaxIdle
	}
	return 0
}

// members returns the holds below the last hold of a name.
func (m *model) members(h Hold) (all []Hold) {
	if len(m.holdsOf(h.Name)) > 1 {
		return nil
	}
	for _, below := range m.holds {
		if below.Name != h.Name && below.Name.Within(h.Name) {
			all = append(all, below)
		}
	}
	return all
}

// holdsOf returns the holds of a name.
func (m *model) holdsOf(name Name) (all []Hold) {
	for _, h := range m.holds {
		if h.Name == name {
			all = append(all, h)
		}
	}
	return all
}

// modelPlace is a place in a queue after the wait has ended.
type modelPlace struct {
	session *sessionState
	name    Name
	turn    int
	ended   Time
}

// placeFor returns the index of the earliest place of the session's job for the name, or -1.
func (m *model) placeFor(s *sessionState, name Name) (found int) {
	found = -1
	for i, p := range m.places {
		job := p.session == s || p.session.owner.Account == s.owner.Account && p.session.owner.JobKey == s.owner.JobKey && s.owner.JobKey != ""
		if job && p.name == name && (found < 0 || p.turn < m.places[found].turn) {
			found = i
		}
	}
	return found
}

// turn returns the turn of a session that asks for a name now.
func (m *model) turn(s *sessionState, name Name) int {
	if i := m.placeFor(s, name); i >= 0 {
		return m.places[i].turn
	}
	return len(m.lines) // grows with each request
}

// usePlace ends the place of a session, if it has one.
func (m *model) usePlace(s *sessionState, name Name) {
	if i := m.placeFor(s, name); i >= 0 {
		m.places = slices.Delete(m.places, i, i+1)
	}
}

// anyBefore reports whether a session that waits for the name has an earlier turn.
func (m *model) anyBefore(turn int, name Name) bool {
	n := m.table.st.nodes[name]
	return n != nil && slices.ContainsFunc(n.queue, func(w *waiter) bool { return m.turns[w] < turn })
}

// anyBeforeUnderLimit reports whether a session with an earlier turn waits for the limit, and its name is free.
func (m *model) anyBeforeUnderLimit(w *waiter) bool {
	return w.pool != nil && slices.ContainsFunc(w.pool.queue, func(v *waiter) bool {
		n, st := v.node, m.table.st
		return m.turns[v] < m.turns[w] && n.queue[0] == v && !n.taken() && n.blocked == nil && n.delay == 0 && st.excludedBy(n.name) == "" &&
			(v.session.settings.maxLocks == 0 || m.account(v.session.owner.Account) < v.session.settings.maxLocks)
	})
}

// account returns the number of locks that an account holds or is about to get.
func (m *model) account(name string) (count int) {
	for _, h := range m.holds {
		if h.Owner.Account == name {
			count++
		}
	}
	for _, n := range m.table.st.nodes {
		if c := n.claim; c != nil && c.kind == claimGrant && c.record.Hold.Owner.Account == name {
			count++
		}
	}
	return count
}

// queued notes a session that starts to wait.
func (m *model) queued(s *Session, w *waiter) {
	m.turns[w] = m.turn(s.s, w.name)
	m.usePlace(s.s, w.name)
	m.waiting = append(m.waiting, &Waiting{session: s, waiter: w})
}

// hasHolds reports whether a session has a hold.
func (m *model) hasHolds(id SessionID) bool {
	for _, h := range m.holds {
		if h.Owner.Session == id {
			return true
		}
	}
	return false
}

// holdsName reports whether a session has a hold of the name.
func (m *model) holdsName(id SessionID, name Name) bool {
	for _, h := range m.holds {
		if h.Owner.Session == id && h.Name == name {
			return true
		}
	}
	return false
}

// try makes one decision, if nothing is under way at the name.
func (m *model) try(f decision) (r result, err error) {
	t := m.table
	t.mu.Lock()
	defer t.mu.Unlock()
	now := m.clock.Now()
	_, room := t.checkLocked(f, now, &t.out)
	if t.out.busy != "" {
		m.note("  busy at %s", t.out.busy)
		return r, errBusy
	}
	if !room {
		return r, ErrFull
	}
	r, err = t.takeLocked(&t.out, now)
	if r.claim != nil {
		m.tasks = append(m.tasks, r.claim)
	}
	if err != nil {
		m.note("  refused: %v", err)
	}
	return r, err
}

var errBusy = errors.New("busy")

func (m *model) run(steps int) {
	for range steps {
		m.step()
		m.settle()
		m.check()
		if m.Failed() {
			return
		}
	}
}

// step does one random thing.
func (m *model) step() {
	switch dice := m.random.IntN(100); {
	case dice < 8 || len(m.sessions) == 0:
		m.openAny()
	case dice < 36:
		m.acquireAny()
	case dice < 50:
		m.release(m.session(), m.name())
	case dice < 58 && len(m.tasks) > 0, len(m.tasks) > 3:
		m.finish(m.random.IntN(len(m.tasks)))
	case dice < 62:
		m.close(m.session())
	case dice < 66:
		m.write(m.session(), m.name())
	case dice < 67:
		m.exclude(m.session(), []Name{"/l", "/l/g", "/s", "/p"}[m.random.IntN(4)])
	case dice < 70 && len(m.pins) > 0:
		m.endWrite(m.random.IntN(len(m.pins)))
	case dice < 73 && len(m.undoable) > 0:
		m.undo(m.random.IntN(len(m.undoable)))
	case dice < 76 && m.last > 0:
		m.endByToken(max(1, m.last-Token(m.random.IntN(12))), m.random.IntN(2) == 0)
	case dice < 79:
		m.touch(m.session())
	case m.table.st.reloading && dice < 90:
		m.follow()
	case dice < 81:
		m.note("reload")
		rules := mustRules(m.rules[m.random.IntN(len(m.rules))]...)
		m.table.beginReload(rules)
		m.stale = m.stale[:0]
		for name := range m.table.st.nodes {
			m.stale = append(m.stale, name)
		}
		slices.Sort(m.stale)
	case dice < 83:
		m.log.full = !m.log.full && m.random.IntN(3) == 0
		m.note("full: %v", m.log.full)
	case dice < 85:
		m.invalid = !m.invalid && m.random.IntN(3) == 0
		m.note("suspended: %v", m.invalid)
	case dice < 88 && len(m.waiting) > 0:
		i := m.random.IntN(len(m.waiting))
		m.note("withdraw %s", m.waiting[i].waiter.node.name)
		m.waiting[i].Withdraw()
		m.waiting = slices.Delete(m.waiting, i, i+1)
	case dice < 89:
		name := m.name()
		m.try(func(now Instant, out *outcome) { m.table.st.renew(m.session().s, name, now, out) })
	case dice < 90:
		s, jobKey := m.session(), []string{"", "job"}[m.random.IntN(2)]
		m.note("%s is now of the job key %q", s.ID(), jobKey)
		_ = s.SetJobKey(jobKey)
	default:
		d := []time.Duration{time.Millisecond, time.Second, 4 * time.Second, 30 * time.Second}[m.random.IntN(4)]
		if m.random.IntN(50) == 0 {
			d = 11 * time.Minute
		}
		m.clock.step(d)
	}
}

func (m *model) name() Name { return modelNames[m.random.IntN(len(modelNames))] }

func (m *model) session() *Session { return m.sessions[m.random.IntN(len(m.sessions))] }

// follow takes a step of a reload.
func (m *model) follow() {
	m.note("%d names follow", len(m.stale))
	n := min(len(m.stale), 1+m.random.IntN(4))
	for _, h := range m.table.Holds() {
		if slices.Contains(m.stale[:n], h.Name) && h.Rule.MaxIdle == 0 { // no signs of life were counted before
			m.idleFrom[h.Token] = m.clock.Now().Boot
		}
	}
	m.table.follow(m.stale[:n])
	if m.stale = m.stale[n:]; n == 0 {
		m.table.endReload()
	}
}

func (m *model) openAny() {
	accounts := []string{"ann", "ben", "reader"}
	jobKeys := []string{"", "", "job"}
	s := m.open(accounts[m.random.IntN(3)], fmt.Sprintf("10.0.0.%d", m.random.IntN(2)), jobKeys[m.random.IntN(3)])
	switch m.random.IntN(6) {
	case 0:
		s.SetAge(10 * time.Second)
	case 1:
		s.SetDisconnect(time.Second)
	case 2:
		s.SetMaxLocks(2)
	}
}

func (m *model) open(account, address, jobKey string) *Session {
	s := m.table.Open(Owner{Account: account, Address: address, JobKey: jobKey})
	m.note("open %s %s %q", s.ID(), s.s.owner, jobKey)
	m.sessions = append(m.sessions, s)
	m.signs[s.ID()] = m.clock.Now().Boot
	return s
}

func (m *model) touch(s *Session) {
	s.Touch()
	m.signs[s.ID()] = m.clock.Now().Boot
}

func (m *model) acquireAny() {
	s, name := m.session(), m.name()
	if len(m.places) > 0 && m.random.IntN(3) == 0 { // it asks again
		p := m.places[m.random.IntN(len(m.places))]
		name = p.name
		if i := slices.IndexFunc(m.sessions, func(s *Session) bool { return s.s == p.session }); i >= 0 {
			s = m.sessions[i]
		}
	}
	m.acquire(s, name, m.random.IntN(2) == 0, m.random.IntN(2) == 0)
}

func (m *model) acquire(s *Session, name Name, waits, diskFree bool) {
	var wake func()
	if waits {
		wake = func() {}
	}
	for w := range s.s.waiters {
		if w.node.name == name { // a session waits for a name once
			return
		}
	}
	m.note("acquire %s by %s, waits %v", name, s.ID(), waits)
	if m.invalid {
		return
	}
	before, group, have := m.holdsOf(name), m.holdsOf(name.Parent()), m.account(s.s.owner.Account)
	sameJob := func(h Hold) bool {
		return h.Owner.Session != s.ID() && h.Owner.Account == s.s.owner.Account && h.Owner.JobKey == s.s.owner.JobKey && h.Owner.JobKey != ""
	}
	own := slices.ContainsFunc(before, func(h Hold) bool { return h.Owner.Session == s.ID() })
	late := m.anyBefore(m.turn(s.s, name), name)
	n, rule := m.table.st.nodes[name], m.table.st.rules.find(name)
	free := len(before)+len(group) == 0 && rule != nil && rule.contention.Limit == 0 && s.s.settings.maxLocks == 0 &&
		m.clock.Now().Boot >= m.delayed[name] && (n == nil || len(n.queue) == 0)
	r, err := m.try(func(now Instant, out *outcome) {
		a := &acquisition{session: s.s, name: name, wake: wake, diskFree: diskFree, vacancies: m.table.st.vacancies.Load()}
		m.table.st.acquire(a, now, out)
	})
	confirms := slices.ContainsFunc(before, func(h Hold) bool { return h.Token == r.granted.Token })
	switch {
	case err == errBusy || err == ErrFull:
	case r.adopted == 0 && !own && slices.ContainsFunc(before, sameJob):
		m.fail("%s did not adopt %s: %v", s.ID(), name, err)
	case free && (err != nil || r.waiter != nil):
		m.fail("%s is free, but %s does not get it: %v", name, s.ID(), err)
	case err != nil:
	case r.waiter != nil:
		m.queued(s, r.waiter)
		return
	case late && r.adopted == 0 && !confirms:
		m.fail("%s went to a session that came later than those that wait", name)
	case r.adopted == 0 && !confirms && s.s.settings.maxLocks > 0 && have >= s.s.settings.maxLocks:
		m.fail("%s has %d locks, more than it may", s.s.owner.Account, have)
	case r.adopted == 0 && !confirms && slices.ContainsFunc(m.pins, func(pin writeScope) bool { return slices.ContainsFunc(pin.excluded, name.Within) }):
		m.fail("%s was granted during a write", name)
	case r.adopted == 0 && !confirms && len(group) > 0 && group[0].Owner.Account != s.s.owner.Account:
		m.fail("%s was granted below a lock of %s", name, group[0].Owner)
	}
	if err == nil && r.claim == nil {
		if len(before) > 0 && !r.granted.Shared && r.adopted == 0 && before[0].Token != r.granted.Token {
			m.fail("%s was granted to %s while %s held it", name, s.ID(), before[0].Owner)
		}
		m.undoable = append(m.undoable, r.granted)
	}
}

func (m *model) release(s *Session, name Name) {
	if m.invalid {
		return
	}
	m.note("release %s by %s", name, s.ID())
	m.try(func(now Instant, out *outcome) { m.table.st.release(s.s, name, now, out) })
}

// finish ends a change of a directory, well or not.
func (m *model) finish(i int) {
	c := m.tasks[i]
	m.tasks = slices.Delete(m.tasks, i, i+1)
	if c.node.claim != c {
		return
	}
	var failed error
	switch m.random.IntN(6) {
	case 0:
		failed = ErrNoParent
	case 1:
		failed = &HostError{Name: c.record.Hold.Name, Since: m.clock.Now().Wall}
	case 2:
		failed = ErrDirectoryGone
	}
	m.note("directory of %s, kind %d: %v", c.record.Hold.Name, c.kind, failed)
	r, _ := m.try(func(now Instant, out *outcome) {
		m.table.st.decideClaim(c, diskResult{id: DirectoryID{Inode: m.random.Uint64() | 1}, err: failed}, now, out)
	})
	if w := r.waiter; w != nil { // for a directory of the host
		i := slices.IndexFunc(m.sessions, func(s *Session) bool { return s.s == w.session })
		m.queued(m.sessions[i], w)
	}
}

func (m *model) close(s *Session) {
	m.sessions = slices.DeleteFunc(m.sessions, func(other *Session) bool { return other == s })
	m.note("close %s", s.ID())
	m.touch(s)
	m.closed[s.ID()] = m.clock.Now().Boot
	m.table.endSession(s.s)
	m.table.armHolds(s.s)
	m.waiting = slices.DeleteFunc(m.waiting, m.isOver)
}

// write begins a change of a file in a lock.
func (m *model) write(s *Session, name Name) {
	asked, err := newWriteRequest(s.s, []Write{{Path: name + "/file"}}, m.table.Rules())
	if err != nil {
		m.fail("%v", err)
	}
	m.note("write in %s by %s", name, s.ID())
	r, err := m.try(func(now Instant, out *outcome) { m.table.st.permitAll(asked, now, out) })
	if err != nil || r.permit == nil {
		return
	}
	for _, h := range m.holdsOf(name) {
		if h.Shared || h.Owner.Account != s.s.owner.Account || !slices.Contains(r.permit.scope.pins, name) {
			m.fail("a write of %s in %s, which %s has, shared %v, pins %v", s.ID(), name, h.Owner, h.Shared, r.permit.scope.pins)
		}
	}
	if !r.permit.scope.empty() {
		m.pins = append(m.pins, r.permit.scope)
	}
}

// exclude begins a change of a directory.
func (m *model) exclude(s *Session, dir Name) {
	m.note("exclude %s by %s", dir, s.ID())
	scope := writeScope{excluded: []Name{dir}}
	if _, err := m.try(func(now Instant, out *outcome) { m.table.st.exclude(s.s, scope, now, out) }); err != nil {
		return
	}
	for _, h := range m.holds {
		if h.Name.Within(dir) {
			m.fail("%s is changed, but %s is held", dir, h.Name)
		}
	}
	m.pins = append(m.pins, scope)
}

func (m *model) endWrite(i int) {
	scope := m.pins[i]
	m.pins = slices.Delete(m.pins, i, i+1)
	m.note("end of write under %v", scope.pins)
	m.table.endWrite(scope)
}

// undo takes a grant back. After that, the job of a hold that was adopted has the lock again.
func (m *model) undo(i int) {
	h := m.undoable[i]
	m.undoable = slices.Delete(m.undoable, i, i+1)
	m.note("undo %s token %d", h.Name, h.Token)
	m.try(func(_ Instant, out *outcome) { m.table.st.markUndelivered(h.Name, h.Token, h.Owner.Session, out) })
}

// endByToken ends a hold, which may have ended, for an administrator or a program on the host.
func (m *model) endByToken(token Token, host bool) {
	name := m.tokens[token]
	if name == "" || m.invalid {
		return
	}
	_, held := m.holds[token]
	m.note("end %s token %d, host %v", name, token, host)
	standing := len(m.holds)
	r, err := m.try(func(now Instant, out *outcome) {
		if host {
			m.table.st.hostGone(name, token, now, out)
		} else {
			m.table.st.breakUp(name, token, Owner{Account: "admin"}, "", now, out)
		}
	})
	_, stands := m.holds[token]
	switch {
	case !held && (len(m.holds) < standing || r.claim != nil):
		m.fail("%s ended by the old token %d", name, token)
	case !host && held && err == nil && stands && r.claim == nil:
		m.fail("%s token %d was not broken", name, token)
	}
}

// settle does what Expire and the sessions that wait do at once.
func (m *model) settle() {
	if m.invalid {
		return
	}
	if !m.log.full {
		m.table.serveUnserved(context.Background())
	}
	m.places = slices.DeleteFunc(m.places, func(p modelPlace) bool { return m.clock.Now().Boot >= p.ended+5*time.Second })
	if tasks, _ := m.table.decideDue(); len(tasks) > 0 {
		m.tasks = append(m.tasks, tasks...)
		for _, c := range tasks {
			m.checkEnd(&c.record)
		}
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(w *Waiting) bool {
		if c := w.waiter.claim; c != nil && !c.begun && m.random.IntN(4) > 0 { // else it does not poll
			c.begun = true
			m.tasks = append(m.tasks, c)
		}
		_, late := w.waiter.err.(*TimeoutError)
		if late || w.waiter.err == ErrNoRule && slices.Contains(w.waiter.node.places, w.waiter) {
			m.note("%s: %v", w.session.ID(), w.waiter.err)
			m.places = append(m.places, modelPlace{w.session.s, w.waiter.name, m.turns[w.waiter], m.clock.Now().Boot})
		}
		return m.isOver(w)
	})
}

// isOver reports whether a session no longer waits.
func (m *model) isOver(w *Waiting) bool { return w.waiter.done }

// check compares the state with its invariants.
func (m *model) check() {
	st, now := m.table.st, m.clock.Now()
	below := make(map[Name]int)
	pools := make(map[poolKey]int)
	accounts := make(map[string]int)
	holds, waiting := 0, 0
	for name, n := range st.nodes {
		for _, c := range n.children {
			if c.parent != n || st.nodes[c.name] != c {
				m.fail("%s is not below %s", c.name, name)
			}
		}
		if n.name != name || n.parent != nil && st.nodes[n.parent.name] != n.parent {
			m.fail("%s is not where it belongs", name)
		}
		exclusive := 0
		for _, h := range n.holds {
			holds++
			accounts[h.Owner.Account]++
			if !h.Shared {
				exclusive++
			}
			if h.session.holds[name] != h {
				m.fail("%s: the session does not have its hold", name)
			}
			m.undone[h.Token] = h.unacknowledged
			m.checkTimer(h, now.Boot)
			m.checkOverdue(h, now.Boot)
			if rule := st.rules.find(name); rule != nil && !st.reloading && h.Rule != &rule.holdRule {
				m.fail("%s token %d does not follow the rules in force", name, h.Token)
			}
		}
		if exclusive > 1 || exclusive == 1 && len(n.holds) > 1 {
			m.fail("%s has %d holds, %d of them exclusive", name, len(n.holds), exclusive)
		}
		if c := n.claim; c != nil && c.kind == claimGrant {
			accounts[c.record.Hold.Owner.Account]++
		}
		if c := n.claim; c != nil && !slices.Contains(m.tasks, c) && (c.waiter == nil || c.begun) {
			m.fail("%s is busy for ever", name)
		}
		if n.taken() != n.counted {
			m.fail("%s: taken %v, counted %v", name, n.taken(), n.counted)
		}
		if n.taken() {
			for p := n.parent; p != nil; p = p.parent {
				below[p.name]++
			}
			if rule := st.rules.limitedBy(name); rule != nil {
				pools[poolKey{name.Parent(), rule}]++
			}
		}
		waiting += len(n.queue)
		if _, listed := st.queues[n]; listed != (len(n.queue) > 0) {
			m.fail("%s has a queue of %d, listed: %v", name, len(n.queue), listed)
		}
		m.checkQueue(n, now)
	}
	for name, n := range st.nodes {
		if n.below != below[name] {
			m.fail("%s counts %d names below it, there are %d", name, n.below, below[name])
		}
		if n.parent != nil && len(n.holds)+n.pins+len(n.queue)+len(n.places) == 0 && len(n.children) == 0 && !st.rules.isPrefix(name) && n.claim == nil && n.delay == 0 && n.blocked == nil {
			m.fail("%s is remembered for nothing", name)
		}
	}
	for key, taken := range pools {
		if p := st.pools[key]; !st.reloading && (p == nil || p.taken != taken) {
			m.fail("the limit of %s does not count %d locks", key.dir, taken)
		}
		if taken > key.rule.contention.Limit {
			m.fail("%d locks in %s, the limit is %d", taken, key.dir, key.rule.contention.Limit)
		}
	}
	for key, p := range st.pools {
		if p.taken > pools[key] || p.taken == 0 && len(p.queue) == 0 {
			m.fail("the limit of %s counts %d, there are %d", key.dir, p.taken, pools[key])
		}
		if !slices.IsSortedFunc(p.queue, func(a, b *waiter) int { return cmp.Compare(a.ticket, b.ticket) }) {
			m.fail("the queue for the limit of %s is in no order", key.dir)
		}
	}
	for name, a := range st.accounts {
		if a.holds != accounts[name] {
			m.fail("account %s counts %d, there are %d", name, a.holds, accounts[name])
		}
	}
	if c := m.table.Count(); c != (Count{holds, waiting}) {
		m.fail("counted %+v, there are %d holds and %d waiting", c, holds, waiting)
	}
	m.checkReplay()
}

// checkOverdue fails if a hold stands two seconds after its time. It waits while a write or a change of a directory delays the end of the hold or
// of its members.
func (m *model) checkOverdue(h *liveHold, now Time) {
	at := min(m.deadline(h.Hold, CauseExpire), m.deadline(h.Hold, CauseDisconnect), m.deadline(h.Hold, CauseIdle))
	kept := m.invalid || len(h.node.holds) > 1 && h.node.below > 0
	for name, n := range m.table.st.nodes {
		if name.Within(h.Name) {
			kept = kept || n.cannotEnd() || slices.ContainsFunc(n.holds, func(h *liveHold) bool { return h.nextTry > now })
		}
	}
	since, known := m.overdue[h.Token]
	switch {
	case at > now || kept:
		delete(m.overdue, h.Token)
	case !known:
		m.overdue[h.Token] = now
	case now > since+2*retryAfter:
		m.fail("%s token %d stands %s after its time", h.Name, h.Token, now-at)
	}
}

// checkTimer finds a hold that will not end at its time.
func (m *model) checkTimer(h *liveHold, now Time) {
	n := h.node
	if n.below > 0 || n.cannotEnd() {
		return // the end of what scope it sets the timer
	}
	if at, why := h.ownDeadline(now); at != never && (h.timer.index == 0 || h.timer.at > max(at, h.nextTry, now+retryAfter)) {
		m.fail("%s token %d has no timer (%s)", n.name, h.Token, why)
	}
}

// checkQueue finds a session that waits for a lock that it could have.
func (m *model) checkQueue(n *node, now Instant) {
	for _, w := range n.queue {
		if w.timer.index == 0 || w.timer.at > max(w.until, now.Boot+retryAfter) {
			m.fail("%s waits for %s without a timer", w.session.owner, n.name)
		}
	}
	for _, w := range n.places {
		if !m.invalid && (w.timer.index == 0 || w.timer.at <= now.Boot) {
			m.fail("%s keeps its place for %s for too long", w.session.owner, n.name)
		}
		if m.placeFor(w.session, n.name) < 0 {
			m.fail("%s has a place for %s again", w.session.owner, n.name)
		}
	}
	if (n.delay > now.Boot || n.blocked != nil) && n.timer.index == 0 {
		m.fail("%s is kept back without a timer", n.name)
	}
	if len(n.queue) == 0 || m.invalid || m.log.full || m.table.st.reloading && m.table.st.rules.find(n.name) == nil {
		return
	}
	var out outcome
	if m.table.st.handOver(n, now, &out) {
		m.fail("%s waits for %s, which is free", n.queue[0].session.owner, n.name)
	}
	for w := range maps.Keys(n.queue[0].session.waiters) {
		if w.until < now.Boot && (w.claim == nil || !w.claim.begun) {
			m.fail("%s waits for longer than it may", w.session.owner)
		}
	}
}

// checkReplay compares the holds with those that a start would find in the log.
func (m *model) checkReplay() {
	loaded, _ := m.log.Load(context.Background())
	want := make(map[Token]Hold)
	for _, h := range m.table.Holds() {
		h.Rule = nil
		want[h.Token] = h
	}
	got := make(map[Token]Hold)
	for _, h := range loaded.Holds {
		h.Rule = nil
		got[h.Token] = h
	}
	if !reflect.DeepEqual(got, want) {
		m.fail("the log has %v, the table has %v", got, want)
	}
}
