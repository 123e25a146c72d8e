package lock_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// These tests show what a caller of a table can rely on, one promise each. What must hold after every step is checked by TestModel.

// scene is a table with a log in memory and a clock that the test moves.
type scene struct {
	*testing.T
	ctx       context.Context
	clock     *locktest.FakeClock
	log       lock.Log
	disk      *scriptedDisk // nil: none
	rules     *lock.Rules
	logger    *slog.Logger
	suspended atomic.Bool
	table     *lock.Table
}

const here, elsewhere = "192.0.2.1", "198.51.100.1"

// newScene starts a table. Without rules, everything below /locks is a lock that gets ten minutes old.
func newScene(t *testing.T, rules ...lock.Rule) *scene {
	t.Helper()
	if len(rules) == 0 {
		rules = []lock.Rule{{Match: "/locks/**", MaxAge: 10 * time.Minute}}
	}
	compiled, err := lock.NewRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{T: t, ctx: t.Context(), clock: locktest.NewFakeClock(), log: locktest.NewMemory(), rules: compiled}
	s.start()
	return s
}

// start starts a table on the log.
func (s *scene) start() {
	s.Helper()
	o := lock.Options{Log: s.log, Clock: s.clock, Rules: s.rules, Logger: s.logger, Valid: func() error {
		if s.suspended.Load() {
			return &lock.SuspendedError{Reason: "a test"}
		}
		return nil
	}}
	if s.disk != nil {
		o.Disk = s.disk
	}
	var err error
	if s.table, err = lock.NewTable(s.ctx, o); err != nil {
		s.Fatal(err)
	}
}

// open begins a session, with a job key if one is given.
func (s *scene) open(account string, jobKey ...string) *lock.Session {
	return s.table.Open(lock.Owner{Account: account, Address: here, JobKey: strings.Join(jobKey, "")})
}

func (s *scene) acquire(by *lock.Session, names ...lock.Name) (h lock.Hold) {
	s.Helper()
	for _, n := range names {
		var err error
		if h, _, _, err = by.AcquireOrWait(s.ctx, n, nil); err != nil {
			s.Fatalf("%s: %v", n, err)
		}
	}
	return h
}

func (s *scene) wait(by *lock.Session, n lock.Name) *lock.Waiting {
	s.Helper()
	by.SetWait(time.Hour)
	return s.queue(by, n)
}

// queue has the session wait for as long as the rule has it.
func (s *scene) queue(by *lock.Session, n lock.Name) *lock.Waiting {
	s.Helper()
	_, _, w, err := by.AcquireOrWait(s.ctx, n, func() {})
	if w == nil {
		s.Fatalf("%s does not wait for %s: %v", by.Owner(), n, err)
	}
	return w
}

// refused wants an error that matches.
func (s *scene) refused(by *lock.Session, n lock.Name, want error) {
	s.Helper()
	_, _, _, err := by.AcquireOrWait(s.ctx, n, nil)
	s.is(err, want)
}

func (s *scene) release(by *lock.Session, n lock.Name, want error) error {
	s.Helper()
	err := by.Release(s.ctx, n)
	s.is(err, want)
	return err
}

func (s *scene) is(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("the error is %v, want %v", err, want)
	}
}

// pass lets time go by, second by second, and ends what is over.
func (s *scene) pass(d time.Duration) {
	for {
		s.clock.Advance(min(d, time.Second))
		s.table.Expire(s.ctx)
		if d -= time.Second; d <= 0 {
			return
		}
	}
}

// held wants the names to be held by an account; "": by none.
func (s *scene) held(account string, names ...lock.Name) {
	s.Helper()
	for _, n := range names {
		status, held := s.table.Get(n)
		if held != (account != "") || held && status.Holds[0].Owner.Account != account {
			s.Errorf("%s is held by %v, want %q", n, status.Holds, account)
		}
	}
}

