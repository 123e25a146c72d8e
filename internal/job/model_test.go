package job_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// The model test makes random looks and changes with random ends, pauses, breaks and restarts. It has its own memory of jobs, by the rules
// in visit.go, and checks every answer: a job changes a site if and only if no other job has changed it since its look, and never after a
// refusal. It also checks the ends of the locks.

var (
	modelRuns = flag.Int("model.runs", 60, "number of runs of the model test")
	modelSeed = flag.Uint64("model.seed", 0, "seed of the first run; 0: a random one")
)

const grace, idle = 3 * time.Second, 2 * time.Minute

// modelVisit is what the model remembers of a job at a site.
type modelVisit struct {
	seen            int // so many of the site's changes
	looked, refused lock.Time
	worked, changed bool
	conns           map[*conn]bool
	left            lock.Time
}

type modelJob struct {
	open   int
	ended  lock.Time
	visits map[string]*modelVisit
}

type pending struct {
	w    *job.Waiting
	c    *conn
	look bool
	site string
}

type model struct {
	*server
	random  *rand.Rand
	conns   []*conn
	jobs    map[string]*modelJob // by account
	changes map[string][]string  // by site: the accounts that changed it
	pending []pending
	used    map[lock.Token]lock.Time // of the last change under a token
	unknown lock.Time
	notes   []string
}

