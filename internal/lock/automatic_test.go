package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func site(turn time.Duration) lock.Rule {
	return lock.Rule{
		Match: "/www/*/.lock", MaxAge: time.Hour, MaxIdle: 2 * time.Minute, Grace: 3 * time.Second,
		Protection: &lock.Protection{Paths: []string{"/www/$1/**"}}, Contention: &lock.Contention{Wait: 15 * time.Second},
		Automatic: &lock.Automatic{Turn: turn},
	}
}

// inTurn makes a look or a change of a session, and waits for its turn.
func inTurn(begin func(wake func()) (*lock.Waiting, error)) error {
	woken := make(chan struct{}, 1)
	waiting, err := begin(func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	for waiting != nil {
		<-woken
		if _, over, err := waiting.Poll(context.Background()); over {
			return err
		}
	}
	return err
}

// Jobs look at a site and then change it, at random moments, over one connection or several. Each job finds the site as its first look saw
// it, but for its own changes, or changes nothing. To see the test fail: make State.staleError return nil.
func TestAJobDoesNotOverwriteChangesMadeSinceItsLook(t *testing.T) {
	for _, turn := range []time.Duration{0, 2 * time.Second} {
		t.Run(turn.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newTable(t, lock.Options{}, site(turn))
				stop, end := context.WithCancel(t.Context())
				var work, reaper sync.WaitGroup
				reaper.Go(func() {
					for stop.Err() == nil {
						table.Expire(stop)
						time.Sleep(50 * time.Millisecond)
					}
				})
				var mu sync.Mutex
				var author, changes, refused, done int
				for i := range 6 {
					work.Go(func() {
						r := rand.New(rand.NewPCG(uint64(i), uint64(turn)))
						pause := func(most time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(most)))) }
						for run := range 15 {
							me := 100*i + run + 1
							open := func() *lock.Session {
								return table.Open(lock.Owner{Account: "ci", Address: fmt.Sprintf("10.0.0.%d", i)})
							}
							s := open()
							_ = inTurn(func(wake func()) (*lock.Waiting, error) {
								return s.Look(context.Background(), "/www/a/x", lock.NoSign, wake), nil
							})
							mu.Lock()
							seen := changes
							mu.Unlock()
							wrote, denied := 0, false
							for range 4 {
								if r.IntN(2) == 0 { // another connection
									s.Close(context.Background())
									pause(2 * time.Second)
									s = open()
								}
								pause(3 * time.Second)
								err := inTurn(func(wake func()) (*lock.Waiting, error) {
									return s.Change(context.Background(), "/www/a/x", lock.Store, wake)
								})
								var why *lock.JobError
								if errors.As(err, &why) {
									if denied = true; wrote > 0 {
										t.Errorf("refused after %d changes: %v", wrote, err)
									}
									continue
								}
								if err == nil {
									err = s.Write(context.Background(), []lock.Write{{Path: "/www/a/x"}}, func(permits []lock.Permit) error {
										mu.Lock()
										defer mu.Unlock()
										if denied {
											t.Error("a refused job changes something")
										}
										if wrote == 0 && changes != seen || wrote > 0 && author != me {
											t.Errorf("another job has changed the site: %d changes, %d at the look", changes, seen)
										}
										author, changes, wrote = me, changes+1, wrote+1
										return table.Published(context.Background(), lock.Hold{Name: permits[0].Lock, Token: permits[0].Token, Owner: permits[0].Owner},
											permits[0].Owner, "", lock.Publication{Path: "/www/a/x"})
									})
								}
								if err != nil {
									t.Errorf("a change: %v", err)
								}
							}
							mu.Lock()
							if denied {
								refused++
							} else {
								done++
							}
							mu.Unlock()
							s.Close(context.Background())
							time.Sleep(4 * time.Second)
						}
					})
				}
				work.Wait()
				end()
				reaper.Wait()
				if done == 0 || turn == 0 && refused == 0 {
					t.Errorf("%d jobs succeeded, %d were refused", done, refused)
				}
				t.Logf("%d jobs succeeded, %d were refused", done, refused)
			})
		})
	}
}