func TestReleasePoliciesAllowTheirSessions(t *testing.T) {
	const all, none = "address user session anyone", ""
	rules := []lock.Rule{
		{Match: "/address/*"}, {Match: "/user/*", Release: lock.ReleaseUser},
		{Match: "/session/*", Release: lock.ReleaseSession}, {Match: "/anyone/*", Release: lock.ReleaseAnyone},
	}
	for _, test := range []struct {
		other lock.Owner // another session than the holder's, which is a@192.0.2.1 with the job key "job"
		ended bool       // the holder's session has ended
		acts  string     // the policies under which the other one acts for the hold
	}{
		{lock.Owner{Account: "a", Address: here, JobKey: "job"}, false, all},
		{lock.Owner{Account: "a", Address: elsewhere, JobKey: "job"}, true, all},
		{lock.Owner{Account: "a", Address: here}, false, none},
		{lock.Owner{Account: "a", Address: here}, true, "address user"},
		{lock.Owner{Account: "a", Address: "::ffff:" + here}, true, "address user"},
		{lock.Owner{Account: "a", Address: elsewhere}, true, "user"},
		{lock.Owner{Account: "a", Address: here, JobKey: "x"}, true, none},
		{lock.Owner{Account: "b", Address: here, JobKey: "job"}, true, none},
	} {
		for policy := range strings.FieldsSeq(all) {
			t.Run(fmt.Sprint(test.other, " ", test.other.JobKey, ", ended ", test.ended, ", ", policy), func(t *testing.T) {
				s := newScene(t, rules...)
				n := lock.Name("/" + policy + "/x")
				holder, other := s.open("a", "job"), s.table.Open(test.other)
				hold := s.acquire(holder, n)
				if test.ended {
					holder.Close(s.ctx)
				}
				var want, released error
				if !strings.Contains(test.acts, policy) {
					want, released = lock.ErrNotYours, lock.ErrNotYours
				}
				if policy == "anyone" {
					released = nil
				}
				got, err := other.ActsFor(n)
				s.is(err, want)
				if err == nil && got.Token != hold.Token {
					t.Errorf("it acts for token %d", got.Token)
				}
				s.release(other, n, released)
			})
		}
	}
}

func TestAnotherConnectionOfTheClientReleases(t *testing.T) {
	s := newScene(t)
	first, second, third := s.open("a"), s.open("a"), s.open("a")
	s.acquire(first, "/locks/x", "/locks/y")
	s.release(second, "/locks/x", lock.ErrNotYours)
	s.clock.Advance(time.Second)
	second.Work()
	s.release(second, "/locks/x", nil)
	s.is(second.SetJobKey("second"), nil)
	s.is(first.SetJobKey("first"), nil)
	s.acquire(first, "/locks/z")
	s.clock.Advance(time.Second)
	second.Work()
	s.release(second, "/locks/z", lock.ErrNotYours)
	s.is(first.SetJobKey(""), nil)
	s.is(second.SetJobKey(""), nil)
	s.release(first, "/locks/z", nil)
	s.refused(third, "/locks/y", lock.ErrHeld) // so there is another program
	s.release(second, "/locks/y", lock.ErrNotYours)
}

// However a session tried to get the lock, it belongs to another program than the holder.
func TestASessionThatTriedToAcquireALockDoesNotReleaseIt(t *testing.T) {
	for name, try := range map[string]func(s *scene, holder, other *lock.Session) lock.Name{
		"it waited": func(s *scene, holder, other *lock.Session) lock.Name {
			first := s.open("a")
			s.acquire(first, "/locks/x")
			next := s.wait(holder, "/locks/x")
			other.SetWait(time.Minute)
			s.queue(other, "/locks/x")
			s.release(first, "/locks/x", nil)
			_, _, err := next.Poll(s.ctx)
			s.is(err, nil)
			s.pass(time.Minute)
			return "/locks/x"
		},
		"no rule matches": func(s *scene, holder, other *lock.Session) lock.Name {
			s.acquire(holder, "/locks/x")
			s.table.SetRules(rulesOf(s.T, []lock.Rule{}...))
			s.refused(other, "/locks/x", lock.ErrHeld)
			return "/locks/x"
		},
		"it has too many": func(s *scene, holder, other *lock.Session) lock.Name {
			s.acquire(holder, "/locks/x")
			other.SetMaxLocks(1)
			s.refused(other, "/locks/x", fs.ErrPermission)
			return "/locks/x"
		},
		"adopted meanwhile": func(s *scene, holder, other *lock.Session) lock.Name {
			s.acquire(s.open("a", "job"), "/locks/x")
			s.refused(other, "/locks/x", lock.ErrHeld)
			s.is(holder.SetJobKey("job"), nil)
			s.acquire(holder, "/locks/x")
			return "/locks/x"
		},
		"it shared": func(s *scene, holder, other *lock.Session) lock.Name {
			s.acquire(other, "/shared/x")
			s.acquire(holder, "/shared/x")
			s.release(other, "/shared/x", nil)
			return "/shared/x"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, lock.Rule{Match: "/locks/*"}, lock.Rule{Match: "/shared/*", Contention: &lock.Contention{Shared: []string{"a"}}})
			other := s.open("a")
			n := try(s, s.open("a"), other)
			s.clock.Advance(time.Second)
			other.Work()
			s.release(other, n, lock.ErrNotYours)
		})
	}
}

