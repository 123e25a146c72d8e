package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestExactlyOneSessionGetsTheLock(t *testing.T) {
	w := newWorld(t)
	var got atomic.Int32
	var group sync.WaitGroup
	for i := range 32 {
		s := w.open(fmt.Sprint("a", i))
		group.Go(func() {
			if _, err := s.Acquire(ctx, "/locks/a"); err == nil {
				got.Add(1)
			} else if !errors.Is(err, lock.ErrHeld) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := got.Load(); n != 1 {
		t.Errorf("%d sessions got the lock", n)
	}
}

// What is said names the idle limit where that may end the lock before its age does.
func TestRefusalAndStatusNameBothLimits(t *testing.T) {
	const age, idle = 24 * time.Hour, 30 * time.Minute
	for _, test := range []struct {
		name              string
		rule              lock.Rule
		silent            time.Duration // since the last sign of life
		granted, said     string
		remaining, latest time.Duration
		idle              time.Duration
	}{
		{"both", lock.Rule{MaxAge: age, MaxIdle: idle}, 12 * time.Second, "expires in 24h0m0s or 30m0s after its last sign of life",
			"expires in 23h59m48s or 30m0s after its last sign of life", idle - 12*time.Second, age - 12*time.Second, idle},
		{"no age", lock.Rule{MaxIdle: idle}, time.Minute, "expires 30m0s after its last sign of life",
			"expires in 29m0s, 30m0s after its last sign of life", idle - time.Minute, 0, idle},
		{"no age, just now", lock.Rule{MaxIdle: idle}, 0, "expires 30m0s after its last sign of life",
			"expires 30m0s after its last sign of life", idle, 0, idle},
		{"no idle limit", lock.Rule{MaxAge: age}, time.Hour, "expires in 24h0m0s", "expires in 23h0m0s", age - time.Hour, age - time.Hour, 0},
		{"neither", lock.Rule{}, time.Hour, "never expires", "never expires", 0, 0, 0},
		{"the age comes first", lock.Rule{MaxAge: 10 * time.Minute, MaxIdle: idle}, time.Minute, "expires in 10m0s",
			"expires in 9m0s", 9 * time.Minute, 9 * time.Minute, idle},
		{"the end is due", lock.Rule{MaxIdle: idle}, time.Hour, "expires 30m0s after its last sign of life", "expires in 0s", 0, 0, idle},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.rule.Match = "/x"
			w := newWorld(t, test.rule)
			s := w.open("a")
			hold := w.acquire(s, "/x")
			if got := hold.Expiry(w.clock.Now()).Text(); got != test.granted {
				t.Errorf("granted: %s", got)
			}
			w.clock.Advance(test.silent)
			status, _ := w.Get("/x")
			if status.Expiry.Text() != test.said || status.Remaining != test.remaining || status.Latest != test.latest || status.Idle != test.idle {
				t.Errorf("%s: %+v", status.Expiry.Text(), status)
			}
			for _, s := range []*lock.Session{w.open("b"), s} { // a lock is not reentrant
				wantText(t, w.refused(s, "/x", lock.ErrHeld), "held by a@192.0.2.1 for "+test.silent.String()+", "+test.said)
			}
		})
	}
}

func TestStoreErrorsReachTheCallerAndChangeNothing(t *testing.T) {
	for _, want := range []error{lock.ErrNoParent, errors.New("disk full"), context.Canceled} {
		w := newWorld(t)
		s := w.open("a")
		fail := func(lock.Change) error { return want }
		w.store.Inject(fail)
		w.refused(s, "/locks/a/b", want)
		w.store.Inject(nil)
		w.holds("/locks/a/b", "")
		if w.HeldWithin("/") {
			t.Errorf("%v: something is left over", want)
		}
		w.acquire(s, "/locks/a/b")
		w.store.Inject(fail)
		w.release(s, "/locks/a/b", want)
		w.store.Inject(nil)
		w.holds("/locks/a/b", "a")
		w.release(s, "/locks/a/b", nil)
	}
}

// The table learns of it by Watch, or by the conflict that the next change runs into.
func TestWhatTheHostMakesAndRemoves(t *testing.T) {
	for _, watched := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorldIn(t)
			run, stop := context.WithCancel(ctx)
			defer stop()
			done := make(chan error)
			go func() { done <- w.Run(run) }()
			synctest.Wait()
			s := w.holder("a", "/locks/gone")
			if !watched {
				stop()
				w.ok(<-done)
			}
			made := w.host() // all that a directory tells is its modification time
			made.Acquired = lock.Instant{Wall: made.Acquired.Wall.Add(-20 * time.Second)}
			w.store.Outside("/locks/a", lock.CauseHostMade, made)
			w.store.Outside("/locks/gone", lock.CauseHostGone)
			synctest.Wait()
			if watched {
				w.holds("/locks/a", lock.HostAccount)
				w.holds("/locks/gone", "")
				w.looksIn(9*time.Minute + 40*time.Second)
				stop()
				w.ok(<-done)
			}
			wantText(t, w.refused(s, "/locks/a", lock.ErrHeld), "held by host for 20s, expires in 9m40s")
			w.release(s, "/locks/a", lock.ErrNotYours)
			w.release(w.open("host"), "/locks/a", lock.ErrNotYours)
			wantText(t, w.release(s, "/locks/gone", lock.ErrNotHeld), "taken away 0s ago: removed on the server")
			w.pass(9*time.Minute+40*time.Second, "/locks/a")
			w.acquire(s, "/locks/a")
		})
	}
}

