package lock_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func (w *world) reload(rules ...lock.Rule) {
	w.t.Helper()
	r := rulesOf(w.t, rules...)
	if err := w.SetRules(ctx, r); err != nil {
		w.t.Fatal(err)
	}
	if w.Rules() != r {
		w.t.Fatal("other rules in force")
	}
}

func TestShorterAgeEndsOldLocksAtOnce(t *testing.T) {
	w := newWorld(t)
	w.acquire(w.open("a"), "/locks/old")
	w.clock.Advance(3 * time.Minute)
	w.acquire(w.open("a"), "/locks/new")
	w.NextExpiry()
	drain(w.Changed())
	w.reload(lock.Rule{Match: "/locks/**", MaxAge: 2 * time.Minute})
	select {
	case <-w.Changed():
	default:
		t.Error("nobody is told")
	}
	w.expires("/locks/old")
	w.clock.Advance(2 * time.Minute)
	w.expires("/locks/new")
}

func TestLongerAgeKeepsOldLocksLonger(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	w.acquire(s, "/locks/a")
	s.SetAge(time.Minute)
	w.acquire(s, "/locks/asked")
	w.reload(lock.Rule{Match: "/locks/**", MaxAge: time.Hour})
	w.clock.Advance(time.Minute)
	w.expires("/locks/asked") // its client asked for that
	w.clock.Advance(time.Hour - time.Minute)
	w.expires("/locks/a")
}

func TestReloadWritesWhatItChanged(t *testing.T) {
	w := newWorld(t)
	w.acquire(w.open("a"), "/locks/a")
	w.acquire(w.open("a"), "/x_lock")
	changes := map[lock.Name]lock.Cause{}
	w.store.Inject(func(c lock.Change) error { changes[c.Name] = c.Cause; return nil })
	w.reload(
		lock.Rule{Match: "/locks/**", MaxAge: time.Hour},
		lock.Rule{Match: "**/*_lock", MaxAge: 6 * time.Minute},
	)
	if len(changes) != 1 || changes["/locks/a"] != lock.CauseRules {
		t.Errorf("%v", changes)
	}
	if got := w.stored("/locks/a").Holds[0].Rule.MaxAge; got != time.Hour {
		t.Errorf("stored age %v", got)
	}
	w.store.Inject(nil)
	w.start(lock.Rule{Match: "/elsewhere/*"}) // no rule matches them any more: they have their old ones
	w.clock.Advance(6 * time.Minute)
	w.expires("/x_lock")
	w.clock.Advance(54*time.Minute - 1)
	w.expires()
	w.clock.Advance(1)
	w.expires("/locks/a")
}

func TestReloadReportsWhatItCouldNotWrite(t *testing.T) {
	w := newWorld(t)
	w.acquire(w.open("a"), "/locks/a")
	full := errors.New("disk full")
	w.store.Inject(func(lock.Change) error { return full })
	if err := w.SetRules(ctx, rulesOf(t, lock.Rule{Match: "/locks/**", MaxAge: time.Minute})); !errors.Is(err, full) {
		t.Error(err)
	}
	w.store.Inject(nil)
	w.clock.Advance(time.Minute)
	w.expires("/locks/a") // in force all the same
}

func TestOtherKeysStayAsGranted(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/x", MaxAge: time.Hour, Release: lock.ReleaseAnyone, LockDelay: time.Minute, AllowCwd: true})
	w.acquire(w.open("a"), "/x")
	w.reload(lock.Rule{Match: "/*", MaxAge: 2 * time.Hour, Release: lock.ReleaseSession})
	status, _ := w.Get("/x")
	want := lock.Rule{Match: "/x", MaxAge: 2 * time.Hour, OnDisconnect: lock.KeepOnDisconnect, Release: lock.ReleaseAnyone, LockDelay: time.Minute, AllowCwd: true}
	if got := status.Holds[0].Rule; got != want {
		t.Errorf("%+v", got)
	}
	w.release(w.open("b"), "/x", nil)
	if hold := w.acquire(w.open("a"), "/x"); hold.Rule.Release != lock.ReleaseSession {
		t.Errorf("%+v", hold.Rule)
	}
}

func TestIdleTimeTurnedOnCountsFromThen(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/x", MaxAge: time.Hour})
	s := w.open("a")
	w.acquire(s, "/x")
	w.clock.Advance(10 * time.Minute)
	w.reload(lock.Rule{Match: "/x", MaxAge: time.Hour, MaxIdle: time.Minute})
	w.clock.Advance(time.Minute - 1)
	w.expires()
	s.Touch()
	w.clock.Advance(time.Minute - 1)
	w.expires()
	w.clock.Advance(1)
	w.expires("/x")
}

func TestDisconnectRuleReachesSessionsThatHaveEnded(t *testing.T) {
	keep := lock.Rule{Match: "/x", MaxAge: time.Hour}
	lease := keep
	lease.OnDisconnect, lease.Grace = lock.ReleaseOnDisconnect, 30*time.Second
	w := newWorld(t, keep)
	s := w.open("a")
	w.acquire(s, "/x")
	w.end(s)
	w.reload(lease)
	w.clock.Advance(10 * time.Second)
	w.expires()
	w.reload(keep)
	w.clock.Advance(time.Minute)
	w.expires()
	w.reload(lease)
	w.clock.Advance(30 * time.Second)
	w.expires("/x")
}

func TestGrantUnderWayFollowsAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		gate := make(chan struct{})
		w.store.Inject(func(c lock.Change) error {
			if c.Cause == lock.CauseAcquire {
				<-gate
			}
			return nil
		})
		granted, loaded := make(chan error, 1), make(chan error, 1)
		go func() { _, err := w.open("a").Acquire(ctx, "/locks/a"); granted <- err }()
		synctest.Wait()
		short := rulesOf(t, lock.Rule{Match: "/locks/**", MaxAge: time.Minute})
		go func() { loaded <- w.SetRules(ctx, short) }()
		synctest.Wait()
		close(gate)
		if err := errors.Join(<-granted, <-loaded); err != nil {
			t.Fatal(err)
		}
		if got := w.stored("/locks/a").Holds[0].Rule.MaxAge; got != time.Minute {
			t.Errorf("stored age %v", got)
		}
		time.Sleep(time.Minute)
		w.expires("/locks/a")
	})
}

func TestReloadCountsBeforeItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		s := w.open("a")
		for i := range 100 {
			w.acquire(s, lock.Name(fmt.Sprintf("/locks/%d", i)))
		}
		gate, loaded := make(chan struct{}), make(chan error, 1)
		w.store.Inject(func(c lock.Change) error {
			if c.Cause == lock.CauseRules {
				<-gate
			}
			return nil
		})
		time.Sleep(2 * time.Minute)
		short := rulesOf(t, lock.Rule{Match: "/locks/**", MaxAge: time.Minute})
		go func() { loaded <- w.SetRules(ctx, short) }()
		synctest.Wait()
		early := w.Expire(ctx)
		if early == 0 {
			t.Error("locks whose turn to be written has not come go on with their old age")
		}
		close(gate)
		if err := <-loaded; err != nil {
			t.Error(err)
		}
		if n := early + w.Expire(ctx); n != 100 {
			t.Errorf("%d ended", n)
		}
	})
}