// So many jobs look that the first ones are forgotten. A job of which nothing is known is refused then.
func TestForgottenJobsCountAsHavingLooked(t *testing.T) {
	clock := locktest.NewFakeClock()
	table := newTable(t, lock.Options{Clock: clock}, site(0))
	ctx := context.Background()
	open := func(i int) *lock.Session {
		return table.Open(lock.Owner{Account: "ci", Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)})
	}
	look := func(i int) {
		s := open(i)
		s.Look(ctx, "/www/a/x", lock.NoSign, nil)
		s.Close(ctx)
	}
	look(1)
	writer := open(0)
	if _, err := writer.Change(ctx, "/www/a/x", lock.NoSign, nil); err != nil {
		t.Fatal(err)
	}
	if err := table.Published(ctx, lock.Hold{Name: "/www/a/.lock", Token: 1, Owner: writer.Owner()}, writer.Owner(), "", lock.Publication{Path: "/www/a/x"}); err != nil {
		t.Fatal(err)
	}
	writer.Close(ctx)
	clock.Advance(5 * time.Second)
	table.Expire(ctx)
	for i := range 10_100 {
		look(i + 2)
	}
	var why *lock.JobError
	if _, err := open(1).Change(ctx, "/www/a/x", lock.NoSign, nil); !errors.As(err, &why) || why.Cause != "stale" {
		t.Errorf("a forgotten job: %v", err)
	}
	clock.Advance(11 * time.Minute)
	look(2)
	if _, err := open(200_000).Change(ctx, "/www/a/x", lock.NoSign, nil); err != nil {
		t.Errorf("a job ten minutes later: %v", err)
	}
}

// A client that makes very many connections is one job, and has no other one forgotten.
func TestManyConnectionsAreOneJob(t *testing.T) {
	table := newTable(t, lock.Options{Clock: locktest.NewFakeClock()}, site(0))
	ctx := context.Background()
	open := func(address string) *lock.Session { return table.Open(lock.Owner{Account: "ci", Address: address}) }
	first := open("10.0.0.1")
	first.Look(ctx, "/www/a/x", lock.NoSign, nil)
	first.Close(ctx)
	for range 10_100 {
		busy := open("10.0.0.2")
		busy.Look(ctx, "/www/a/x", lock.NoSign, nil)
		if _, err := busy.Change(ctx, "/www/a/x", lock.NoSign, nil); err != nil {
			t.Fatal(err)
		}
		busy.Close(ctx)
	}
	if err := table.Published(ctx, lock.Hold{Name: "/www/a/.lock", Token: 1}, lock.Owner{}, "", lock.Publication{Path: "/www/a/x"}); err != nil {
		t.Fatal(err)
	}
	var why *lock.JobError
	if _, err := open("10.0.0.3").Change(ctx, "/www/a/x", lock.NoSign, nil); !errors.As(err, &why) || why.Cause != "held" {
		t.Errorf("a job that never looked: %v", err)
	}
}

// One session may look at any number of sites.
func TestAJobForgetsTheOldestOfTooManyLocks(t *testing.T) {
	table := newTable(t, lock.Options{}, site(0))
	s := table.Open(lock.Owner{Account: "ci", Address: "10.0.0.1"})
	for i := range 2000 {
		s.Look(t.Context(), lock.Name(fmt.Sprintf("/www/%d/x", i)), lock.NoSign, nil)
	}
	if n := table.RememberedViews(); n > 200 {
		t.Errorf("%d are remembered", n)
	}
}

// A client looks at more sites than a job remembers, over one connection or, with job = "session", over many. Its forgotten looks count as
// looks before all changes.
func TestAForgottenLookAtOneOfManySitesCounts(t *testing.T) {
	t.Run("one connection", func(t *testing.T) { lookAtManySites(t, false) })
	t.Run("many connections", func(t *testing.T) { lookAtManySites(t, true) })
}

func lookAtManySites(t *testing.T, many bool) {
	rule := site(0)
	rule.Automatic.Session = many
	clock := locktest.NewFakeClock()
	table := newTable(t, lock.Options{Clock: clock}, rule)
	open := func() *lock.Session { return table.Open(lock.Owner{Account: "ci", Address: "10.0.0.1"}) }
	s := open()
	ctx := t.Context()
	const sites = 70
	path := func(i int) lock.Name { return lock.Name(fmt.Sprintf("/www/%d/x", i)) }
	for i := range sites {
		if many {
			s.Close(ctx)
			s = open()
		}
		s.Look(ctx, path(i), lock.NoSign, nil)
		clock.Advance(time.Second)
	}
	clock.Advance(9 * time.Minute)
	s.Look(ctx, "/www/last/x", lock.NoSign, nil)
	clock.Advance(9 * time.Minute)
	for i := range sites {
		s := table.Open(lock.Owner{Account: "other", Address: "10.0.0.2"})
		if _, err := s.Change(ctx, path(i), lock.NoSign, nil); err != nil {
			t.Fatal(err)
		}
		status, _ := table.Get(table.Rules().Automatic(path(i)))
		if err := table.Published(ctx, status.Holds[0], s.Owner(), "", lock.Publication{Path: path(i)}); err != nil {
			t.Fatal(err)
		}
		if err := table.Break(ctx, status.Name, status.Holds[0].Token, lock.Owner{}, ""); err != nil {
			t.Fatal(err)
		}
		s.Close(ctx)
	}
	for i := range sites {
		if many {
			s.Close(ctx)
			s = open()
		}
		var why *lock.JobError
		if _, err := s.Change(ctx, path(i), lock.NoSign, nil); !errors.As(err, &why) || why.Cause != "stale" {
			t.Errorf("a change of site %d, which another job has changed since the look: %v", i, err)
		}
	}
}