// A client that was not told of its loss sends RMD again.
func TestALossIsForgivenWhenItIsReported(t *testing.T) {
	s := newScene(t, lock.Rule{Match: "/locks/*", MaxAge: time.Minute})
	log := &unwritten{Memory: locktest.NewMemory()}
	s.log = log
	s.start()
	late, next := s.open("a"), s.open("a")
	s.acquire(late, "/locks/x")
	s.pass(time.Minute)
	s.acquire(next, "/locks/x")
	next.Close(s.ctx)
	log.fails.Store(true)
	s.release(late, "/locks/x", lock.ErrUncertain)
	log.fails.Store(false)
	s.release(late, "/locks/x", lock.ErrNotYours)
	s.held("a", "/locks/x")
}

func TestLateReleaseOfALostLockEndsNoNewerHold(t *testing.T) {
	for _, policy := range []lock.ReleasePolicy{lock.ReleaseAddress, lock.ReleaseUser, lock.ReleaseAnyone} {
		s := newScene(t, lock.Rule{Match: "/locks/*", MaxAge: time.Minute, Release: policy})
		late, next := s.open("a"), s.open("a")
		s.acquire(late, "/locks/x")
		s.pass(time.Minute)
		s.acquire(next, "/locks/x")
		next.Close(s.ctx)
		s.clock.Advance(5 * time.Second)
		if err := s.release(late, "/locks/x", lock.ErrNotYours); err.Error() != "taken away 5s ago: older than 1m0s" {
			t.Error(err)
		}
		s.held("a", "/locks/x")
	}
}

// A session lost a lock, which another client has now, and acquires a lock below it.
func TestTheRefusalBelowALostLockNamesItsEnd(t *testing.T) {
	s := newScene(t, lock.Rule{Match: "/gr*", MaxAge: time.Minute}, lock.Rule{Match: "/gr*/*"})
	a := s.open("a")
	s.acquire(a, "/group")
	s.pass(time.Minute)
	s.acquire(s.open("b"), "/group")
	s.clock.Advance(5 * time.Second)
	_, _, _, err := a.AcquireOrWait(s.ctx, "/group/x", nil)
	if err == nil || err.Error() != "lies in the lock /group, taken away 5s ago: older than 1m0s" {
		t.Error(err)
	}
}

func TestAnIdleGroupStandsWhileAMemberIsAlive(t *testing.T) {
	s := newScene(t,
		lock.Rule{Match: "/gr*", MaxIdle: time.Minute, Contention: &lock.Contention{Members: lock.MembersAnyone}}, lock.Rule{Match: "/gr*/**"})
	s.acquire(s.open("a"), "/group")
	b := s.open("b")
	s.acquire(b, "/group/dir/x")
	s.clock.Advance(50 * time.Second)
	b.Touch()
	s.pass(50 * time.Second)
	s.held("a", "/group")
	if status, _ := s.table.Get("/group"); status.Remaining != 10*time.Second {
		t.Errorf("it expires in %s", status.Remaining)
	}
	s.pass(10 * time.Second)
	s.held("", "/group", "/group/dir/x")
}

