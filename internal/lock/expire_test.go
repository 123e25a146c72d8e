package lock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestLockEndsAtItsAgeAndNotBefore(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	if _, ok := w.NextExpiry(); ok {
		t.Error("something expires")
	}
	w.acquire(s, "/locks/a")
	if in, ok := w.NextExpiry(); !ok || in != 10*time.Minute {
		t.Errorf("%v, %v", in, ok)
	}
	w.clock.Advance(10*time.Minute - 1)
	w.expires()
	w.holds("/locks/a", "a")
	w.clock.Advance(1)
	if in, ok := w.NextExpiry(); !ok || in != 0 {
		t.Errorf("%v, %v", in, ok)
	}
	w.expires("/locks/a")
	w.holds("/locks/a", "")
	if w.log.count("lock ended lock=/locks/a cause=expire holder=a@192.0.2.1 age=10m0s token=1") != 1 {
		t.Errorf("log: %q", w.log.lines)
	}
}

func TestRenewGivesAFullAgeUnderTheSameToken(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	hold := w.acquire(s, "/locks/a")
	w.clock.Advance(9 * time.Minute)
	renewed, err := s.Renew(ctx, "/locks/a")
	if err != nil || renewed.Token != hold.Token || renewed.Acquired != hold.Acquired || renewed.Renewed != w.clock.Now() {
		t.Errorf("%+v, %v", renewed, err)
	}
	w.clock.Advance(10*time.Minute - 1)
	w.expires()
	w.clock.Advance(1)
	w.expires("/locks/a")
	if _, err := s.Renew(ctx, "/locks/a"); !errors.Is(err, lock.ErrNotHeld) {
		t.Error(err)
	}
}

