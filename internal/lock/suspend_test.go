package lock_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// suspend has the table be told that no lock may be changed, until resume.
func (w *world) suspend() {
	w.valid = func() error { return &lock.SuspendedError{Reason: "etcd does not answer"} }
}

func (w *world) resume() { w.valid = nil }

func wantSuspended(t *testing.T, err error) {
	t.Helper()
	var suspended *lock.SuspendedError
	if !errors.As(err, &suspended) || errors.Is(err, lock.ErrUncertain) {
		t.Errorf("got %v, want a *lock.SuspendedError", err)
	}
}

// Each of these is refused while nothing may be changed, changes nothing then, and works afterwards.
func TestWhileSuspendedNothingIsChanged(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(w *world, s, other *lock.Session) error // s holds /locks/a
	}{
		{"a free lock is asked for", func(w *world, s, _ *lock.Session) error {
			_, err := s.Acquire(ctx, "/locks/free")
			return err
		}},
		{"somebody would wait for a lock", func(w *world, _, other *lock.Session) error {
			other.SetWait(time.Minute)
			_, waiting, err := other.AcquireOrWait(ctx, "/locks/a", func() {})
			if waiting != nil {
				waiting.Withdraw()
			}
			return err
		}},
		{"a lock is given back", func(w *world, s, _ *lock.Session) error { return s.Release(ctx, "/locks/a") }},
		{"a lock is broken", func(w *world, s, _ *lock.Session) error {
			return w.breaks("/locks/a", lock.Owner{Account: "admin"}, "")
		}},
		{"a file in a lock is published", func(w *world, s, _ *lock.Session) error {
			status, _ := w.Get("/locks/a")
			return publish(s, "/locks/a", status.Holds[0].Token, nothing)
		}},
		{"a protected file is published", func(w *world, s, _ *lock.Session) error {
			return s.Write(ctx, []lock.Write{{Path: "/a.tsv"}}, func([]lock.Title) error { return nil })
		}},
		{"a directory without locks is removed", func(w *world, s, _ *lock.Session) error {
			return w.Exclude(ctx, []lock.Name{"/dir"}, nothing)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, lock.Rule{
				Match: "/locks/*", MaxAge: time.Hour, Contention: &lock.Contention{Reentrant: true},
				Protection: &lock.Protection{Paths: []string{"/$1.tsv"}},
			})
			s, other := w.job("a", "job"), w.open("b")
			w.acquire(s, "/locks/a")
			before := w.stored("/locks/a")
			w.suspend()
			wantSuspended(t, test.do(w, s, other))
			if after := w.stored("/locks/a"); after.Revision != before.Revision || !slices.Equal(after.Holds, before.Holds) {
				t.Errorf("before %+v, after %+v", before, after)
			}
			if !s.Acquired("/locks/a") || w.Held("/locks/free") || w.Count().Waiting != 0 {
				t.Error("the table was changed")
			}
			w.resume()
			w.ok(test.do(w, s, other))
		})
	}
}

// fails has Valid fail from the nth call on.
func (w *world) failsAt(n int) {
	w.valid = func() error {
		if n--; n <= 0 {
			return &lock.SuspendedError{Reason: "stopped"}
		}
		return nil
	}
}

// A process that was stopped may have seen a lock as it was minutes ago.
func TestWhatIsNotValidAnyMoreIsNoRefusal(t *testing.T) {
	w := newWorld(t)
	w.holder("a", "/locks/a")
	w.failsAt(2)
	_, err := w.open("b").Acquire(ctx, "/locks/a")
	wantSuspended(t, err)
	w.failsAt(2)
	wantSuspended(t, w.open("b").Release(ctx, "/locks/a"))
}

