package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// A release, a waiter that looks and then gives up, another one that waits on, and a newcomer, in every order of
// their steps: the newcomer never overtakes, and the lock is never left to nobody while somebody waits.
func TestATurnIsNeverLostNorTakenByANewcomer(t *testing.T) {
	everyInterleaving(t, 22, func(s *script) func() {
		holder, newcomer := s.open("a"), s.open("newcomer")
		s.acquire(holder, "/queue/x")
		x, y := s.waits("x", "/queue/x"), s.waits("y", "/queue/x")
		var got lock.Hold
		var over bool
		s.op(func() error { return holder.Release(ctx, "/queue/x") })
		s.op(func() (err error) {
			if got, over, err = x.Poll(ctx); !over {
				x.Withdraw()
			}
			return err
		})
		overtook := s.op(func() error { _, err := newcomer.Acquire(ctx, "/queue/x"); return err })
		return func() {
			if !errors.Is(*overtook, lock.ErrHeld) {
				s.t.Errorf("the newcomer: %v", *overtook)
			}
			if over {
				s.holds("/queue/x", "x")
				y.stillWaits()
				if err := x.s.Undo(ctx, "/queue/x", got.Token); err != nil { // its client has gone
					s.t.Error(err)
				}
			}
			y.gets()
			s.holds("/queue/x", "y")
		}
	})
}

// A reaper, the waiter whose turn that makes it, and the waiter's own end.
func TestATurnPassesOnFromAWaiterThatEnds(t *testing.T) {
	everyInterleaving(t, 22, func(s *script) func() {
		s.acquire(s.open("a"), "/queue/x")
		one, two := s.open("x"), s.open("y")
		one.SetWait(3 * time.Hour)
		two.SetWait(3 * time.Hour)
		x, y := s.waitsIn(one, "/queue/x"), s.waitsIn(two, "/queue/x")
		time.Sleep(time.Hour)
		var got lock.Hold
		var over bool
		s.op(func() error { s.Expire(ctx); return nil })
		s.op(func() (err error) { got, over, err = x.Poll(ctx); return err })
		s.op(func() error { return x.s.Close(ctx) })
		return func() {
			s.Expire(ctx)
			if over && got.Token != 0 {
				s.holds("/queue/x", "x")
				y.Withdraw()
				return
			}
			if hold, done, err := y.Poll(ctx); !done || err != nil || hold.Token == 0 {
				s.t.Errorf("the next: %+v, %v, %v", hold, done, err)
			}
		}
	})
}

// history has clients acquire, wait, give up and release at random, and returns what they were told.
func history(t *testing.T, c lock.Contention, names []lock.Name) []porcupine.Operation {
	w := newWorldIn(t, lock.Rule{Match: "/locks/**", Contention: &c})
	var clock atomic.Int64
	var mu sync.Mutex
	var all []porcupine.Operation
	var group sync.WaitGroup
	for id := range 6 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(id), 3))
			s := w.open(fmt.Sprint("c", id))
			s.SetReader(id%2 == 0)
			for range 40 {
				in := locktest.Input{Verb: locktest.MKD, Name: names[random.IntN(len(names))], Owner: s.Owner().Account, Shared: c.ReadersShare && id%2 == 0}
				op := porcupine.Operation{ClientId: id, Input: in, Call: clock.Add(1)}
				op.Output = acquireSomehow(t, s, in.Name, random.IntN(3))
				op.Return = clock.Add(1)
				got := op.Output.(locktest.Output).Result == locktest.Done
				mu.Lock()
				all = append(all, op)
				mu.Unlock()
				if !got {
					continue
				}
				in.Verb = locktest.RMD
				op = porcupine.Operation{ClientId: id, Input: in, Output: locktest.Output{Result: locktest.Done}, Call: clock.Add(1)}
				if err := s.Release(ctx, in.Name); err != nil {
					t.Error(err)
				}
				op.Return = clock.Add(1)
				mu.Lock()
				all = append(all, op)
				mu.Unlock()
			}
			if err := s.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	w.empty()
	if n := lock.Nodes(w.Table); n != 1 {
		t.Errorf("%d names are remembered", n)
	}
	return all
}

// acquireSomehow tries, or waits, or waits for a moment only.
func acquireSomehow(t *testing.T, s *lock.Session, n lock.Name, how int) locktest.Output {
	called := make(chan struct{}, 1)
	wake := func() {
		select {
		case called <- struct{}{}:
		default:
		}
	}
	s.SetWait(time.Duration(how) * time.Hour)
	hold, waiting, err := s.AcquireOrWait(context.Background(), n, wake)
	for over := false; waiting != nil && !over; {
		if how == 1 {
			if hold, over, err = waiting.Poll(ctx); !over {
				waiting.Withdraw()
				return locktest.Output{Result: locktest.Queued}
			}
			break
		}
		<-called
		hold, over, err = waiting.Poll(ctx)
	}
	var queued *lock.QueuedError
	switch {
	case err == nil:
		return locktest.Output{Result: locktest.Done, Token: hold.Token}
	case errors.As(err, &queued):
		return locktest.Output{Result: locktest.Queued}
	case !errors.Is(err, lock.ErrHeld):
		t.Error(err)
	}
	return locktest.Output{Result: locktest.Refused}
}

func TestHistoriesOfWaitingSharedAndCountedLocksAreLinearizable(t *testing.T) {
	for _, test := range []struct {
		name  string
		c     lock.Contention
		names []lock.Name
		model porcupine.Model
	}{
		{"alone", lock.Contention{}, []lock.Name{"/locks/a", "/locks/b"}, locktest.Model()},
		{"together", lock.Contention{ReadersShare: true}, []lock.Name{"/locks/a"}, locktest.Model()},
		{"counted", lock.Contention{Limit: 2}, []lock.Name{"/locks/a", "/locks/b", "/locks/c", "/locks/d"}, locktest.LimitModel(2)},
		{"counted together", lock.Contention{Limit: 2, ReadersShare: true}, []lock.Name{"/locks/a", "/locks/b", "/locks/c"}, locktest.LimitModel(2)},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := history(t, test.c, test.names)
			if result := porcupine.CheckOperationsTimeout(test.model, all, 20*time.Second); result != porcupine.Ok {
				t.Errorf("%d operations: %v", len(all), result)
			}
		})
	}
}