func (m *model) note(format string, args ...any) {
	m.notes = append(m.notes, m.clock.Now().Wall.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (m *model) now() lock.Time { return m.clock.Now().Boot }

func (m *model) visit(account, site string) *modelVisit {
	v := m.jobs[account].visits[site]
	if v == nil {
		v = &modelVisit{conns: make(map[*conn]bool)}
		m.jobs[account].visits[site] = v
	}
	return v
}

// holder returns the hold of a site and its account; "" if it is free.
func (m *model) holder(site string) (lock.Hold, string) {
	is, held := m.table.Get(lock.Name("/www/" + site + "/.lock"))
	if !held {
		return lock.Hold{}, ""
	}
	return is.Holds[0], is.Holds[0].Owner.Account
}

// open opens a connection. A job without a session remembers what the rules say.
func (m *model) open() {
	account := string(rune('a' + m.random.IntN(3)))
	j := m.jobs[account]
	if j == nil {
		j = &modelJob{visits: make(map[string]*modelVisit)}
		m.jobs[account] = j
	}
	if j.open++; j.open == 1 {
		for _, v := range j.visits {
			v.forget(m.now(), j.ended, m.unknown)
		}
	}
	m.conns = append(m.conns, m.connect(account))
	m.note("%s opens %p", account, m.conns[len(m.conns)-1])
}

func (v *modelVisit) forget(now, ended, unknown lock.Time) {
	switch {
	case v.refused != 0 && (now >= v.refused+10*time.Minute || now >= ended+2*time.Minute):
		v.refused, v.looked, v.changed = 0, 0, false
	case v.refused != 0:
	case v.looked != 0 && now >= v.looked+10*time.Minute, v.changed && now >= ended+time.Minute:
		v.looked, v.changed = 0, false
	}
	if v.refused == 0 && v.looked == 0 && now >= unknown {
		v.worked = false
	}
}

func (m *model) close(i int) {
	c := m.conns[i]
	m.note("%s closes %p", c.name, c)
	m.conns = slices.Delete(m.conns, i, i+1)
	m.pending = slices.DeleteFunc(m.pending, func(p pending) bool {
		if p.c == c && !p.look {
			m.refuse(m.visit(c.name, p.site))
		}
		return p.c == c
	})
	j := m.jobs[c.name]
	for _, v := range j.visits {
		if v.conns[c] {
			if delete(v.conns, c); len(v.conns) == 0 {
				v.left = m.now()
			}
		}
	}
	c.close()
	if j.open--; j.open > 0 {
		return
	}
	j.ended = m.now()
	for site, v := range j.visits { // a run without a look and a lock has nothing to remember
		if _, holder := m.holder(site); holder != c.name && v.looked == 0 && v.refused == 0 && m.now() >= m.unknown {
			delete(j.visits, site)
		}
	}
}

func (m *model) refuse(v *modelVisit) {
	if v.refused == 0 {
		v.refused = m.now()
	}
}

// request makes a look or a change.
func (m *model) request(c *conn, look bool, site string) {
	if slices.ContainsFunc(m.pending, func(p pending) bool { return p.c == c }) { // one command at a time
		return
	}
	v := m.visit(c.name, site)
	_, holder := m.holder(site)
	if look && len(v.conns) == 0 && holder != c.name && m.now() >= v.left+grace {
		v.looked, v.changed, v.refused = 0, false, 0
	}
	v.conns[c] = true
	p := pending{nil, c, look, site}
	var err error
	p.w, err = c.begin(look, site+"/x")
	m.note("%s %p, site %s, look %v: waits %v, %v", c.name, c, site, look, p.w != nil, err)
	if p.w != nil {
		m.pending = append(m.pending, p)
		return
	}
	m.answer(p, err)
}

// answer checks the end of a look or a change, and makes the change.
func (m *model) answer(p pending, err error) {
	v, changes := m.visit(p.c.name, p.site), m.changes[p.site]
	if p.look {
		if v.looked == 0 && v.refused == 0 {
			v.looked, v.seen = m.now(), len(changes)
		}
		return
	}
	stale := false
	if known := v.looked != 0 || v.worked; known || m.now() < m.unknown {
		seen := v.seen
		if !known {
			seen = 0
		}
		stale = slices.ContainsFunc(changes[seen:], func(by string) bool { return by != p.c.name })
	}
	var why *job.Error
	switch {
	case err == nil && v.refused != 0:
		m.Fatalf("%s changes %s after a refusal", p.c.name, p.site)
	case err == nil && stale:
		m.Fatalf("%s changes %s, which another job has changed", p.c.name, p.site)
	case err == nil:
		m.change(p, v)
	case !errors.As(err, &why) || why.Cause == job.Stale && v.refused == 0 && !stale && v.looked != m.now(): // a look that waited with it comes after it
		m.Fatalf("%s is refused: %v", p.c.name, err)
	case why.Cause == job.Other && v.refused == 0 && !strings.Contains(err.Error(), "withdrawn") && !strings.Contains(err.Error(), "waited 15s"):
		m.Fatalf("%s is refused: %v", p.c.name, err)
	default:
		m.refuse(v)
	}
}

func (m *model) change(p pending, v *modelVisit) {
	h, holder := m.holder(p.site)
	if holder != p.c.name {
		m.Fatalf("%s changes %s, which %q holds", p.c.name, p.site, holder)
	}
	if err := p.c.write(p.site + "/x"); err != nil {
		m.Fatalf("%s: %v", p.c.name, err)
	}
	m.changes[p.site] = append(m.changes[p.site], p.c.name)
	v.seen, v.worked, v.changed = len(m.changes[p.site]), true, true
	m.used[h.Token] = m.now()
}

// poll asks for the results of those that wait.
func (m *model) poll() {
	for _, p := range slices.Clone(m.pending) {
		if done, err := p.w.Poll(m.Context()); done {
			m.pending = slices.DeleteFunc(m.pending, func(q pending) bool { return q.w == p.w })
			m.note("%s %p, site %s, look %v: %v", p.c.name, p.c, p.site, p.look, err)
			m.answer(p, err)
		}
	}
}

func (m *model) restart() {
	m.note("restart")
	m.start()
	now := m.now()
	m.conns, m.pending, m.jobs, m.changes = nil, nil, make(map[string]*modelJob), make(map[string][]string)
	if m.server.table.Granted() {
		m.unknown = now + 10*time.Minute
	}
	for _, site := range []string{"1", "2"} {
		if h, account := m.holder(site); account != "" {
			if m.jobs[account] == nil {
				m.jobs[account] = &modelJob{visits: make(map[string]*modelVisit), ended: now}
			}
			v := m.visit(account, site)
			v.seen, v.worked, v.changed, v.left = 1, true, true, now
			m.changes[site], m.used[h.Token] = []string{account}, now
		}
	}
}

// takeAway breaks a lock.
func (m *model) takeAway(site string) {
	h, account := m.holder(site)
	if account == "" {
		return
	}
	m.note("break %s of %s", site, account)
	if err := m.table.Break(m.Context(), h.Name, h.Token, lock.Owner{Account: "root"}, ""); err != nil {
		m.Fatal(err)
	}
	if m.jobs[account].open > 0 || len(m.visit(account, site).conns) == 0 {
		m.refuse(m.visit(account, site))
	}
}

func (m *model) clear(site string) {
	m.note("clear %s", site)
	want := 0
	for _, j := range m.jobs {
		v := j.visits[site]
		if v == nil || v.refused == 0 {
			continue
		}
		if j.open == 0 {
			v.forget(m.now(), j.ended, m.unknown)
		}
		if v.refused != 0 {
			want++
			v.refused, v.changed, v.looked, v.seen = 0, false, m.now(), len(m.changes[site])
		}
	}
	if n := m.server.jobs.Clear(lock.Name("/www/"+site+"/.lock"), "", ""); n != want {
		m.Fatalf("%d refused jobs of %s, not %d", n, site, want)
	}
}

// check finds locks that should have ended, or should not have.
func (m *model) check() {
	for _, token := range m.unused {
		if _, used := m.used[token]; used {
			m.Fatalf("token %d ends as unused, but was used", token)
		}
	}
	m.unused = nil
	for _, site := range []string{"1", "2"} {
		h, account := m.holder(site)
		if account == "" {
			continue
		}
		v := m.visit(account, site)
		last, used := m.used[h.Token]
		if !used && m.adopted[h.Token] { // it was used before the restart
			last, used = h.Acquired.Boot, true
		}
		switch {
		case len(v.conns) == 0 && m.now() >= v.left+grace:
			m.Fatalf("%s holds %s without a session", account, site)
		case !used && m.now() >= h.Acquired.Boot+5*time.Second:
			m.Fatalf("the turn of %s at %s does not end", account, site)
		case used && m.now() >= last+idle:
			m.Fatalf("%s holds %s without changes", account, site)
		}
	}
}

func (m *model) step() {
	site := string(rune('1' + m.random.IntN(2)))
	switch n := m.random.IntN(100); {
	case n < 15 || len(m.conns) == 0:
		m.open()
	case n < 35:
		m.request(m.conns[m.random.IntN(len(m.conns))], true, site)
	case n < 60:
		m.request(m.conns[m.random.IntN(len(m.conns))], false, site)
	case n < 78:
		m.close(m.random.IntN(len(m.conns)))
	case n < 94:
		for range m.random.IntN(4) + 1 {
			m.pass(time.Second)
			m.poll()
		}
	case n < 96:
		pauses := []time.Duration{20 * time.Second, 70 * time.Second, 130 * time.Second, 11 * time.Minute}
		for range pauses[m.random.IntN(len(pauses))] / time.Second {
			m.pass(time.Second)
			m.poll()
			m.check()
		}
	case n < 97:
		m.takeAway(site)
	case n < 98:
		m.clear(site)
	case n < 99:
		m.restart()
	}
	m.poll()
	m.check()
}

// To see the test fail: see planted_test.go.
func TestModel(t *testing.T) {
	for range *modelRuns {
		seed := cmp.Or(*modelSeed, rand.Uint64())
		m := &model{
			server: newServer(t, func(r *job.Rule) { r.Turn = time.Duration(seed%2) * 2 * time.Second }), random: rand.New(rand.NewPCG(seed, 0)),
			jobs: make(map[string]*modelJob), changes: make(map[string][]string), used: make(map[lock.Token]lock.Time),
		}
		done := false
		func() {
			defer func() {
				if !done {
					t.Logf("seed %d, the last steps:\n%s", seed, strings.Join(m.notes[max(0, len(m.notes)-60):], "\n"))
				}
			}()
			for range 1000 {
				m.step()
			}
			done = true
		}()
	}
}
