package lock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestGroupIsReleasedAfterItsLastMember(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.open("a"), w.open("b"), w.open("c")
	w.acquire(a, "/locks/g")
	w.acquire(b, "/locks/g/b") // anyone may join
	w.acquire(c, "/locks/g/c/deep")
	w.release(a, "/locks/g", lock.ErrMembers)
	w.release(b, "/locks/g", lock.ErrNotYours)
	w.release(b, "/locks/g/b", nil)
	w.release(a, "/locks/g", lock.ErrMembers)
	if err := w.breaks("/locks/g", lock.Owner{}, ""); !errors.Is(err, lock.ErrMembers) {
		t.Error(err)
	}
	w.release(c, "/locks/g/c/deep", nil)
	w.release(a, "/locks/g", nil)
}

func TestMemberIsNotGrantedBelowALockThatEnds(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorldIn(t)
			a, b := w.open("a"), w.open("b")
			w.acquire(a, "/locks/g")
			gate := make(chan error)
			w.store.Inject(func(c lock.Change) error {
				if c.Cause == lock.CauseRelease {
					return <-gate
				}
				return nil
			})
			released, joined := make(chan error, 1), make(chan error, 1)
			go func() { released <- a.Release(ctx, "/locks/g") }()
			synctest.Wait()
			go func() { _, err := b.Acquire(ctx, "/locks/g/x/m"); joined <- err }()
			synctest.Wait()
			if len(joined) > 0 {
				t.Fatal("did not wait for the end of the lock above")
			}
			if fails {
				gate <- lock.ErrNotEmpty
				if err := <-joined; err != nil {
					t.Errorf("the lock above still stands, but: %v", err)
				}
				w.holds("/locks/g", "a")
			} else {
				gate <- nil
				if err := <-joined; !errors.Is(err, lock.ErrNoParent) {
					t.Error(err)
				}
				w.holds("/locks/g/x/m", "")
			}
			<-released
		})
	}
}

func TestLockAboveWaitsForAGrantThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		a := w.open("a")
		w.acquire(a, "/locks/g")
		gate, joined := make(chan error), make(chan error, 1)
		w.store.Inject(func(c lock.Change) error {
			if c.Name == "/locks/g/m" {
				return <-gate
			}
			return nil
		})
		go func() { _, err := a.Acquire(ctx, "/locks/g/m"); joined <- err }()
		synctest.Wait()
		w.release(a, "/locks/g", lock.ErrMembers) // one that is about to be
		time.Sleep(10 * time.Minute)
		w.expires()
		drain(w.Changed())
		gate <- lock.ErrNoParent
		<-joined
		select {
		case <-w.Changed():
		default:
			t.Error("nobody is told that it can end now")
		}
		w.expires("/locks/g")
	})
}