// Two sessions of a job look and wait. The second look ends later, and does not hide what another job has changed after the first.
func TestTheFirstLookOfAJobCounts(t *testing.T) {
	table := newTable(t, lock.Options{Clock: locktest.NewFakeClock()}, site(0))
	open := func(by, nonce string) *lock.Session {
		return table.Open(lock.Owner{Account: by, Address: "10.0.0.1", Nonce: nonce})
	}
	change := func(s *lock.Session) (*lock.Waiting, error) {
		return s.Change(t.Context(), "/www/a/x", lock.NoSign, func() {})
	}
	look := func(s *lock.Session) *lock.Waiting { return s.Look(t.Context(), "/www/a/x", lock.NoSign, func() {}) }
	free := func() {
		status, _ := table.Get("/www/a/.lock")
		if err := table.Break(t.Context(), "/www/a/.lock", status.Holds[0].Token, lock.Owner{}, ""); err != nil {
			t.Fatal(err)
		}
	}
	first, second, other := open("a", "job"), open("a", "job"), open("b", "")
	change(open("c", ""))
	one := look(first)
	turn, _ := change(other)
	two := look(second)
	free()
	_, looked, _ := one.Poll(t.Context())
	if _, over, err := turn.Poll(t.Context()); !looked || !over || err != nil {
		t.Fatalf("looked: %v; changes: %v, %v", looked, over, err)
	}
	if err := other.Write(t.Context(), []lock.Write{{Path: "/www/a/x"}}, func(by []lock.Permit) error {
		return table.Published(t.Context(), lock.Hold{Name: by[0].Lock, Token: by[0].Token, Owner: by[0].Owner}, other.Owner(), "", lock.Publication{Path: "/www/a/x"})
	}); err != nil {
		t.Fatal(err)
	}
	free()
	if _, over, _ := two.Poll(t.Context()); !over {
		t.Error("the second look waits on")
	}
	if _, err := change(first); !errors.As(err, new(*lock.JobError)) {
		t.Errorf("a change of what another job has changed since the look: %v", err)
	}
}

// After a reload with a new rule, jobs that have not looked are refused if another job has changed something. Their own changes do not count.
func TestOwnChangesAfterAReloadAreNoReasonForARefusal(t *testing.T) {
	for _, eachSession := range []bool{false, true} {
		clock := locktest.NewFakeClock()
		table := newTable(t, lock.Options{Clock: clock})
		rule := site(0)
		rule.Automatic.Session = eachSession
		rules, err := lock.NewRules([]lock.Rule{rule})
		if err != nil {
			t.Fatal(err)
		}
		table.SetRules(rules)
		change := func(account string) error {
			s := table.Open(lock.Owner{Account: account, Address: "10.0.0.1"})
			defer clock.Advance(5 * time.Second)
			defer s.Close(t.Context())
			_, err := s.Change(t.Context(), "/www/a/x", lock.Store, nil)
			if err != nil {
				return err
			}
			status, _ := table.Get("/www/a/.lock")
			return table.Published(t.Context(), status.Holds[0], s.Owner(), "", lock.Publication{Path: "/www/a/x"})
		}
		for _, account := range []string{"ci", "ci"} {
			if err := change(account); err != nil {
				t.Errorf("each session a job %v: %v", eachSession, err)
			}
			table.Expire(t.Context())
		}
		var why *lock.JobError
		if err := change("other"); !errors.As(err, &why) || why.Cause != "stale" {
			t.Errorf("each session a job %v: another account: %v", eachSession, err)
		}
	}
}