func TestClientMayAskForAShorterAgeOnly(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/locks/**", MaxAge: 10 * time.Minute}, lock.Rule{Match: "/ever"})
	s := w.open("a")
	s.SetAge(30 * time.Second)
	w.acquire(s, "/locks/short")
	w.acquire(s, "/ever")
	s.SetAge(time.Hour)
	w.acquire(s, "/locks/long")
	s.SetAge(0)
	w.acquire(s, "/locks/usual")
	w.clock.Advance(30 * time.Second)
	w.expires("/locks/short", "/ever")
	w.clock.Advance(10*time.Minute - 30*time.Second)
	w.expires("/locks/long", "/locks/usual")
}

func TestCommandUnderWayIsALastingSignOfLife(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/x", MaxIdle: 30 * time.Second})
	s := w.open("a")
	w.acquire(s, "/x")
	s.Begin()
	w.clock.Advance(time.Hour)
	w.expires()
	s.Begin()
	s.End()
	w.clock.Advance(time.Hour)
	w.expires()
	s.End()
	w.clock.Advance(30*time.Second - 1)
	w.expires()
	w.clock.Advance(1)
	w.expires("/x")
}

func TestEndedSessionIdlesFromItsEnd(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/x", MaxIdle: 30 * time.Second})
	s := w.open("a")
	w.acquire(s, "/x")
	w.clock.Advance(20 * time.Second)
	s.Begin()
	w.end(s)
	w.clock.Advance(30*time.Second - 1)
	w.expires()
	w.clock.Advance(1)
	w.expires("/x")
}

// An idle lock waits for its members, which are a sign of use.
func TestIdleLockWaitsForItsMembers(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/locks/*", MaxIdle: 10 * time.Minute, Contention: &anyone}, lock.Rule{Match: "/locks/**", MaxAge: 10 * time.Minute})
	a, b := w.open("a"), w.open("b")
	w.acquire(a, "/locks/g")
	w.clock.Advance(5 * time.Minute)
	w.acquire(b, "/locks/g/m")
	w.clock.Advance(5 * time.Minute)
	w.expires()
	w.holds("/locks/g", "a")
	if in, _ := w.NextExpiry(); in != 5*time.Minute {
		t.Errorf("looked at again in %v though it waits", in)
	}
	drain(w.Changed())
	w.release(b, "/locks/g/m", nil)
	select {
	case <-w.Changed():
	default:
		t.Error("nobody is told that it can end now")
	}
	w.expires("/locks/g")
}

// Nobody keeps a lock beyond its age by renewing another one below it.
func TestTheAgeOfALockEndsItsMembers(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("a"), w.open("b")
	w.acquire(a, "/locks/g")
	w.clock.Advance(9 * time.Minute)
	for _, n := range []lock.Name{"/locks/g/m", "/locks/g/m/x", "/locks/g/y/z"} {
		w.acquire(b, n)
	}
	w.clock.Advance(time.Minute)
	if _, err := b.Renew(ctx, "/locks/g/m"); err != nil {
		t.Fatal(err)
	}
	if ended := w.Expire(ctx); ended != 4 || len(w.All()) != 0 {
		t.Errorf("ended %d", ended)
	}
	wantText(t, w.release(b, "/locks/g/m", lock.ErrNotHeld), "taken away 0s ago: with its group, older than 10m0s")
	w.empty()
}

// A member that cannot end with its group is tried again, and keeps the group until then.
func TestAMemberThatCannotEndKeepsItsGroupForASecond(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("a"), w.open("b")
	w.acquire(a, "/locks/g")
	w.clock.Advance(9 * time.Minute)
	m := w.acquire(b, "/locks/g/m")
	err := publish(b, "/locks/g/m", m.Token, func() error {
		w.clock.Advance(time.Minute)
		w.expires()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if in, ok := w.NextExpiry(); !ok || in != time.Second {
		t.Errorf("looked at again in %v, %v", in, ok)
	}
	w.clock.Advance(time.Second)
	w.expires("/locks/g/m", "/locks/g")

	w.acquire(a, "/locks/g")
	w.clock.Advance(9 * time.Minute)
	w.acquire(b, "/locks/g/m")
	w.clock.Advance(time.Minute)
	tries := 0
	w.store.Inject(func(c lock.Change) error { tries++; return lock.ErrNotEmpty })
	for range 8 {
		w.expires()
		w.clock.Advance(time.Second)
	}
	if tries != 4 { // after 0, 1, 3 and 7 s
		t.Errorf("tried %d times in 8 s", tries)
	}
}

func drain(ch <-chan struct{}) {
	select {
	case <-ch:
	default:
	}
}

func TestLockThatCannotEndIsLoggedOnceAndTriedLater(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	w.acquire(s, "/locks/a")
	w.acquire(s, "/locks/b")
	tries := 0
	w.store.Inject(func(c lock.Change) error {
		if c.Name == "/locks/a" {
			tries++
			return lock.ErrNotEmpty
		}
		return nil
	})
	w.clock.Advance(10 * time.Minute)
	w.expires("/locks/b")
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		before := tries
		w.expires()
		if in, ok := w.NextExpiry(); !ok || in != wait*time.Second {
			t.Fatalf("next try in %v, want %ds", in, wait)
		}
		w.clock.Advance(wait*time.Second - 1)
		w.expires()
		if tries != before {
			t.Fatal("tried too early")
		}
		w.clock.Advance(1)
		w.expires()
		if tries != before+1 {
			t.Fatal("not tried")
		}
	}
	if n := w.log.count("lock not ended though its time is over"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	w.store.Inject(nil)
	w.clock.Advance(time.Minute)
	w.expires("/locks/a")
}

func TestReleaseStillWorksWhenTheReaperCouldNotEndIt(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	w.acquire(s, "/locks/a")
	w.store.Inject(func(lock.Change) error { return lock.ErrNotEmpty })
	w.clock.Advance(10 * time.Minute)
	w.expires()
	w.store.Inject(nil)
	w.release(s, "/locks/a", nil)
	w.acquire(s, "/locks/a")
	w.clock.Advance(10 * time.Minute)
	w.expires("/locks/a") // at once: the earlier failures were another hold's
}

func TestExpireTakesOverWhatItRunsInto(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	w.acquire(s, "/locks/a")
	w.clock.Advance(10 * time.Minute)
	host := lock.Hold{Owner: lock.Owner{Account: lock.HostAccount}, Acquired: w.clock.Now()}
	w.store.Outside("/locks/a", lock.CauseHostMade, host)
	w.expires("/locks/a") // as the host has it; the newer hold is the host's, and young
	w.holds("/locks/a", lock.HostAccount)
}

func TestNobodyGetsALockSoonAfterItWasTakenAway(t *testing.T) {
	rule := lock.Rule{Match: "/x", MaxAge: time.Minute, MaxIdle: 50 * time.Second, LockDelay: 15 * time.Second, Contention: &lock.Contention{Queue: lock.QueueOff}}
	gone := rule
	gone.Match, gone.OnDisconnect = "/gone", lock.ReleaseOnDisconnect
	for _, test := range []struct {
		how     string
		name    lock.Name
		delayed bool
		end     func(w *world, s *lock.Session)
	}{
		{"released", "/x", false, func(w *world, s *lock.Session) { w.release(s, "/x", nil) }},
		{"undone", "/x", false, func(w *world, s *lock.Session) {
			if err := s.Undo(ctx, "/x", 1); err != nil {
				t.Fatal(err)
			}
		}},
		{"reaped", "/x", true, func(w *world, s *lock.Session) { s.Begin(); w.clock.Advance(time.Minute); w.expires("/x") }},
		{"idle", "/x", true, func(w *world, _ *lock.Session) { w.clock.Advance(50 * time.Second); w.expires("/x") }},
		{"broken", "/x", true, func(w *world, _ *lock.Session) {
			if err := w.Break(ctx, "/x", 1, lock.Owner{}, ""); err != nil {
				t.Fatal(err)
			}
		}},
		{"disconnected", "/gone", true, func(w *world, s *lock.Session) { w.end(s) }},
	} {
		t.Run(test.how, func(t *testing.T) {
			w := newWorld(t, rule, gone)
			s := w.job("a", "job")
			w.acquire(s, test.name)
			test.end(w, s)
			if !test.delayed {
				w.acquire(w.open("b"), test.name)
				return
			}
			w.clock.Advance(5 * time.Second)
			err := w.refused(w.job("a", "job"), test.name, lock.ErrHeld)
			wantText(t, err, "kept back for 10s after it was taken away")
			w.holds(test.name, "")
			w.clock.Advance(10 * time.Second)
			w.expires()
			if n := lock.Nodes(w.Table); n != 1 {
				t.Errorf("%d names remembered", n)
			}
			w.acquire(w.open("b"), test.name)
		})
	}
}

func TestRenewLetsAHoldThatWasOverPublishAgain(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	hold := w.acquire(s, "/locks/a")
	w.clock.Advance(10*time.Minute - 1)
	err := publish(s, "/locks/a", hold.Token, func() error {
		w.clock.Advance(1)
		w.expires()
		_, err := s.Renew(ctx, "/locks/a") // does not wait for publications
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := publish(s, "/locks/a", hold.Token, func() error { return nil }); err != nil {
		t.Error(err)
	}
	w.expires()
}

func TestExpireDoesNotWaitForPublications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		s := w.open("a")
		hold := w.acquire(s, "/locks/a")
		w.acquire(s, "/locks/b")
		gate, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- publish(s, "/locks/a", hold.Token, func() error { <-gate; return nil })
		}()
		synctest.Wait()
		time.Sleep(10 * time.Minute)
		w.expires("/locks/b")
		w.holds("/locks/a", "a")
		if err := publish(s, "/locks/a", hold.Token, func() error { return nil }); !errors.As(err, new(*lock.ProtectedError)) {
			t.Errorf("one more may publish when its time is over: %v", err)
		}
		drain(w.Changed())
		close(gate)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if in, ok := w.NextExpiry(); !ok || in != 0 {
			t.Errorf("%v, %v", in, ok)
		}
		w.expires("/locks/a")
	})
}