// The store has made the change, and then it takes so long that another server may have taken it back.
func TestAGrantThatMayBeOverIsNotClaimed(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/locks/*", MaxAge: time.Hour, Contention: &lock.Contention{Reentrant: true}})
	s := w.job("a", "job")
	w.store.InjectAfter(func(lock.Change) error {
		w.suspend()
		return nil
	})
	w.refused(s, "/locks/a", lock.ErrUncertain)
	w.resume()
	if _, err := s.Renew(ctx, "/locks/a"); !errors.Is(err, lock.ErrUncertain) {
		t.Errorf("renewal: %v", err)
	}
	w.resume()
	w.refused(s, "/locks/a", lock.ErrUncertain) // again
	w.resume()
	next := w.job("a", "job")
	w.refused(next, "/locks/a", lock.ErrUncertain)
	w.resume()
	w.refused(w.open("b"), "/locks/a", lock.ErrHeld)
	w.release(next, "/locks/a", nil) // that was done, whoever may say so
	w.holds("/locks/a", "")
}

func TestAWaiterKeepsItsPlaceWhileSuspended(t *testing.T) {
	w := newWorld(t, ways(usual))
	s := w.holder("a", "/locks/x")
	first, second := w.waits("b", "/locks/x"), w.waits("c", "/locks/x")
	w.release(s, "/locks/x", nil)
	w.suspend()
	for range 3 {
		first.goesOn()
		w.looksIn(time.Second)
		w.pass(time.Second)
	}
	w.resume()
	w.store.Outside("/locks/x", lock.CauseHostMade, w.host())
	first.goesOn()              // it runs into a conflict
	w.looksIn(27 * time.Second) // its own time goes on
	lock.TakeOver(w.Table, w.store.Outside("/locks/x", lock.CauseHostGone))
	first.gets()
	second.stillWaits()
	w.holds("/locks/x", "b")
}

func TestAWaiterIsToldWhenItsTimeIsOverWhileSuspended(t *testing.T) {
	w := newWorld(t, ways(usual))
	s := w.holder("a", "/locks/x")
	x := w.waits("b", "/locks/x")
	w.suspend()
	w.pass(30 * time.Second)
	_, over, err := x.Poll(ctx)
	var late *lock.TimeoutError
	if !over || !errors.As(err, &late) {
		t.Errorf("over %v, %v", over, err)
	}
	wantSuspended(t, err)
	w.resume()
	w.release(s, "/locks/x", nil)
	w.holder("c", "/locks/x")
}

func TestAReleaseThatWaitsForMembersGoesOnWaitingWhileSuspended(t *testing.T) {
	w := newWorld(t, ways(usual))
	a, b := w.holder("a", "/locks/g"), w.holder("b", "/locks/g/m")
	a.SetWait(time.Minute)
	x := w.releases(a, "/locks/g")
	w.release(b, "/locks/g/m", nil)
	w.suspend()
	x.goesOn()
	w.pass(time.Second)
	w.resume()
	w.acquire(b, "/locks/g/m")
	x.goesOn()
	w.looksIn(59 * time.Second)
	w.release(b, "/locks/g/m", nil)
	x.gets()
	w.holds("/locks/g", "")
}

func TestWhatIsOverEndsAfterTheSuspensionAndIsNotLogged(t *testing.T) {
	w := newWorld(t, ways(usual))
	s := w.holder("a", "/locks/a", "/locks/b")
	x := w.waits("b", "/locks/a")
	x.calls = 0
	w.clock.Advance(time.Hour)
	w.suspend()
	logged := w.log.count("level=")
	for range 5 {
		w.expires()
		w.looksIn(time.Second)
		w.clock.Advance(time.Second)
	}
	if x.calls != 1 {
		t.Errorf("a waiter whose time is over was called %d times", x.calls)
	}
	if err := s.Write(ctx, []lock.Write{{Path: "/locks/a/f"}}, func([]lock.Title) error { return nil }); err == nil {
		t.Error("a file was published after the end of the lock")
	}
	if n := w.log.count("level="); n != logged {
		t.Errorf("%d lines were logged", n-logged)
	}
	w.resume()
	w.expires("/locks/a", "/locks/b")
}

// The store may know it before Valid does.
func TestAStoreThatIsSuspendedIsAskedOnceASecond(t *testing.T) {
	w := newWorld(t)
	w.holder("a", "/locks/a")
	tries := 0
	w.store.Inject(func(lock.Change) error {
		tries++
		return &lock.SuspendedError{Reason: "no leader"}
	})
	w.clock.Advance(10 * time.Minute)
	for want := 1; want < 10; want++ {
		w.expires()
		if w.looksIn(time.Second); tries != want {
			t.Fatalf("%d tries, want %d", tries, want)
		}
		w.clock.Advance(time.Second)
	}
	w.store.Inject(func(lock.Change) error { return lock.ErrNotEmpty })
	w.expires()
	w.clock.Advance(time.Second)
	w.store.Inject(func(lock.Change) error { return &lock.SuspendedError{Reason: "no leader"} })
	w.expires()
	if n := w.log.count("not ended"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	w.store.Inject(nil)
	w.pass(time.Second, "/locks/a")
}

func TestSessionsThatEndWhileSuspended(t *testing.T) {
	w := newWorld(t, leases()...)
	s := w.holder("a", "/now/x", "/grace/x")
	w.suspend()
	w.end(s)
	w.expires()
	w.resume()
	w.pass(time.Second, "/now/x")
	if h := w.stored("/grace/x").Holds; len(h) != 1 || h[0].Ended != (lock.Instant{}) {
		t.Errorf("stored: %+v", h)
	}
	w.pass(29*time.Second, "/grace/x") // its grace is counted from the end of the session all the same
}

func TestAGrantThatWasNotDeliveredEndsAfterTheSuspension(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/locks/*", MaxAge: time.Hour, LockDelay: time.Minute, Contention: &lock.Contention{Reentrant: true}})
	s := w.open("a")
	once, again := w.acquire(s, "/locks/once"), w.acquire(s, "/locks/again")
	w.acquire(s, "/locks/again")
	w.suspend()
	for n, token := range map[lock.Name]lock.Token{"/locks/once": once.Token, "/locks/again": again.Token} {
		w.ok(s.Undo(ctx, n, token))
	}
	if err := s.Undo(ctx, "/locks/once", once.Token+1); !errors.Is(err, lock.ErrStale) {
		t.Errorf("another token: %v", err)
	}
	w.resume()
	w.Expire(ctx)
	w.holds("/locks/again", "a")
	w.acquire(w.open("b"), "/locks/once") // it is nobody's loss, so there is no delay
}

func TestRulesThatCannotBeRecordedWhileSuspendedHoldAllTheSame(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	for _, n := range []lock.Name{"/locks/a", "/locks/b", "/locks/c"} {
		w.acquire(s, n)
	}
	w.suspend()
	err := w.SetRules(ctx, rulesOf(t, lock.Rule{Match: "/locks/*", MaxAge: time.Minute}))
	wantSuspended(t, err)
	if n := strings.Count(err.Error(), "\n"); n > 0 {
		t.Errorf("%d lines: %v", n+1, err)
	}
	w.resume()
	w.clock.Advance(time.Minute)
	if n := w.Expire(ctx); n != 3 {
		t.Errorf("%d locks ended", n)
	}
}

func TestAStartThatIsSuspendedTakesAllOverAndChangesNothing(t *testing.T) {
	w := newWorld(t, leases()...)
	w.holder("a", "/now/x", "/grace/x")
	before := w.stored("/grace/x").Revision
	w.suspend()
	w.start(leases()...)
	if n := w.log.count("level="); n > 1 {
		t.Error("logged:", w.log.b.String())
	}
	w.holds("/now/x", "a")
	if after := w.stored("/grace/x").Revision; after != before {
		t.Errorf("revision %d, want %d", after, before)
	}
	w.resume()
	w.expires("/now/x")
}
