package job_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// server is a table with a manager, and a clock that the test moves.
type server struct {
	*testing.T
	clock   *locktest.FakeClock
	log     *failingLog
	disk    *hostDisk
	table   *lock.Table
	jobs    *job.Manager
	rule    job.Rule
	rules   *lock.Rules
	content []string // who changed what, in order
	remarks []string
	adopted map[lock.Token]bool
	unused  []lock.Token // of holds that ended so
}

// failingLog is a log whose writes fail at will.
type failingLog struct {
	*locktest.Memory
	err error
}

func (l *failingLog) Wait(context.Context, lock.Position, bool) error { return l.err }

// hostDisk has a directory of the host at will.
type hostDisk struct {
	locktest.Disk
	held bool
}

func (d *hostDisk) Check(_ context.Context, n lock.Name) error {
	if d.held {
		return &lock.HostError{Name: n, Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	}
	return nil
}

func newServer(t *testing.T, change ...func(*job.Rule)) *server {
	s := &server{T: t, clock: locktest.NewFakeClock(), log: &failingLog{Memory: locktest.NewMemory()}, disk: &hostDisk{}, adopted: make(map[lock.Token]bool)}
	s.rule = job.Rule{Match: "/www/*/.lock", Wait: 15 * time.Second, Turn: 2 * time.Second}
	for _, f := range change {
		f(&s.rule)
	}
	s.start()
	s.pass(10 * time.Minute) // jobs of which nothing is known count as new then
	return s
}

// start starts the server, again with the same log.
func (s *server) start() {
	s.Helper()
	rule := lock.Rule{
		Match: s.rule.Match, MaxAge: time.Hour, MaxIdle: 2 * time.Minute, Grace: 3 * time.Second,
		Protection: &lock.Protection{Paths: []string{"/www/$1/**"}, Automatic: true, Advises: s.rule.Report},
		Contention: &lock.Contention{Wait: s.rule.Wait},
	}
	explicit := lock.Rule{Match: "/www/1/db.lock", Protection: &lock.Protection{Paths: []string{"/www/1/db/*"}}}
	rules, err := lock.NewRules([]lock.Rule{rule, explicit})
	if err != nil {
		s.Fatal(err)
	}
	s.rules = rules
	var jobs *job.Manager
	s.table, err = lock.NewTable(s.Context(), lock.Options{Log: s.log, Disk: s.disk, Clock: s.clock, Rules: rules, Observe: func(r *lock.Record) {
		if r.Cause == lock.CauseRefuse || r.Cause == lock.CauseTwoRuns {
			s.remarks = append(s.remarks, r.Note)
		}
		if r.Cause == lock.CauseUnused {
			s.unused = append(s.unused, r.Hold.Token)
		}
		if r.Cause == lock.CauseAdopt {
			s.adopted[r.Hold.Token] = true
		}
		if jobs != nil {
			jobs.Observe(r)
		}
	}})
	if err != nil {
		s.Fatal(err)
	}
	jobs = job.New(job.Options{Table: s.table, Clock: s.clock, Rules: job.NewRules(rules, []job.Rule{s.rule})})
	s.jobs = jobs
	s.Cleanup(jobs.Close)
}

// pass lets the time pass, a second at a time.
func (s *server) pass(d time.Duration) {
	for ; d > 0; d -= time.Second {
		s.clock.Advance(min(d, time.Second))
		s.table.Expire(s.Context())
	}
}

func (s *server) held(site string) bool { return s.table.Held(lock.Name("/www/" + site + "/.lock")) }

// conn is a connection.
type conn struct {
	server *server
	name   string
	client *lock.Session
	job    *job.Session
}

// connect opens a connection of an account.
func (s *server) connect(account string) *conn {
	return s.connectFrom(account, "10.0.0.7", "")
}

func (s *server) connectFrom(account, address, jobKey string) *conn {
	client := s.table.Open(lock.Owner{Account: account, Address: address, JobKey: jobKey})
	return &conn{s, account, client, s.jobs.Open(client, 0)}
}

func (c *conn) close() {
	c.job.Close()
	c.client.Close(context.Background())
}

// begin begins a look or a change of a file, which may wait.
func (c *conn) begin(look bool, path string) (*job.Waiting, error) {
	if look {
		return c.job.Look(c.server.Context(), lock.Name("/www/"+path), job.Fetch, func() {}), nil
	}
	return c.job.Change(c.server.Context(), lock.Name("/www/"+path), job.Store, func() {})
}

// await lets the time pass until the wait is over.
func (c *conn) await(w *job.Waiting, err error) error {
	for w != nil {
		done, err := w.Poll(c.server.Context())
		if done {
			return err
		}
		c.server.pass(time.Second)
	}
	return err
}

func (c *conn) look(path string) {
	c.server.Helper()
	if err := c.await(c.begin(true, path)); err != nil {
		c.server.Fatalf("%s looks at %s: %v", c.name, path, err)
	}
}

// put changes a file.
func (c *conn) put(path string) error {
	if err := c.await(c.begin(false, path)); err != nil {
		return err
	}
	return c.write(path)
}

func (c *conn) write(path string) error {
	name := lock.Name("/www/" + path)
	writes := []lock.Write{{Path: name, Under: c.job.Under(name)}}
	return c.client.Write(c.server.Context(), writes, func(permits []lock.Permit) error {
		var token lock.Token
		if len(permits) > 0 {
			token = permits[0].Token
		}
		c.job.Published(name, token, true)
		c.server.content = append(c.server.content, c.name+" "+path)
		return nil
	})
}

func (c *conn) accepted(path string) {
	c.server.Helper()
	if err := c.put(path); err != nil {
		c.server.Fatalf("%s changes %s: %v", c.name, path, err)
	}
}

// refused checks that a change is refused with the text.
func (c *conn) refused(path, text string) {
	c.server.Helper()
	err := c.put(path)
	var why *job.Error
	if !errors.As(err, &why) || !strings.Contains(err.Error(), text) {
		c.server.Fatalf("%s changes %s: %v", c.name, path, err)
	}
	if reply := "550 /www/" + path + ": " + err.Error(); len(reply) > 128 {
		c.server.Errorf("%d bytes: %s", len(reply), reply)
	}
}

// run makes the connections of one program, one after the other. "-" is a look.
func (s *server) run(account string, steps ...string) {
	s.Helper()
	for _, step := range steps {
		c := s.connect(account)
		if path, look := strings.CutPrefix(step, "-"); look {
			c.look(path)
		} else {
			c.accepted(step)
		}
		c.close()
	}
}

func TestAProgramThatVerifiesItsUploadWorksAMinuteLater(t *testing.T) {
	s := newServer(t)
	for range 3 {
		s.run("a", "1/x", "-1/x")
		s.pass(5 * time.Second)
		s.run("b", "1/x", "-1/x")
		s.pass(time.Minute)
	}
}

func TestANewConnectionRemembersTheLook(t *testing.T) {
	for _, pause := range []time.Duration{8 * time.Second, 70 * time.Second, 200 * time.Second, 590 * time.Second} {
		for _, each := range []bool{false, true} {
			t.Run(fmt.Sprint(pause, each), func(t *testing.T) {
				s := newServer(t, func(r *job.Rule) { r.Session = each })
				s.run("a", "-1/x")
				s.pass(4 * time.Second)
				s.run("b", "1/x")
				s.pass(pause - 4*time.Second)
				c := s.connect("a")
				c.refused("1/x", "changed by b@10.0.0.7 (1 file, until 00:10:04) since you looked; list first or wait 2m")
				c.close()
			})
		}
	}
	s := newServer(t)
	s.run("a", "-1/x")
	s.pass(4 * time.Second)
	s.run("b", "1/x")
	s.pass(10 * time.Minute)
	s.run("a", "1/x")
}

func TestARefusedScriptThatGoesOnChangesNothing(t *testing.T) {
	for _, pause := range []time.Duration{4 * time.Second, 10 * time.Second, time.Minute} {
		for _, each := range []bool{false, true} {
			t.Run(fmt.Sprint(pause, each), func(t *testing.T) {
				s := newServer(t, func(r *job.Rule) { r.Session = each })
				s.run("a", "-1/x", "1/x") // it has changed something
				s.pass(4 * time.Second)
				s.run("b", "1/x")
				for range 9 * time.Minute / pause {
					c := s.connect("a")
					c.refused("1/x", "changed by b@10.0.0.7")
					c.close()
					s.pass(pause)
				}
			})
		}
	}
}

func TestARefusedProgramThatLooksFirstStartsAnew(t *testing.T) {
	for _, each := range []bool{false, true} {
		s := newServer(t, func(r *job.Rule) { r.Session = each })
		s.run("a", "-1/x")
		s.pass(4 * time.Second)
		s.run("b", "1/x")
		s.pass(4 * time.Second)
		c := s.connect("a")
		c.refused("1/x", "since you looked; list first or wait 2m")
		c.look("1/x") // it has not looked first
		c.refused("1/x", "since you looked; list first or wait 2m")
		c.close()
		s.pass(4 * time.Second)
		s.run("a", "-1/x", "1/x")
	}
}

func TestARefusedJobStartsAnewAfterTwoMinutesWithoutASession(t *testing.T) {
	s := newServer(t)
	s.run("a", "-1/x")
	s.pass(4 * time.Second)
	s.run("b", "1/x")
	s.pass(4 * time.Second)
	c := s.connect("a")
	c.refused("1/x", "changed by b")
	c.close()
	s.pass(2 * time.Minute)
	s.run("a", "1/x")
}

func TestWorkOnOneSiteDoesNotHoldAnother(t *testing.T) {
	s := newServer(t)
	a := s.connect("a")
	a.look("1/x")
	a.accepted("1/x")
	for range 15 {
		s.pass(10 * time.Second)
		a.accepted("2/x")
	}
	s.run("b", "-1/x", "1/x")
	s.pass(4 * time.Second)
	a.refused("1/x", "changed by b")
	a.accepted("2/x")
	a.close()
}

func TestAConnectionToAnotherSiteDoesNotDelayTheEnd(t *testing.T) {
	s := newServer(t)
	a, other := s.connect("a"), s.connect("a")
	a.accepted("1/x")
	other.accepted("2/x")
	a.close()
	s.pass(3 * time.Second)
	if s.held("1") || !s.held("2") {
		t.Errorf("1 held: %v, 2 held: %v", s.held("1"), s.held("2"))
	}
	other.close()
}

func TestARunContinuesWithinItsGrace(t *testing.T) {
	s := newServer(t)
	s.run("a", "1/x")
	for range 5 {
		s.pass(2 * time.Second)
		s.run("a", "1/x")
	}
	if !s.held("1") {
		t.Error("the lock has ended")
	}
}

func TestOneFailureRefusesTheWholeRun(t *testing.T) {
	s := newServer(t)
	a := s.connect("a")
	a.look("1/x")
	s.pass(3 * time.Second)
	s.log.err = lock.ErrUncertain
	a.refused("1/x", "result is unknown")
	s.log.err = nil
	s.pass(3 * time.Second)
	a.refused("1/y", "result is unknown")
	if s.held("1") {
		t.Error("the lock is held")
	}
	s.connect("b").look("1/x") // b holds the lock for its turn
	if w, err := a.begin(false, "1/y"); w != nil || err == nil {
		t.Errorf("a change of a refused job waits for the lock: %v", err)
	}
}

func TestTheHostHoldsTheLockByADirectory(t *testing.T) {
	s := newServer(t)
	s.disk.held = true
	c := s.connect("a")
	c.refused("1/x", "being changed by host since 00:00:00")
	c.close()
	s.disk.held = false
	s.pass(2 * time.Minute)
	s.run("a", "1/x")
	for _, r := range s.log.Records() {
		if r.Hold.Directory != (lock.DirectoryID{}) {
			t.Errorf("%v has a directory", r)
		}
	}
}

func TestAJobWaitsForTheEndOfAnother(t *testing.T) {
	s := newServer(t)
	a, b := s.connect("a"), s.connect("b")
	a.accepted("1/x")
	w, _ := b.begin(true, "1/x")
	change, err := s.connect("b").begin(false, "1/x") // one attempt for both
	if w == nil || change == nil || err != nil || len(s.table.Queue("/www/1/.lock")) != 1 {
		t.Fatalf("%v, %v, %v", w, change, err)
	}
	a.accepted("1/y")
	a.close()
	if err := errors.Join(b.await(w, nil), b.await(change, nil), b.put("1/x")); err != nil {
		t.Error(err)
	}
	b.close()
}

func TestAChangeThatWaitsTooLongRefusesTheRun(t *testing.T) {
	s := newServer(t)
	a, b := s.connect("a"), s.connect("b")
	a.accepted("1/x")
	w, _ := b.begin(true, "1/x")
	s.pass(10 * time.Second)
	change, _ := b.begin(false, "1/x") // joins the attempt
	begun := s.clock.Now().Boot
	if err := b.await(w, nil); err != nil {
		t.Error(err)
	}
	err := b.await(change, nil)
	if waited := s.clock.Now().Boot - begun; waited != 15*time.Second || err == nil {
		t.Errorf("after %v: %v", waited, err)
	}
	if want := "being changed by a@10.0.0.7 since 00:10:00; try when it is done"; fmt.Sprint(err) != want {
		t.Error(err)
	}
	a.close()
	s.pass(4 * time.Second)
	b.refused("1/x", "list first or wait 2m")
}

func TestAWithdrawnChangeRefusesTheRun(t *testing.T) {
	s := newServer(t)
	a, b := s.connect("a"), s.connect("b")
	a.accepted("1/x")
	w, _ := b.begin(false, "1/x")
	w.Withdraw()
	if len(s.table.Queue("/www/1/.lock")) != 0 {
		t.Error("it waits still")
	}
	a.close()
	s.pass(4 * time.Second)
	b.refused("1/x", "withdrawn")
	c := s.connect("c")
	c.accepted("1/x")
	d := s.connect("d")
	if _, err := d.begin(false, "1/x"); err != nil {
		t.Error(err)
	}
	d.close() // withdraws, too
	if len(s.table.Queue("/www/1/.lock")) != 0 {
		t.Error("a closed connection waits still")
	}
}

func TestATurnEndsWithoutAChange(t *testing.T) {
	s := newServer(t)
	a := s.connect("a")
	a.look("1/x")
	if !s.held("1") {
		t.Error("a look takes no turn")
	}
	s.pass(2 * time.Second)
	if s.held("1") {
		t.Error("the turn does not end")
	}
	a.look("1/x")
	a.accepted("1/x")
	s.pass(time.Minute)
	if !s.held("1") {
		t.Error("the lock ends with the turn")
	}
	a.close()
}

// The lock that a look took does not allow a change that the job has not seen.
func TestAClearedJobIsRefusedAfterTheNextChange(t *testing.T) {
	s := newServer(t)
	a, b := s.connect("a"), s.connect("b")
	a.look("1/x")
	s.pass(3 * time.Second)
	b.accepted("1/x")
	first := s.connect("a")
	first.refused("1/x", "being changed by b")
	a.close()
	first.close()
	s.pass(4 * time.Second)
	a = s.connect("a")
	w, _ := a.begin(true, "1/x")
	change, err := s.connect("a").begin(false, "1/x")
	if w == nil || err != nil {
		t.Fatal(w, err)
	}
	change.Withdraw()
	s.jobs.Clear("/www/1/.lock", "", "")
	b.accepted("1/y")
	b.close()
	if err := a.await(w, nil); err != nil {
		t.Fatal(err)
	}
	if !s.held("1") {
		t.Error("the look has no turn")
	}
	a.refused("1/x", "changed by b")
	if s.held("1") {
		t.Error("a refused job holds the lock")
	}
}

func TestABrokenLockRefusesTheRest(t *testing.T) {
	s := newServer(t)
	a := s.connect("a")
	a.accepted("1/x")
	is, _ := s.table.Get("/www/1/.lock")
	if err := s.table.Break(t.Context(), "/www/1/.lock", is.Holds[0].Token, lock.Owner{Account: "root"}, "stuck"); err != nil {
		t.Fatal(err)
	}
	if n := len(s.jobs.Refused()); n != 1 {
		t.Errorf("%d refused jobs", n)
	}
	a.refused("1/x", ": broken by root, stuck")
	if n := s.jobs.Clear("/www/1/.lock", "a", "10.0.0.7"); n != 1 {
		t.Errorf("%d cleared", n)
	}
	a.accepted("1/x")
}

func TestAJobContinuesAfterARestart(t *testing.T) {
	s := newServer(t)
	s.run("a", "-1/x", "1/x")
	s.start()
	s.pass(2 * time.Second)
	a := s.connect("a")
	a.accepted("1/y")
	b := s.connect("b")
	b.refused("1/x", "being changed by a")
	s.pass(time.Minute)
	a.accepted("1/z")
	a.close()
	s.pass(4 * time.Second)
	if s.held("1") {
		t.Error("the lock does not end")
	}
}

func TestAfterARestartAJobLooksFirst(t *testing.T) {
	s := newServer(t)
	s.run("a", "-1/x")
	s.pass(4 * time.Second)
	s.start()
	s.run("b", "1/x")
	s.pass(4 * time.Second)
	s.run("b", "1/x") // its own changes are no reason
	s.pass(2 * time.Minute)
	s.run("b", "1/x")
	s.pass(4 * time.Second)
	a := s.connect("a")
	a.refused("1/x", "(1 file, until 00:12:08); list first or wait 2m")
	a.close()
	s.pass(4 * time.Second)
	s.run("a", "-1/x", "1/x")
}

func TestNewRulesForgetThatJobsHaveNotLooked(t *testing.T) {
	s := newServer(t)
	s.run("b", "1/x")
	s.pass(4 * time.Second)
	s.rule.Session = true
	s.jobs.SetRules(job.NewRules(s.rules, []job.Rule{s.rule}))
	s.run("b", "1/x")
	s.pass(4 * time.Second)
	a := s.connect("a")
	a.refused("1/x", "changed by b")
	a.close()
	s.pass(10 * time.Minute)
	s.run("a", "1/x")
}

func TestARemovedRuleEndsTheLockWithItsJob(t *testing.T) {
	s := newServer(t)
	a := s.connect("a")
	a.accepted("1/x")
	s.jobs.SetRules(job.NewRules(s.rules, nil))
	if w, err := s.connect("b").begin(false, "1/x"); w != nil || err != nil {
		t.Errorf("a change without a rule: %v, %v", w, err)
	}
	if a.close(); !s.held("1") {
		t.Error("the lock ends before the grace")
	}
	if s.pass(3 * time.Second); s.held("1") {
		t.Error("the lock outlives its job")
	}
}

func TestExplicitLocksWin(t *testing.T) {
	s := newServer(t)
	a, b := s.connect("a"), s.connect("b")
	a.accepted("1/x")
	if _, _, _, err := b.client.AcquireOrWait(t.Context(), "/www/1/db.lock", nil); err != nil {
		t.Fatal(err)
	}
	b.accepted("1/db/x")
	if err := a.put("1/db/x"); err == nil {
		t.Error("a job changes a file that an explicit lock protects")
	}
	b.refused("1/x", "being changed by a")
}

func TestAWordNamesOneRun(t *testing.T) {
	s := newServer(t)
	one := s.connectFrom("a", "10.0.0.7", "run1")
	one.accepted("1/x")
	one.close()
	s.pass(4 * time.Second)
	s.run("b", "1/x")
	s.pass(4 * time.Minute)
	one = s.connectFrom("a", "10.0.0.8", "run1")
	one.refused("1/x", "changed by b")
}

func TestAChangedWordKeepsTheLook(t *testing.T) {
	s := newServer(t)
	a := s.connect("a")
	a.look("1/x")
	s.pass(3 * time.Second)
	s.run("b", "1/x")
	s.pass(4 * time.Second)
	if err := a.client.SetJobKey("key"); err != nil {
		t.Fatal(err)
	}
	a.job.Rejoin()
	a.refused("1/x", "changed by b")
	a.close()
}

func TestTheHolderByMKDChangesTheSite(t *testing.T) {
	s := newServer(t)
	a, b := s.connect("a"), s.connect("b")
	b.look("1/x")
	s.pass(3 * time.Second)
	if _, _, _, err := a.client.AcquireOrWait(t.Context(), "/www/1/.lock", nil); err != nil {
		t.Fatal(err)
	}
	a.job.Acquired("/www/1/.lock")
	a.accepted("1/x")
	if err := a.client.Release(t.Context(), "/www/1/.lock"); err != nil {
		t.Fatal(err)
	}
	b.refused("1/x", "changed by a")
	a.accepted("1/x")
}

func TestTheJobOfALockMayTakeAndReleaseIt(t *testing.T) {
	s := newServer(t)
	a, b := s.connect("a"), s.connect("b")
	a.look("1/x")
	if mine, err := a.job.Release(t.Context(), "/www/1/.lock"); !mine || err != job.ErrAutomatic {
		t.Errorf("RMD without MKD: %v, %v", mine, err)
	}
	if _, mine := b.job.Take("/www/1/.lock"); mine {
		t.Error("another job takes the lock")
	}
	h, mine := a.job.Take("/www/1/.lock")
	if s.pass(time.Minute); !mine || h.Token == 0 || !s.held("1") {
		t.Errorf("MKD: %v, %+v", mine, h)
	}
	if mine, err := a.job.Release(t.Context(), "/www/1/.lock"); !mine || err != nil || s.held("1") {
		t.Errorf("RMD: %v, %v", mine, err)
	}
	a.accepted("1/x")
}

func TestTwoProgramsAsOneJobAreNoted(t *testing.T) {
	s := newServer(t)
	a, b := s.connect("a"), s.connect("a")
	a.accepted("1/x")
	b.accepted("1/x")
	if len(s.remarks) != 1 || !strings.Contains(s.remarks[0], "two programs seem to run as one job: stored by sessions") {
		t.Error(s.remarks)
	}
}

// Texts with long names are short.
func TestARefusalIsShort(t *testing.T) {
	by := lock.Owner{Account: strings.Repeat("a", 32), Address: "2001:db8:1234:5678:9abc:def0:1234:5678"}
	for _, e := range []job.Error{
		{Cause: job.Stale, By: by, Files: 123456, Looked: true}, {Cause: job.Held, By: by}, {Cause: job.Other, Why: errors.New(strings.Repeat("x", 200))},
		{Cause: job.Lost, Why: errors.New(strings.Repeat("x", 200))},
	} {
		if n := len("550 /www/x: " + e.Error()); n > 128 {
			t.Errorf("%d bytes: %v", n, &e)
		}
	}
}