func TestIdleTimeCountsFromTheRestart(t *testing.T) {
	s := newScene(t, lock.Rule{Match: "/locks/*", MaxIdle: time.Minute})
	s.acquire(s.open("a"), "/locks/x")
	s.clock.Advance(time.Hour)
	s.start()
	s.pass(59 * time.Second)
	s.held("a", "/locks/x")
	s.pass(time.Second)
	s.held("", "/locks/x")
}

// protecting returns rules under which NAME_lock protects NAME.tsv.
func protecting() []lock.Rule {
	return []lock.Rule{
		{Match: "/*_lock", MaxAge: time.Minute, Protection: &lock.Protection{Paths: []string{"$1.tsv"}}},
		{Match: "/all/*", Protection: &lock.Protection{Paths: []string{"/$1.tsv"}}},
		{Match: "/shared/*", Protection: &lock.Protection{Paths: []string{"/$1.doc"}}, Contention: &lock.Contention{Shared: []string{"a", "b"}}},
		{Match: "/dir/**"},
	}
}

// writes changes a path, and wants the text of the error; "": none.
func (s *scene) writes(by *lock.Session, change lock.Write, want string) (permit lock.Permit) {
	s.Helper()
	err := by.Write(s.ctx, []lock.Write{change}, func(permits []lock.Permit) error { permit = permits[0]; return nil })
	if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
		s.Errorf("%s: the error is %v, want %q", change.Path, err, want)
	}
	return permit
}

var phone = lock.Write{Path: "/phone.tsv"}

func TestAJobOfSeveralConnectionsWritesByItsJobKey(t *testing.T) {
	s := newScene(t, protecting()...)
	first := s.open("a", "job")
	s.acquire(first, "/phone_lock")
	first.Close(s.ctx)
	s.writes(s.open("a", "job"), phone, "")
	s.writes(s.open("a"), phone, "send SITE LOCK AS with the same job key in each connection, before MKD")
	s.writes(s.open("b", "job"), phone, "which you do not hold")
}

func TestALostLockIsNamedWithTheReason(t *testing.T) {
	s := newScene(t, protecting()...)
	a := s.open("a")
	s.acquire(a, "/phone_lock")
	s.clock.Advance(time.Minute)
	s.writes(a, phone, "taken away 0s ago: older than 1m0s") // the hold has not ended yet
	s.table.Expire(s.ctx)
	s.clock.Advance(12 * time.Second)
	s.writes(a, phone, "taken away 12s ago: older than 1m0s")
}

// The release of its job's next hold is refused, because a lock lies below it. The session still learns that it lost an earlier one.
func TestARefusedReleaseKeepsTheNoteOfALoss(t *testing.T) {
	s := newScene(t)
	loser, next := s.open("a", "job"), s.open("a", "job")
	s.acquire(loser, "/locks/x")
	s.pass(10 * time.Minute)
	s.acquire(next, "/locks/x", "/locks/x/y")
	s.release(loser, "/locks/x", lock.ErrMembers)
	s.release(next, "/locks/x/y", nil)
	s.release(next, "/locks/x", nil)
	if err := loser.Release(s.ctx, "/locks/x"); !errors.As(err, new(*lock.LostError)) {
		t.Errorf("the release returns %v", err)
	}
}

func TestAWriteNeedsTheHoldThatItBeganWith(t *testing.T) {
	s := newScene(t, protecting()...)
	a := s.open("a")
	s.acquire(a, "/phone_lock")
	begun := lock.Write{Path: "/phone.tsv", Begun: true, Permit: s.writes(a, phone, "")}
	s.writes(a, begun, "")
	s.release(a, "/phone_lock", nil)
	s.acquire(a, "/phone_lock")
	s.writes(a, begun, "which was given back meanwhile")
	inside := lock.Write{Path: "/phone_lock/file"}
	inside.Permit, inside.Begun = s.writes(a, inside, ""), true
	s.release(a, "/phone_lock", nil)
	s.writes(a, inside, "which was given back meanwhile")
}

