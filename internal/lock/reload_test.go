package lock_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestLongerAgeKeepsOldLocksLonger(t *testing.T) {
	w := newWorld(t)
	s := w.holder("a", "/locks/a")
	s.SetAge(time.Minute)
	w.acquire(s, "/locks/asked")
	w.reload(lock.Rule{Match: "/locks/**", MaxAge: time.Hour})
	w.pass(time.Minute, "/locks/asked") // its client asked for that
	w.pass(time.Hour-time.Minute, "/locks/a")
}

func TestReloadWritesWhatItChanged(t *testing.T) {
	w := newWorld(t)
	w.holder("a", "/locks/a")
	w.holder("a", "/x_lock")
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
	w.pass(6*time.Minute, "/x_lock")
	w.pass(54*time.Minute - 1)
	w.pass(1, "/locks/a")
}

func TestReloadReportsWhatItCouldNotWrite(t *testing.T) {
	w := newWorld(t)
	w.holder("a", "/locks/a")
	full := errors.New("disk full")
	w.store.Inject(func(lock.Change) error { return full })
	if err := w.SetRules(ctx, rulesOf(t, lock.Rule{Match: "/locks/**", MaxAge: time.Minute})); !errors.Is(err, full) {
		t.Error(err)
	}
	w.store.Inject(nil)
	w.pass(time.Minute, "/locks/a") // in force all the same
}

func TestOtherKeysStayAsGranted(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/x", MaxAge: time.Hour, Release: lock.ReleaseAnyone, LockDelay: time.Minute, AllowCwd: true})
	w.holder("a", "/x")
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

func TestDisconnectRuleReachesSessionsThatHaveEnded(t *testing.T) {
	keep := lock.Rule{Match: "/x", MaxAge: time.Hour}
	lease := keep
	lease.OnDisconnect, lease.Grace = lock.ReleaseOnDisconnect, 30*time.Second
	w := newWorld(t, keep)
	s := w.holder("a", "/x")
	w.end(s)
	w.reload(lease)
	w.pass(10 * time.Second)
	w.reload(keep)
	w.pass(time.Minute)
	w.reload(lease)
	w.pass(30*time.Second, "/x")
}

func TestGrantUnderWayFollowsAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		gate := w.blocked("/locks/a", lock.CauseAcquire)
		granted := starts(acquireOf(w.open("a"), "/locks/a"))
		short := rulesOf(t, lock.Rule{Match: "/locks/**", MaxAge: time.Minute})
		loaded := starts(func() error { return w.SetRules(ctx, short) })
		close(gate)
		w.ok(errors.Join(<-granted, <-loaded))
		if got := w.stored("/locks/a").Holds[0].Rule.MaxAge; got != time.Minute {
			t.Errorf("stored age %v", got)
		}
		w.pass(time.Minute, "/locks/a")
	})
}

func TestReloadCountsBeforeItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		s := w.open("a")
		for i := range 100 {
			w.acquire(s, lock.Name(fmt.Sprintf("/locks/%d", i)))
		}
		gate := make(chan struct{})
		w.store.Inject(func(c lock.Change) error {
			if c.Cause == lock.CauseRules {
				<-gate
			}
			return nil
		})
		w.clock.Advance(2 * time.Minute)
		short := rulesOf(t, lock.Rule{Match: "/locks/**", MaxAge: time.Minute})
		var loaded chan error
		w.hurries(func() { loaded = starts(func() error { return w.SetRules(ctx, short) }) })
		early := w.Expire(ctx)
		if early == 0 {
			t.Error("locks whose turn to be written has not come go on with their old age")
		}
		close(gate)
		w.ok(<-loaded)
		if n := early + w.Expire(ctx); n != 100 {
			t.Errorf("%d ended", n)
		}
	})
}
