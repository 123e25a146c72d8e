package job_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// await waits for the end of a look or change, as a client's goroutine does.
func await(begin func(wake func()) (*job.Waiting, error)) error {
	woken := make(chan struct{}, 1)
	w, err := begin(func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	for w != nil {
		if done, err := w.Poll(context.Background()); done {
			return err
		}
		<-woken
	}
	return err
}

// Jobs look at a site and then change it, at random moments, over one connection or several at once. Each job finds the site as its first
// look saw it, but for its own changes, or changes nothing. To see the test fail: make visit.stale return nil.
func TestAJobDoesNotOverwriteChangesMadeSinceItsLook(t *testing.T) {
	for _, turn := range []time.Duration{0, 2 * time.Second} {
		t.Run(turn.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rules, err := lock.NewRules([]lock.Rule{{
					Match: "/www/.lock", MaxAge: time.Hour, MaxIdle: 2 * time.Minute, Grace: 3 * time.Second,
					Protection: &lock.Protection{Paths: []string{"/www/**"}, Automatic: true}, Contention: &lock.Contention{Wait: 15 * time.Second},
				}})
				if err != nil {
					t.Fatal(err)
				}
				clock := locktest.NewRunningClock()
				var jobs *job.Manager
				table, err := lock.NewTable(t.Context(), lock.Options{
					Log: locktest.NewMemory(), Disk: &locktest.Disk{}, Clock: clock, Rules: rules, Observe: func(r *lock.Record) { jobs.Observe(r) },
				})
				if err != nil {
					t.Fatal(err)
				}
				jobs = job.New(job.Options{Table: table, Clock: clock, Rules: job.NewRules(rules, []job.Rule{{Match: "/www/.lock", Wait: 15 * time.Second, Turn: turn}})})
				stop, end := context.WithCancel(t.Context())
				var work, reaper sync.WaitGroup
				reaper.Go(func() {
					for stop.Err() == nil {
						table.Expire(stop)
						time.Sleep(50 * time.Millisecond)
					}
				})
				time.Sleep(10 * time.Minute)
				var mu sync.Mutex
				var author, changes, refused, done int
				for i := range 6 {
					work.Go(func() {
						r := rand.New(rand.NewPCG(uint64(i), uint64(turn)))
						pause := func(most time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(most)))) }
						for run := range 15 {
							me := 100*i + run + 1
							open := func() *conn {
								client := table.Open(lock.Owner{Account: "ci", Address: fmt.Sprintf("10.0.0.%d", i)})
								return &conn{nil, "", client, jobs.Open(client, 0)}
							}
							first := open()
							_ = await(func(wake func()) (*job.Waiting, error) {
								return first.job.Look(context.Background(), "/www/x", job.AnyCommand, wake), nil
							})
							mu.Lock()
							seen := changes
							mu.Unlock()
							var denied bool
							wrote := 0
							var parts sync.WaitGroup
							for range 3 { // connections of one program
								pause(2 * time.Second)
								parts.Go(func() {
									c := open()
									defer c.close()
									for range 3 {
										err := await(func(wake func()) (*job.Waiting, error) {
											return c.job.Change(context.Background(), "/www/x", job.AnyCommand, wake)
										})
										if errors.As(err, new(*job.Error)) {
											mu.Lock()
											if denied = true; wrote > 0 {
												t.Errorf("refused after %d changes: %v", wrote, err)
											}
											mu.Unlock()
											continue
										}
										if err == nil {
											writes := []lock.Write{{Path: "/www/x", Under: c.job.Under("/www/x")}}
											err = c.client.Write(context.Background(), writes, func(permits []lock.Permit) error {
												mu.Lock()
												defer mu.Unlock()
												if denied {
													t.Error("a refused job changes something")
												}
												if wrote == 0 && changes != seen || wrote > 0 && author != me {
													t.Errorf("another job has changed the site: %d changes, %d at the look", changes, seen)
												}
												author, changes, wrote = me, changes+1, wrote+1
												c.job.Published("/www/x", permits[0].Token, true)
												return nil
											})
										}
										if err != nil {
											t.Errorf("a change: %v", err)
										}
										time.Sleep(time.Second)
									}
								})
							}
							parts.Wait()
							first.close()
							mu.Lock()
							if denied {
								refused++
							} else {
								done++
							}
							mu.Unlock()
							time.Sleep(4 * time.Second)
						}
					})
				}
				work.Wait()
				end()
				reaper.Wait()
				jobs.Close()
				if done == 0 || turn == 0 && refused == 0 {
					t.Errorf("%d jobs succeeded, %d were refused", done, refused)
				}
				t.Logf("%d jobs succeeded, %d were refused", done, refused)
			})
		})
	}
}
