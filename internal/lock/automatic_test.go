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
// it, but for its own changes, or changes nothing. To see the test fail: make State.stale return nil.
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
									err = s.Write(context.Background(), []lock.Write{{Path: "/www/a/x"}}, func(titles []lock.Title) error {
										mu.Lock()
										defer mu.Unlock()
										if denied {
											t.Error("a refused job changes something")
										}
										if wrote == 0 && changes != seen || wrote > 0 && author != me {
											t.Errorf("another job has changed the site: %d changes, %d at the look", changes, seen)
										}
										author, changes, wrote = me, changes+1, wrote+1
										return table.Published(context.Background(), lock.Hold{Name: titles[0].Lock, Token: titles[0].Token, Owner: titles[0].Owner},
											titles[0].Owner, "", lock.Publication{Path: "/www/a/x"})
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
				title, err := s.MayWrite("/www/a/x")
				if err == nil {
					err = s.Write(ctx, []lock.Write{{Path: "/www/a/x", Begun: true, Title: title}}, func([]lock.Title) error { return nil })
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
