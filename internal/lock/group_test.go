package lock_test

import (
	"errors"
	"io/fs"
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
			a, b := w.holder("a", "/locks/g"), w.open("b")
			gate := make(chan error)
			w.store.Inject(func(c lock.Change) error {
				if c.Cause == lock.CauseRelease {
					return <-gate
				}
				return nil
			})
			released := starts(func() error { return a.Release(ctx, "/locks/g") })
			joined := starts(acquireOf(b, "/locks/g/x/m"))
			if len(joined) > 0 {
				t.Fatal("did not wait for the end of the lock above")
			}
			if fails {
				gate <- lock.ErrNotEmpty
				w.ok(<-joined) // the lock above still stands
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
		a := w.holder("a", "/locks/g")
		gate := make(chan error)
		w.store.Inject(func(c lock.Change) error {
			if c.Name == "/locks/g/m" {
				return <-gate
			}
			return nil
		})
		joined := starts(acquireOf(a, "/locks/g/m"))
		w.release(a, "/locks/g", lock.ErrMembers) // one that is about to be
		w.pass(10 * time.Minute)
		w.hurries(func() {
			gate <- lock.ErrNoParent
			<-joined
		})
		w.expires("/locks/g")
	})
}

// A stranger below a lock could keep it from being given back, and renew its own for ever.
func TestOnlyWhoMayReleaseALockTakesOthersBelowIt(t *testing.T) {
	whoever := anyone
	for _, test := range []struct {
		name    string
		release lock.ReleasePolicy
		members *lock.Contention
		by      func(w *world, holder *lock.Session) *lock.Session
		may     bool
	}{
		{"the holder", "", nil, func(_ *world, s *lock.Session) *lock.Session { return s }, true},
		{"its job", "", nil, func(w *world, _ *lock.Session) *lock.Session { return w.job("a", "job") }, true},
		{"its account while it is there", "", nil, func(w *world, _ *lock.Session) *lock.Session { return w.open("a") }, false},
		{"its account afterwards", "", nil, func(w *world, s *lock.Session) *lock.Session { w.end(s); return w.open("a") }, true},
		{"somebody else", "", nil, func(w *world, _ *lock.Session) *lock.Session { return w.open("b") }, false},
		{"somebody else who may release it", lock.ReleaseAnyone, nil, func(w *world, _ *lock.Session) *lock.Session { return w.open("b") }, true},
		{"somebody else where anyone may", "", &whoever, func(w *world, _ *lock.Session) *lock.Session { return w.open("b") }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, lock.Rule{Match: "/locks/**", MaxAge: time.Hour, Release: test.release, Contention: test.members})
			holder := w.job("a", "job")
			w.acquire(holder, "/locks/g")
			s := test.by(w, holder)
			for _, n := range []lock.Name{"/locks/g/m", "/locks/g/dir/m"} {
				_, err := s.Acquire(ctx, n)
				if (err == nil) != test.may {
					t.Errorf("%s: %v", n, err)
				}
				if err != nil {
					wantText(t, err, "lies in the lock /locks/g, which you do not hold")
				}
			}
		})
	}
	w := newWorld(t, lock.Rule{Match: "/locks/**"})
	lock.TakeOver(w.Table, w.store.Outside("/locks/g", lock.CauseHostMade, w.host())) // a directory for everybody
	w.holder("b", "/locks/g/m")
}

func TestAnAccountHoldsSoManyLocks(t *testing.T) {
	w := newWorld(t)
	open := func(account string) *lock.Session {
		s := w.open(account)
		s.SetMaxLocks(3)
		return s
	}
	one, two := open("a"), open("a")
	w.acquire(one, "/locks/1")
	w.acquire(one, "/locks/1/member")
	w.acquire(two, "/locks/2")
	for _, s := range []*lock.Session{one, two} {
		_, err := s.Acquire(ctx, "/locks/3")
		wantText(t, err, "this account holds 3 locks, as many as it may")
	}
	w.acquire(open("b"), "/locks/3") // another account
	w.end(two)
	w.refused(one, "/locks/4", fs.ErrPermission) // it stands
	w.release(one, "/locks/1/member", nil)
	w.acquire(one, "/locks/4")

	job := w.job("c", "job")
	w.acquire(job, "/locks/c1")
	w.acquire(job, "/locks/c2")
	again := w.job("c", "job")
	again.SetMaxLocks(1)
	w.acquire(again, "/locks/c1") // it is held already
	w.refused(again, "/locks/c3", fs.ErrPermission)

	w.store.Inject(func(lock.Change) error { return lock.ErrNoParent })
	d := open("d")
	for range 5 {
		w.refused(d, "/locks/d", lock.ErrNoParent) // what was not granted does not count
	}
}
