package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestEveryEndWaitsForPublications(t *testing.T) {
	adoption := end{how: "adopted", name: "/x", drains: true, hastens: func(w *world, _ *lock.Session, _ lock.Hold) error { return acquireOf(w.job("a", "job"), "/x")() }}
	for _, end := range append([]end{adoption}, ends...) {
		if !end.drains { // Expire comes again
			continue
		}
		t.Run(end.how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorldIn(t, endless(0)...)
				s := w.job("a", "job")
				hold := w.acquire(s, end.name)
				gate := make(chan struct{})
				wait := func() error { <-gate; return nil }
				one := starts(func() error { return publish(s, end.name, hold.Token, wait) })
				two := starts(func() error { return publish(s, end.name, hold.Token, wait) })
				ended := starts(func() error { return end.hastens(w, s, hold) })
				late := starts(func() error { return publish(s, end.name, hold.Token, nothing) })
				if got := w.stored(end.name).Holds; len(ended) > 0 || len(got) != 1 || got[0].Token != hold.Token {
					t.Fatal("ended before what was published under it")
				}
				if len(late) > 0 {
					t.Error("a publication overtakes the end that waits")
				}
				close(gate)
				w.ok(errors.Join(<-one, <-two, <-ended))
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
		published := starts(func() error { return publish(s, "/locks/g", hold.Token, func() error { <-gate; return nil }) })
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := s.Release(soon, "/locks/g"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.acquire(s, "/locks/g/m") // it is not ending any more
		close(gate)
		w.ok(<-published)
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
	w.holder("a", "/dir/sub/x_lock")
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
	for _, result := range []error{nil, lock.ErrNoParent} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorldIn(t)
			gate := make(chan error)
			w.store.Inject(func(lock.Change) error { return <-gate })
			granted := starts(acquireOf(w.open("a"), "/dir/x_lock"))
			done := starts(func() error { return w.Exclude(ctx, []lock.Name{"/dir"}, nothing) })
			if len(done) > 0 {
				t.Error("did not wait")
			}
			gate <- result
			if err := <-done; (result == nil) != errors.Is(err, lock.ErrHeld) || result != nil && err != nil {
				t.Errorf("after a grant with %v: %v", result, err)
			}
			<-granted
		})
	}
}
