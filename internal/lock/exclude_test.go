package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func contextEnded() (context.Context, context.CancelFunc) {
	ended, end := context.WithCancel(ctx)
	end()
	return ended, end
}

func TestEveryEndWaitsForPublications(t *testing.T) {
	for how, end := range map[string]func(w *world, s *lock.Session, token lock.Token) error{
		"release": func(_ *world, s *lock.Session, _ lock.Token) error { return s.Release(ctx, "/now/a") },
		"undo":    func(_ *world, s *lock.Session, token lock.Token) error { return s.Undo(ctx, "/now/a", token) },
		"break": func(w *world, _ *lock.Session, token lock.Token) error {
			return w.Break(ctx, "/now/a", token, lock.Owner{}, "")
		},
		"adoption": func(w *world, _ *lock.Session, _ lock.Token) error {
			_, err := w.job("a", "job").Acquire(ctx, "/now/a")
			return err
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorldIn(t, leases()...)
				s := w.job("a", "job")
				hold := w.acquire(s, "/now/a")
				gate := make(chan struct{})
				var group sync.WaitGroup
				for range 2 {
					group.Go(func() {
						if err := publish(s, "/now/a", hold.Token, func() error { <-gate; return nil }); err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				ended := make(chan error, 1)
				go func() { ended <- end(w, s, hold.Token) }()
				synctest.Wait()
				late := make(chan error, 1)
				go func() { late <- publish(s, "/now/a", hold.Token, func() error { return nil }) }()
				synctest.Wait()
				if got := w.stored("/now/a").Holds; len(ended) > 0 || len(got) != 1 || got[0].Token != hold.Token {
					t.Fatal("ended before what was published under it")
				}
				if len(late) > 0 {
					t.Error("a publication overtakes the end that waits")
				}
				close(gate)
				group.Wait()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if err := <-late; !errors.As(err, new(*lock.ProtectedError)) {
					t.Errorf("published after the end: %v", err)
				}
			})
		})
	}
}

func TestEndThatGivesUpWaitingChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		s := w.open("a")
		hold := w.acquire(s, "/locks/g")
		gate := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() { _ = publish(s, "/locks/g", hold.Token, func() error { <-gate; return nil }) })
		synctest.Wait()
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := s.Release(soon, "/locks/g"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.acquire(s, "/locks/g/m") // it is not ending any more
		close(gate)
		group.Wait()
	})
}

func TestPanicInPublishDoesNotKeepTheLockForEver(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	hold := w.acquire(s, "/locks/a")
	func() {
		defer func() { _ = recover() }()
		_ = publish(s, "/locks/a", hold.Token, func() error { panic("a bug") })
	}()
	w.release(s, "/locks/a", nil)
}

func TestDirectoryWithLocksIsNotChanged(t *testing.T) {
	w := newWorld(t)
	w.acquire(w.open("a"), "/dir/sub/x_lock")
	ran := false
	for name, want := range map[lock.Name]string{
		"/dir":            "/dir/sub/x_lock below it is held by a@192.0.2.1 for 0s, expires in 6m0s",
		"/":               "/dir/sub/x_lock below it is held by a@192.0.2.1 for 0s, expires in 6m0s",
		"/dir/sub/x_lock": "held by a@192.0.2.1 for 0s, expires in 6m0s",
	} {
		err := w.Exclude(ctx, []lock.Name{"/free", name}, func() error { ran = true; return nil })
		wantText(t, err, want)
		if !errors.Is(err, lock.ErrHeld) || ran {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := w.Exclude(ctx, []lock.Name{"/dir/sub2", "/free"}, func() error { return errors.New("from fn") }); err == nil || err.Error() != "from fn" {
		t.Error(err)
	}
}

func TestExclusionWaitsForAGrantUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, fails := range []bool{false, true} {
			w := newWorldIn(t)
			gate := make(chan error)
			w.store.Inject(func(lock.Change) error { return <-gate })
			var group sync.WaitGroup
			group.Go(func() { _, _ = w.open("a").Acquire(ctx, "/dir/x_lock") })
			synctest.Wait()
			done := make(chan error, 1)
			go func() { done <- w.Exclude(ctx, []lock.Name{"/dir"}, func() error { return nil }) }()
			synctest.Wait()
			if len(done) > 0 {
				t.Error("did not wait")
			}
			var result error
			if fails {
				result = lock.ErrNoParent
			}
			gate <- result
			if err := <-done; fails != (err == nil) || !fails && !errors.Is(err, lock.ErrHeld) {
				t.Errorf("grant fails %v: %v", fails, err)
			}
			group.Wait()
		}
	})
}
