package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// TestManySessionsAtOnce has sessions do everything at once to few names. What is checked is what
// the package promises: of a name one hold at most, no lock ended
// before its members, tokens that grow, and nothing left over.
func TestManySessionsAtOnce(t *testing.T) {
	w := newWorld(t,
		lock.Rule{Match: "/locks/**", MaxAge: time.Minute, MaxIdle: 20 * time.Second},
		lock.Rule{Match: "/now/**", OnDisconnect: lock.ReleaseOnDisconnect, Grace: time.Second, Release: lock.ReleaseAnyone},
	)
	names := []lock.Name{"/locks/g", "/locks/g/1", "/locks/g/1/x", "/locks/g/2", "/now/a", "/now/a/b"}
	var mu sync.Mutex
	stands := make(map[lock.Name]lock.Token)
	var last lock.Token
	w.store.InjectAfter(func(c lock.Change) error {
		mu.Lock()
		defer mu.Unlock()
		if len(c.Holds) == 0 {
			for _, n := range names {
				if n != c.Name && n.Within(c.Name) && len(w.stored(n).Holds) > 0 {
					t.Errorf("%s ended before its member %s", c.Name, n)
				}
			}
		}
		for _, n := range names {
			record := w.stored(n)
			if len(record.Holds) == 0 {
				delete(stands, n)
				continue
			}
			if token := record.Holds[0].Token; len(record.Holds) > 1 || token < stands[n] {
				t.Errorf("%s: %+v after token %d", n, record, stands[n])
			}
			stands[n] = record.Holds[0].Token
			last = max(last, stands[n])
		}
		return nil
	})
	var granted, ended atomic.Int64
	var group sync.WaitGroup
	for worker := range 6 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 7))
			s := w.job(fmt.Sprintf("a%d", worker%2), fmt.Sprintf("job%d", worker%3))
			for range 300 {
				n := names[random.IntN(len(names))]
				var err error
				switch random.IntN(10) {
				case 0, 1, 2, 3:
					if _, err = s.Acquire(ctx, n); err == nil {
						granted.Add(1)
					}
				case 4, 5:
					err = s.Release(ctx, n)
				case 6:
					_, err = s.Renew(ctx, n)
				case 7:
					w.clock.Advance(time.Duration(random.IntN(20)) * time.Second)
					ended.Add(int64(w.Expire(ctx)))
				case 8:
					if hold, ok := s.SpeaksFor(n); ok == nil {
						err = publish(s, n, hold.Token, func() error { return nil })
					}
				case 9:
					err = s.Close(ctx)
					s = w.job(fmt.Sprintf("a%d", worker%2), fmt.Sprintf("job%d", worker%3))
				}
				if err != nil && !expected(err) {
					t.Errorf("%s: %v", n, err)
				}
			}
			if err := s.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if granted.Load() == 0 || ended.Load() == 0 || last == 0 {
		t.Errorf("granted %d, ended %d", granted.Load(), ended.Load())
	}
	w.clock.Advance(time.Hour)
	w.Expire(ctx)
	if all := w.All(); len(all) > 0 || lock.Nodes(w.Table) != 1 || lock.Accounts(w.Table) != 0 || w.HeldWithin("/") {
		t.Errorf("left over: %+v, %d names, %d accounts", all, lock.Nodes(w.Table), lock.Accounts(w.Table))
	}
}

func expected(err error) bool {
	for _, e := range []error{lock.ErrHeld, lock.ErrNotHeld, lock.ErrNotYours, lock.ErrMembers, lock.ErrStale, lock.ErrNoParent} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.As(err, new(*lock.ProtectedError))
}

// TestHostPlaysAlong has the host make and remove lock directories while sessions work. In the end the
// table and the store must be of one mind.
func TestHostPlaysAlong(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/locks/**", MaxAge: time.Hour, MaxIdle: time.Hour})
	run, stop := context.WithCancel(ctx)
	var watch, group sync.WaitGroup
	watching := make(chan struct{})
	watch.Go(func() {
		close(watching)
		if err := w.Run(run); err != nil {
			t.Error(err)
		}
	})
	<-watching
	names := []lock.Name{"/locks/a", "/locks/b", "/locks/b/c"}
	for worker := range 4 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 11))
			s := w.open("a")
			for range 300 {
				n := names[random.IntN(len(names))]
				var err error
				switch random.IntN(6) {
				case 0, 1:
					_, err = s.Acquire(ctx, n)
				case 2, 3:
					err = s.Release(ctx, n)
				case 4:
					w.store.Outside(n, lock.CauseHostMade, lock.Hold{
						Owner: lock.Owner{Account: lock.HostAccount}, Acquired: w.clock.Now(),
					})
				case 5:
					w.store.Outside(n, lock.CauseHostGone)
				}
				if err != nil && !expected(err) && !errors.Is(err, lock.ErrConflict) {
					t.Errorf("%s: %v", n, err)
				}
			}
		})
	}
	group.Wait()
	w.store.Outside("/locks/last", lock.CauseHostMade, lock.Hold{Owner: lock.Owner{Account: lock.HostAccount}, Acquired: w.clock.Now()})
	for _, ok := w.Get("/locks/last"); !ok; _, ok = w.Get("/locks/last") { // all before it have been taken over then
		runtime.Gosched()
	}
	stop()
	watch.Wait()
	for _, n := range names {
		status, _ := w.Get(n)
		if stored := w.stored(n); len(stored.Holds) != len(status.Holds) ||
			len(stored.Holds) > 0 && stored.Holds[0].Token != status.Holds[0].Token {
			t.Errorf("%s: table %+v, store %+v", n, status.Holds, stored.Holds)
		}
	}
	w.clock.Advance(2 * time.Hour)
	w.Expire(ctx)
	if all := w.All(); len(all) > 0 || lock.Nodes(w.Table) != 1 {
		t.Errorf("left over: %+v, %d names", all, lock.Nodes(w.Table))
	}
}
