package lock_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

func TestExactlyOneSessionGetsTheLock(t *testing.T) {
	w := newWorld(t)
	var winners sync.Map
	var group sync.WaitGroup
	for i := range 32 {
		group.Go(func() {
			hold, err := w.open(fmt.Sprintf("a%d", i)).Acquire(ctx, "/locks/a")
			if err == nil {
				winners.Store(i, hold.Token)
			} else if !errors.Is(err, lock.ErrHeld) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	n := 0
	winners.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d sessions got the lock", n)
	}
}

func TestRefusalSaysWhoHoldsItAndUntilWhen(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/a_lock", MaxAge: 6 * time.Minute}, lock.Rule{Match: "/b_lock"})
	s := w.Open(lock.Owner{Account: "phoneacc", Address: "10.0.0.5"})
	hold := w.acquire(s, "/a_lock")
	w.acquire(s, "/b_lock")
	w.clock.Advance(12*time.Second + 300*time.Millisecond)
	err := w.refused(w.open("other"), "/a_lock", lock.ErrHeld)
	wantText(t, err, "held by phoneacc@10.0.0.5 for 12s, expires in 5m48s")
	var held *lock.HeldError
	if !errors.As(err, &held) || held.Token != hold.Token || held.Name != "/a_lock" || !errors.Is(err, fs.ErrExist) {
		t.Errorf("%+v", held)
	}
	wantText(t, w.refused(w.open("other"), "/b_lock", lock.ErrHeld), "held by phoneacc@10.0.0.5 for 12s, never expires")
	w.refused(s, "/a_lock", lock.ErrHeld) // its own, too: a lock is not reentrant
	w.refused(s, "/plain", lock.ErrNoRule)
	w.refused(s, "/", lock.ErrNoRule)
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
			hold := w.acquire(w.open("a"), "/x")
			if got := hold.Expiry(w.clock.Now()).Text(); got != test.granted {
				t.Errorf("granted: %s", got)
			}
			w.clock.Advance(test.silent)
			status, _ := w.Get("/x")
			if status.Expiry.Text() != test.said || status.Remaining != test.remaining || status.Latest != test.latest || status.Idle != test.idle {
				t.Errorf("%s: %+v", status.Expiry.Text(), status)
			}
			wantText(t, w.refused(w.open("b"), "/x", lock.ErrHeld), "held by a@192.0.2.1 for "+test.silent.String()+", "+test.said)
		})
	}
}

func TestStoreErrorsReachTheCallerAndChangeNothing(t *testing.T) {
	for _, want := range []error{lock.ErrNoParent, lock.ErrNotDirectory, errors.New("disk full"), context.Canceled} {
		w := newWorld(t)
		s := w.open("a")
		w.store.Inject(func(lock.Change) error { return want })
		w.refused(s, "/locks/a/b", want)
		w.store.Inject(nil)
		w.holds("/locks/a/b", "")
		if w.HeldWithin("/") {
			t.Errorf("%v: something is left over", want)
		}
		w.acquire(s, "/locks/a/b")
		w.store.Inject(func(lock.Change) error { return want })
		w.release(s, "/locks/a/b", want)
		w.store.Inject(nil)
		w.holds("/locks/a/b", "a")
		w.release(s, "/locks/a/b", nil)
	}
}

func TestDirectoryThatTheHostMadeIsTheHosts(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	w.clock.Advance(time.Minute)
	made := w.clock.Now()
	made.BootID, made.Boot = "", 0 // all that a directory tells is its modification time
	made.Wall = made.Wall.Add(-20 * time.Second)
	w.store.Outside("/locks/a", lock.CauseHostMade, lock.Hold{Owner: lock.Owner{Account: lock.HostAccount}, Acquired: made})
	err := w.refused(s, "/locks/a", lock.ErrHeld)
	wantText(t, err, "held by host for 20s, expires in 9m40s")
	w.release(s, "/locks/a", lock.ErrNotYours)
	w.release(w.open("host"), "/locks/a", lock.ErrNotYours)
	w.clock.Advance(9*time.Minute + 40*time.Second)
	w.expires("/locks/a")
	w.acquire(s, "/locks/a")
}

func TestHoldThatTheHostRemovedIsLost(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	w.acquire(s, "/locks/a")
	w.store.Outside("/locks/a", lock.CauseHostGone)
	w.clock.Advance(3 * time.Second)
	err := w.release(s, "/locks/a", lock.ErrNotHeld)
	wantText(t, err, "taken away 0s ago: removed on the server") // it is known of only now
	w.release(s, "/locks/a", lock.ErrNotHeld)
	w.acquire(w.open("b"), "/locks/a")
}

func TestChangesFromOutsideAreTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		run, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- w.Run(run) }()
		synctest.Wait()
		s := w.open("a")
		w.acquire(s, "/locks/a")
		w.store.Outside("/locks/a", lock.CauseHostGone)
		host := lock.Hold{Owner: lock.Owner{Account: lock.HostAccount}, Acquired: w.clock.Now()}
		w.store.Outside("/locks/b", lock.CauseHostMade, host)
		synctest.Wait()
		w.holds("/locks/a", "")
		w.holds("/locks/b", lock.HostAccount)
		if _, ok := lock.Lost(s, "/locks/a"); !ok {
			t.Error("the holder is not told")
		}
		if in, ok := w.NextExpiry(); !ok || in != 10*time.Minute {
			t.Errorf("the host's lock ends in %v, %v", in, ok)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestNewsThatIsOldByNowIsNotTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		late := w.store.Watch(t.Context()) // counts from here, is read later
		s := w.open("a")
		host := lock.Hold{Owner: lock.Owner{Account: lock.HostAccount}, Acquired: w.clock.Now()}
		w.store.Outside("/locks/a", lock.CauseHostMade, host)
		w.refused(s, "/locks/a", lock.ErrHeld) // a conflict tells of it first
		if err := w.breaks("/locks/a", lock.Owner{Account: "admin"}, ""); err != nil {
			t.Fatal(err)
		}
		for event := range late {
			lock.TakeOver(w.Table, event)
			break
		}
		w.holds("/locks/a", "")
		w.acquire(s, "/locks/a")
		time.Sleep(2 * time.Minute) // what was remembered for this is forgotten
		w.release(s, "/locks/a", nil)
		w.expires()
		if n := lock.Nodes(w.Table); n != 1 {
			t.Errorf("%d names are remembered", n)
		}
	})
}

func TestAgeOfALockThatWasWaitedForBeginsWithItsGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		s := w.open("a")
		w.acquire(s, "/locks/a")
		gate := make(chan struct{})
		w.store.Inject(func(c lock.Change) error {
			if c.Cause == lock.CauseRelease {
				<-gate
			}
			return nil
		})
		released, granted := make(chan error, 1), make(chan lock.Hold, 1)
		go func() { released <- s.Release(ctx, "/locks/a") }()
		synctest.Wait()
		go func() { granted <- w.acquire(w.open("b"), "/locks/a") }()
		time.Sleep(time.Minute)
		close(gate)
		if err := <-released; err != nil {
			t.Error(err)
		}
		if hold := <-granted; hold.Acquired != w.clock.Now() {
			t.Errorf("granted at %v, now it is %v", hold.Acquired, w.clock.Now())
		}
	})
}

func TestNewsThatComesDuringAChangeIsTakenOverAfterIt(t *testing.T) {
	for _, made := range []bool{false, true} {
		w := newWorld(t)
		w.store.InjectAfter(func(lock.Change) error {
			gone := w.store.Outside("/locks/a", lock.CauseHostGone)
			lock.TakeOver(w.Table, gone)
			if made {
				host := lock.Hold{Owner: lock.Owner{Account: lock.HostAccount}, Acquired: w.clock.Now()}
				lock.TakeOver(w.Table, w.store.Outside("/locks/a", lock.CauseHostMade, host))
				lock.TakeOver(w.Table, gone) // an old one again
			}
			return nil
		})
		s := w.open("a")
		w.acquire(s, "/locks/a")
		if made {
			w.holds("/locks/a", lock.HostAccount)
		} else {
			w.holds("/locks/a", "")
		}
		if _, ok := lock.Lost(s, "/locks/a"); !ok {
			t.Error("the holder is not told")
		}
	}
}

// blindable is a store that cannot always be asked what it holds.
type blindable struct {
	*locktest.Memory
	blind bool
}

func (b *blindable) Get(ctx context.Context, n lock.Name) (lock.Record, error) {
	if b.blind {
		return lock.Record{}, lock.ErrClosed
	}
	return b.Memory.Get(ctx, n)
}

