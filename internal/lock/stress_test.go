package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

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