// A rule that only reports finds jobs that change files which another job has changed since their look.
func TestARuleThatOnlyReportsFindsStaleJobs(t *testing.T) {
	rule := site(0)
	rule.Automatic.Report = true
	clock := locktest.NewFakeClock()
	table := newTable(t, lock.Options{Clock: clock}, rule)
	a := table.Open(lock.Owner{Account: "a", Address: "10.0.0.1"})
	b := table.Open(lock.Owner{Account: "b", Address: "10.0.0.1"})
	change := func(s *lock.Session) {
		if w, err := s.Change(t.Context(), "/www/a/x", lock.NoSign, nil); w != nil || err != nil {
			t.Errorf("a change waits %v, %v", w != nil, err)
		}
	}
	a.Look(t.Context(), "/www/a/x", lock.NoSign, nil)
	change(b)
	change(b)
	b.Close(t.Context())
	clock.Advance(5 * time.Second)
	table.Expire(t.Context())
	change(a)
	if found := table.RefusedJobs(); len(found) != 1 || found[0].Why.Cause != "stale" || found[0].Why.Files != 2 || found[0].Owner.Account != "a" {
		t.Errorf("%+v", found)
	}
}

// Clients can cause any number of refusals. On a full disk these do not use the space for releases.
func TestRefusalsUseNoSpaceOfAFullLog(t *testing.T) {
	log := locktest.NewMemory()
	refused := 0
	table := newTable(t, lock.Options{Log: log, Observe: func(r *lock.Record) {
		if r.Cause == lock.CauseRefuse {
			refused++
		}
	}}, site(0))
	change := func(by string) error {
		return inTurn(func(func()) (*lock.Waiting, error) {
			return table.Open(lock.Owner{Account: by, Address: "10.0.0.1"}).Change(t.Context(), "/www/a/x", lock.NoSign, nil)
		})
	}
	if err := change("a"); err != nil {
		t.Fatal(err)
	}
	log.SetFull(true)
	before := len(log.Records())
	if err := change("b"); err == nil || refused != 1 || len(log.Records()) != before {
		t.Errorf("%v; %d refusals, %d records", err, refused, len(log.Records())-before)
	}
}

// A change of a session that has ended leaves nothing, also during a suspension.
func TestALateChangeLeavesNothing(t *testing.T) {
	suspended := false
	table := newTable(t, lock.Options{Valid: func() error {
		if suspended {
			return &lock.SuspendedError{}
		}
		return nil
	}}, site(0))
	s := table.Open(lock.Owner{Account: "a", Address: "10.0.0.1"})
	s.Close(t.Context())
	suspended = true
	if _, err := s.Change(t.Context(), "/www/a/x", lock.NoSign, nil); err == nil || table.RememberedViews() != 0 {
		t.Errorf("%v; %d views", err, table.RememberedViews())
	}
}

// The commands of an ended job are forgotten: 1,000 jobs had kept 110 MB.
func TestAnEndedJobKeepsNoCommands(t *testing.T) {
	table := newTable(t, lock.Options{}, site(0))
	s := table.Open(lock.Owner{Account: "a", Address: "10.0.0.1"})
	s.Look(t.Context(), "/www/a/x", lock.Fetch, nil)
	if n := table.RememberedSigns(); n != 1 {
		t.Fatalf("%d commands before the end", n)
	}
	s.Close(t.Context())
	if n := table.RememberedSigns(); n != 0 || table.RememberedViews() == 0 {
		t.Errorf("%d commands, %d views", n, table.RememberedViews())
	}
}

func BenchmarkChange(b *testing.B) {
	for _, automatic := range []bool{false, true} {
		b.Run(map[bool]string{false: "protects", true: "automatic"}[automatic], func(b *testing.B) {
			rule := site(0)
			if !automatic {
				rule.Automatic = nil
			}
			rules, err := lock.NewRules([]lock.Rule{rule})
			if err != nil {
				b.Fatal(err)
			}
			table, err := lock.NewTable(b.Context(), lock.Options{Log: locktest.NewMemory(), Clock: lock.NewSystemClock(), Rules: rules})
			if err != nil {
				b.Fatal(err)
			}
			s := table.Open(lock.Owner{Account: "ci", Address: "10.0.0.1"})
			ctx := b.Context()
			if _, err := acquire(s, "/www/a/.lock"); !automatic && err != nil {
				b.Fatal(err)
			}
			if automatic {
				_ = s.Release(ctx, "/www/a/.lock")
			}
			for b.Loop() {
				if table.Rules().Automates() {
					if _, err := s.Change(ctx, "/www/a/x", lock.Store, nil); err != nil {
						b.Fatal(err)
					}
				}
				permit, err := s.MayWrite(ctx, "/www/a/x")
				if err == nil {
					err = s.Write(ctx, []lock.Write{{Path: "/www/a/x", Begun: true, Permit: permit}}, func([]lock.Permit) error { return nil })
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
