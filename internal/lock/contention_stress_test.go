package lock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// TestEverybodyWantsTheSame has sessions wait, poll, share, count, renew, write, give up, leave and reload at once. What is
// checked is what the package promises: who holds a name alone is alone, no limit is exceeded, tokens grow, no lock ends
// before its members, no waiter is forgotten, nothing is left.
func TestEverybodyWantsTheSame(t *testing.T) {
	const limit = 2
	rules := func(queue lock.QueuePolicy) []lock.Rule {
		c := lock.Contention{Queue: queue, QueueHold: 5 * time.Second, ReadersShare: true}
		counted := c
		counted.Limit = limit
		again := lock.Contention{Reentrant: true, Queue: lock.QueueFair, QueueHold: 5 * time.Second}
		return []lock.Rule{
			{Match: "/slots/*", MaxAge: time.Minute, LockDelay: time.Second, Contention: &counted},
			{Match: "/again/**", OnDisconnect: lock.ReleaseOnDisconnect, Contention: &again},
			{Match: "/locks/**", MaxAge: time.Minute, MaxIdle: 20 * time.Second, Contention: &c},
		}
	}
	w := newWorld(t, rules(lock.QueueFair)...)
	names := []lock.Name{"/slots/1", "/slots/2", "/slots/3", "/slots/4", "/locks/a", "/locks/a/b", "/again/x"}
	var mu sync.Mutex
	newest := make(map[lock.Name]lock.Token)
	w.store.InjectAfter(func(c lock.Change) error {
		mu.Lock()
		defer mu.Unlock()
		slots := 0
		for record := range w.store.All(ctx) { // of one moment
			for _, h := range record.Holds {
				if len(record.Holds) > 1 && !h.Shared {
					t.Errorf("%s: %+v", record.Name, record.Holds)
				}
			}
			if record.Name.Parent() == "/slots" {
				slots++
			}
			if n := record.Name; len(c.Holds) == 0 && n != c.Name && n.Within(c.Name) {
				t.Errorf("%s ended before its member %s", c.Name, n)
			}
			if record.Revision < newest[record.Name] {
				t.Errorf("%s: %+v after token %d", record.Name, record, newest[record.Name])
			}
			newest[record.Name] = record.Revision
		}
		if slots > limit {
			t.Errorf("%d locks below /slots", slots)
		}
		return nil
	})
	var waited, granted atomic.Int64
	var group sync.WaitGroup
	for worker := range 6 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 5))
			open := func() *lock.Session {
				s := w.job(fmt.Sprint("a", worker%3), []string{"", "job"}[random.IntN(2)])
				s.SetReader(random.IntN(2) == 0)
				s.SetWait(time.Duration(random.IntN(3)) * 10 * time.Second)
				return s
			}
			s := open()
			var waiting *lock.Waiting
			var called atomic.Bool
			for range 400 {
				if waiting != nil {
					var over bool
					var err error
					switch {
					case random.IntN(4) == 0:
						waiting.Withdraw()
						waiting = nil
					case called.Swap(false):
						if _, over, err = waiting.Poll(ctx); over {
							waiting = nil
						}
						if over && err == nil {
							granted.Add(1)
						}
					default:
						w.clock.Advance(time.Duration(random.IntN(3)) * time.Second)
						w.Expire(ctx)
					}
					if err != nil && !expected(err) {
						t.Error(err)
					}
					continue
				}
				n := names[random.IntN(len(names))]
				wake := func() { called.Store(true) }
				var err error
				switch random.IntN(14) {
				case 0, 1, 2, 3, 4:
					called.Store(false)
					if _, waiting, err = s.AcquireOrWait(ctx, n, wake); waiting != nil {
						waited.Add(1)
					}
				case 5, 6, 7:
					called.Store(false)
					_, waiting, err = s.ReleaseOrWait(ctx, n, wake)
				case 8:
					w.clock.Advance(time.Duration(random.IntN(10)) * time.Second)
					w.Expire(ctx)
				case 9:
					err = s.Close(ctx)
					s = open()
				case 10:
					err = w.SetRules(ctx, rulesOf(t, rules([]lock.QueuePolicy{lock.QueueFair, lock.QueueOff}[random.IntN(2)])...))
				case 11:
					err = w.breaks(n, lock.Owner{}, "")
				case 12:
					_, err = s.Renew(ctx, n)
				case 13:
					if hold, ok := s.SpeaksFor(n); ok == nil {
						err = publish(s, n, hold.Token, nothing)
					}
				}
				if err != nil && !expected(err) {
					t.Errorf("%s: %v", n, err)
				}
			}
			for waiting != nil { // nobody is forgotten
				if called.Swap(false) {
					if _, over, _ := waiting.Poll(ctx); over {
						waiting = nil
					}
					continue
				}
				w.clock.Advance(time.Second)
				w.Expire(ctx)
			}
			if err := s.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if waited.Load() == 0 || granted.Load() == 0 {
		t.Errorf("%d waited, %d of them got it", waited.Load(), granted.Load())
	}
	for range 3 {
		w.clock.Advance(time.Hour)
		w.Expire(ctx)
	}
	if all := w.All(); len(all) > 0 || lock.Nodes(w.Table) != 1 || lock.Accounts(w.Table) != 0 {
		t.Errorf("left over: %+v, %d names, %d accounts", all, lock.Nodes(w.Table), lock.Accounts(w.Table))
	}
}

func expected(err error) bool {
	for _, e := range []error{lock.ErrHeld, lock.ErrNotHeld, lock.ErrNotYours, lock.ErrMembers, lock.ErrStale, lock.ErrNoParent, lock.ErrConflict} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.As(err, new(*lock.ProtectedError))
}