// The error matches ErrNotYours only if the lock has another holder.
func TestAWriteThatBeganUnderALostLockFindsItFree(t *testing.T) {
	s := newScene(t, protecting()...)
	a := s.open("a")
	s.acquire(a, "/phone_lock")
	inside := lock.Write{Path: "/phone_lock/file"}
	inside.Permit, inside.Begun = s.writes(a, inside, ""), true
	s.pass(time.Minute)
	_, err := a.MayMake(s.ctx, inside)
	s.is(err, lock.ErrNotHeld)
}

func TestASharedHoldAllowsNoChange(t *testing.T) {
	s := newScene(t, protecting()...)
	a := s.open("a")
	s.acquire(a, "/shared/x")
	s.writes(a, lock.Write{Path: "/x.doc"}, "which you hold shared, not exclusively")
}

func TestEveryLockOfAPathCounts(t *testing.T) {
	s := newScene(t, protecting()...)
	a, b := s.open("a"), s.open("b")
	s.acquire(a, "/phone_lock")
	s.writes(a, phone, "")
	s.acquire(b, "/all/phone")
	s.writes(a, phone, "which you do not hold")
}

func TestTheInnermostLockDecidesWhoWritesInIt(t *testing.T) {
	s := newScene(t, protecting()...)
	a, b := s.open("a"), s.open("b")
	s.acquire(a, "/dir/x", "/dir/x/y")
	s.writes(b, lock.Write{Path: "/dir/x/y/file"}, "which you do not hold")
	s.writes(a, lock.Write{Path: "/dir/x/y/file"}, "")
	s.writes(b, lock.Write{Path: "/dir/z"}, "")
}

// failingLog is a log whose records may be lost.
type failingLog struct{ *locktest.Memory }

func (failingLog) Wait(context.Context, lock.Position, bool) error { return lock.ErrUncertain }

func TestAGrantThatMayBeLostReturnsAnError(t *testing.T) {
	s := newScene(t)
	s.log = failingLog{locktest.NewMemory()}
	s.start()
	s.refused(s.open("a"), "/locks/x", lock.ErrUncertain)
	s.table.Expire(s.ctx)
	s.held("", "/locks/x")
}

func TestASuspendedServerChangesNothing(t *testing.T) {
	s := newScene(t, append(protecting(), lock.Rule{Match: "/locks/*"})...)
	a, b := s.open("a"), s.open("b")
	hold := s.acquire(a, "/phone_lock", "/locks/x")
	w := s.wait(b, "/locks/x")
	s.suspended.Store(true)
	s.clock.Advance(time.Hour)
	s.table.Expire(s.ctx)
	var not *lock.SuspendedError
	_, _, _, acquired := b.AcquireOrWait(s.ctx, "/locks/y", nil)
	released := a.Release(s.ctx, "/locks/x")
	_, renewed := a.Renew(s.ctx, "/locks/x")
	broken := s.table.Break(s.ctx, "/locks/x", hold.Token, lock.Owner{}, "")
	written := a.Write(s.ctx, []lock.Write{{Path: "/locks/x/file"}}, func([]lock.Permit) error { return nil })
	for i, err := range []error{acquired, released, renewed, broken, written} {
		if !errors.As(err, &not) {
			t.Errorf("%d: %v", i, err)
		}
	}
	s.held("a", "/phone_lock", "/locks/x")
	if _, over, err := w.Poll(s.ctx); over || err != nil {
		t.Errorf("the waiting is over: %v", err)
	}
	if in, expires := s.table.NextExpiry(); in != time.Second || !expires {
		t.Errorf("the table looks for expired locks in %v, want 1s", in)
	}
	s.suspended.Store(false)
	s.table.Expire(s.ctx)
	s.held("", "/phone_lock")
	s.held("a", "/locks/x")
}

// suspendingLog is a log with which a suspension begins at the next record.
type suspendingLog struct {
	*locktest.Memory
	suspend func()
}

func (l *suspendingLog) Append(records []lock.Record) lock.Position {
	l.suspend()
	return l.Memory.Append(records)
}

// run runs the table's work in the background until stop is called.
func (s *scene) run() (stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	var running sync.WaitGroup
	running.Go(func() { s.is(s.table.Run(ctx), nil) })
	return func() {
		cancel()
		running.Wait()
	}
}