// A conflict, or the store's answer to who asked what became of a change, may tell of it before Watch does.
func TestNewsThatIsOldByNowIsNotTakenOver(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	made := w.store.Outside("/locks/a", lock.CauseHostMade, w.host())
	w.refused(s, "/locks/a", lock.ErrHeld)
	w.ok(w.breaks("/locks/a", lock.Owner{Account: "admin"}, ""))
	w.store.InjectAfter(func(lock.Change) error { return lock.ErrUncertain })
	w.refused(s, "/locks/b", lock.ErrUncertain)
	w.store.InjectAfter(nil)
	granted := w.store.Tell("/locks/b", lock.CauseAcquire)
	w.release(s, "/locks/b", nil)
	for _, late := range []lock.Event{made, granted} {
		lock.TakeOver(w.Table, late)
		w.holds(late.Record.Name, "")
	}
	gone := w.store.Tell("/locks/b", lock.CauseRelease)
	w.acquire(s, "/locks/b")
	lock.TakeOver(w.Table, gone)
	w.holds("/locks/b", "a")
	w.release(s, "/locks/b", nil)
	w.empty() // what was remembered for this is forgotten
}

func TestNewsThatComesDuringAChangeIsTakenOverAfterIt(t *testing.T) {
	for _, made := range []bool{false, true} {
		w := newWorld(t)
		w.store.InjectAfter(func(lock.Change) error {
			gone := w.store.Outside("/locks/a", lock.CauseHostGone)
			lock.TakeOver(w.Table, gone)
			if made {
				lock.TakeOver(w.Table, w.store.Outside("/locks/a", lock.CauseHostMade, w.host()))
				lock.TakeOver(w.Table, gone) // an old one again
			}
			return nil
		})
		s := w.holder("a", "/locks/a")
		if w.agree("/locks/a"); w.Held("/locks/a") != made || s.Acquired("/locks/a") {
			t.Errorf("made %v: %+v", made, w.All())
		}
		if _, ok := lock.Lost(s, "/locks/a"); !ok {
			t.Error("the holder is not told")
		}
	}
}

func TestStatusOfWhatIsHeld(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	all := []lock.Name{"/deep/er/y_lock", "/locks/b", "/locks/g", "/locks/g/1", "/locks/g/2", "/x_lock"}
	for _, n := range []lock.Name{"/locks/g/2", "/locks/b", "/locks/g", "/x_lock", "/locks/g/1", "/deep/er/y_lock"} {
		w.acquire(s, n)
		w.clock.Advance(time.Second)
	}
	names := func(all []lock.Status) (names []lock.Name) {
		for _, status := range all {
			names = append(names, status.Name)
		}
		return names
	}
	for dir, want := range map[lock.Name][]lock.Name{
		"/": {"/x_lock"}, "/locks": {"/locks/b", "/locks/g"}, "/locks/g": {"/locks/g/1", "/locks/g/2"}, "/deep": nil, "/none": nil,
	} {
		if got := names(w.Children(dir)); !slices.Equal(got, want) {
			t.Errorf("below %s: %q", dir, got)
		}
	}
	if got := names(w.All()); !slices.Equal(got, all) {
		t.Errorf("all: %q", got)
	}
	if status, ok := w.Get("/locks/g"); !ok || status.Members != 2 || status.Held != 4*time.Second || status.Remaining != 10*time.Minute-4*time.Second {
		t.Errorf("%+v", status)
	}
	for dir, want := range map[lock.Name]bool{
		"/": true, "/locks": true, "/locks/b": true, "/deep": true, "/deep/er": true, "/locks/g/1": true,
		"/lock": false, "/locks/b/c": false, "/dee": false,
	} {
		if w.HeldWithin(dir) != want {
			t.Errorf("held within %s: %v", dir, !want)
		}
	}
	slices.Reverse(all)
	for _, n := range all {
		w.release(s, n, nil)
	}
	if w.HeldWithin("/") || len(w.All()) != 0 || lock.Nodes(w.Table) != 1 {
		t.Error("something is left over")
	}
}

// One change hangs in the store. What concerns other names does not wait for it, and what waits for it may give up.
func TestASlowStoreHoldsUpOneNameOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		a, b := w.open("a"), w.open("b")
		gate := w.blocked("/locks/slow")
		granted := starts(acquireOf(a, "/locks/slow"))
		w.acquire(b, "/locks/fast")
		w.release(b, "/locks/fast", nil)
		w.Expire(ctx)
		if _, ok := w.Get("/locks/slow"); ok {
			t.Error("seen before it is granted")
		}
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := b.Acquire(soon, "/locks/slow"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		close(gate)
		w.ok(<-granted)
		w.holds("/locks/slow", "a")

		gate = w.blocked("/locks/slow", lock.CauseRelease)
		released := starts(func() error { return a.Release(ctx, "/locks/slow") })
		granted = starts(acquireOf(b, "/locks/slow"))
		time.Sleep(time.Minute)
		close(gate)
		w.ok(errors.Join(<-released, <-granted))
		if status, _ := w.Get("/locks/slow"); status.Holds[0].Owner != b.Owner() || status.Held != 0 { // its age begins with its grant
			t.Errorf("%+v", status)
		}
	})
}