func TestUncertainGrantKeepsOthersOut(t *testing.T) {
	for _, made := range []bool{false, true} {
		u := newUnknown(t)
		s, other := u.open("a"), u.open("b")
		var told lock.Observation
		u.observe = func(o lock.Observation) { told = o }
		u.loses(made, acquireOf(s, "/locks/a"))
		u.observe = nil
		if told.Hold.Token != 0 || !strings.Contains(told.Note, "not known yet whether that happened") {
			t.Errorf("observed %+v", told)
		}
		for range 20 { // it is over after 10, but who knows
			_, err := other.Acquire(ctx, "/locks/a")
			wantSuspended(t, err)
			u.clock.Advance(time.Minute)
			u.expires()
		}
		u.tells("/locks/a", lock.CauseAcquire)
		if made {
			u.clock.Advance(time.Second)
			u.expires("/locks/a")
		}
		u.acquire(other, "/locks/a")
		u.holds("/locks/a", "b")
	}
}

func TestUncertainGrantIsLookedUp(t *testing.T) {
	w := newWorld(t)
	s, other := w.open("a"), w.open("b")
	w.store.InjectAfter(func(lock.Change) error { return fmt.Errorf("connection lost: %w", lock.ErrUncertain) })
	w.refused(s, "/locks/a", lock.ErrUncertain)
	w.store.InjectAfter(nil)
	w.refused(other, "/locks/a", lock.ErrHeld)
	w.release(s, "/locks/a", nil)
	w.store.Inject(func(lock.Change) error { return lock.ErrUncertain })
	w.refused(s, "/locks/a", lock.ErrUncertain)
	w.store.Inject(nil)
	w.acquire(other, "/locks/a")
}

func TestUncertainReleaseIsLookedUp(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	w.acquire(s, "/locks/a")
	w.store.InjectAfter(func(lock.Change) error { return lock.ErrUncertain })
	w.release(s, "/locks/a", lock.ErrUncertain)
	w.store.InjectAfter(nil)
	w.holds("/locks/a", "")
	w.acquire(s, "/locks/a")
	w.store.Inject(func(lock.Change) error { return lock.ErrUncertain })
	w.release(s, "/locks/a", lock.ErrUncertain)
	w.store.Inject(nil)
	w.holds("/locks/a", "a")
	w.release(s, "/locks/a", nil)
}

func TestStatusOfWhatIsHeld(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
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
	for _, test := range []struct {
		dir  lock.Name
		want []lock.Name
	}{
		{"/", []lock.Name{"/x_lock"}}, {"/locks", []lock.Name{"/locks/b", "/locks/g"}},
		{"/locks/g", []lock.Name{"/locks/g/1", "/locks/g/2"}}, {"/deep", nil}, {"/none", nil},
	} {
		if got := names(w.Children(test.dir)); !slices.Equal(got, test.want) {
			t.Errorf("below %s: %q", test.dir, got)
		}
	}
	want := []lock.Name{"/deep/er/y_lock", "/locks/b", "/locks/g", "/locks/g/1", "/locks/g/2", "/x_lock"}
	if got := names(w.All()); !slices.Equal(got, want) {
		t.Errorf("all: %q", got)
	}
	status, ok := w.Get("/locks/g")
	if !ok || status.Members != 2 || status.Held != 4*time.Second || status.Remaining != 10*time.Minute-4*time.Second {
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
	for _, n := range []lock.Name{"/locks/g/2", "/locks/b", "/x_lock", "/locks/g/1", "/locks/g", "/deep/er/y_lock"} {
		w.release(s, n, nil)
	}
	if w.HeldWithin("/") || len(w.All()) != 0 || lock.Nodes(w.Table) != 1 {
		t.Error("something is left over")
	}
}

func TestCancelledWaitEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		gate := make(chan struct{})
		w.store.Inject(func(lock.Change) error { <-gate; return nil })
		var group sync.WaitGroup
		group.Go(func() { w.acquire(w.open("a"), "/locks/a") })
		synctest.Wait()
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := w.open("b").Acquire(soon, "/locks/a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		close(gate)
		group.Wait()
	})
}

func TestOneSlowNameHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		gate := make(chan struct{})
		w.store.Inject(func(c lock.Change) error {
			if c.Name == "/locks/slow" {
				<-gate
			}
			return nil
		})
		var group sync.WaitGroup
		group.Go(func() { w.acquire(w.open("a"), "/locks/slow") })
		synctest.Wait()
		b := w.open("b")
		w.acquire(b, "/locks/fast")
		w.release(b, "/locks/fast", nil)
		w.Expire(ctx)
		if _, ok := w.Get("/locks/slow"); ok {
			t.Error("seen before it is granted")
		}
		close(gate)
		group.Wait()
		w.holds("/locks/slow", "a")
	})
}