// A suspension begins after the decision to end a hold. The session that waits for the lock gets it after the suspension.
func TestAWaitingSessionGetsItsLockAfterASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		log := &suspendingLog{locktest.NewMemory(), func() {}}
		s.log = log
		s.start()
		defer s.run()()
		a, b := s.open("a"), s.open("b")
		s.acquire(a, "/locks/x")
		w := s.wait(b, "/locks/x")
		log.suspend = func() { s.suspended.Store(true) }
		s.release(a, "/locks/x", nil)
		log.suspend = func() {}
		time.Sleep(3 * time.Second)
		if _, over, err := w.Poll(s.ctx); over {
			t.Errorf("the wait is over during the suspension: %v", err)
		}
		s.suspended.Store(false)
		time.Sleep(2 * time.Second)
		if _, over, err := w.Poll(s.ctx); !over || err != nil {
			t.Errorf("over: %v, %v", over, err)
		}
		s.held("b", "/locks/x")
	})
}

// A suspension begins after a waiting session was told to make its directory. It makes the directory after the suspension.
func TestNoDirectoryIsMadeDuringASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withDirectories(t)
		defer s.run()()
		a, b := s.open("a"), s.open("b")
		s.acquire(a, "/locks/x")
		woken := false
		b.SetWait(time.Hour)
		_, _, w, _ := b.AcquireOrWait(s.ctx, "/locks/x", func() { woken = true })
		s.release(a, "/locks/x", nil)
		s.suspended.Store(true)
		if _, over, err := w.Poll(s.ctx); over {
			t.Fatalf("the wait is over during the suspension: %v", err)
		}
		s.held("", "/locks/x")
		woken = false
		s.suspended.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, over, err := w.Poll(s.ctx); !woken || !over || err != nil {
			t.Errorf("woken: %v, over: %v, %v", woken, over, err)
		}
	})
}

// fullLog is a log with which a suspension begins while a grant waits for room.
type fullLog struct {
	*locktest.Memory
	suspend func()
}

func (l *fullLog) MakeRoom(context.Context, lock.Token) error {
	l.SetFull(false)
	l.suspend()
	return nil
}

func TestAGrantThatWaitsForRoomChecksForASuspension(t *testing.T) {
	s := newScene(t)
	log := &fullLog{locktest.NewMemory(), func() { s.suspended.Store(true) }}
	log.SetFull(true)
	s.log = log
	s.start()
	if _, _, _, err := s.open("a").AcquireOrWait(s.ctx, "/locks/x", nil); !errors.As(err, new(*lock.SuspendedError)) {
		t.Error(err)
	}
	s.held("", "/locks/x")
}

// A *SuspendedError promises that nothing was changed. The host has removed the directory, so the release ends the hold.
func TestAReleaseThatEndsAHoldDuringASuspensionIsUncertain(t *testing.T) {
	s := withDirectories(t)
	a := s.open("a")
	s.acquire(a, "/locks/x")
	s.disk.OnRemove(func(lock.Hold) error { s.suspended.Store(true); return lock.ErrDirectoryGone })
	s.release(a, "/locks/x", lock.ErrUncertain)
	s.suspended.Store(false)
	if err := a.Release(s.ctx, "/locks/x"); !errors.As(err, new(*lock.LostError)) {
		t.Errorf("the second release returns %v", err)
	}
}

// A refusal names the holder that this server has in memory. If the server is suspended meanwhile, that may be old.
func TestASuspendedServerReportsNoHolder(t *testing.T) {
	s := newScene(t)
	s.acquire(s.open("a"), "/locks/x")
	asked := 0
	table, err := lock.NewTable(s.ctx, lock.Options{Log: s.log, Clock: s.clock, Rules: s.rules, Logger: s.logger, Valid: func() error {
		if asked++; asked > 1 && s.suspended.Load() {
			return &lock.SuspendedError{Reason: "a test"}
		}
		return nil
	}})
	s.is(err, nil)
	s.table = table
	b := s.open("b")
	asked = 0
	s.suspended.Store(true)
	if _, _, _, err := b.AcquireOrWait(s.ctx, "/locks/x", nil); !errors.As(err, new(*lock.SuspendedError)) {
		t.Error(err)
	}
}
