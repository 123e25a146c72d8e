package lock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestLockEndsAtItsAgeAndNotBefore(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	if _, ok := w.NextExpiry(); ok {
		t.Error("something expires")
	}
	hold := w.acquire(s, "/locks/a")
	w.looksIn(10 * time.Minute)
	w.pass(10*time.Minute - 1)
	renewed, err := s.Renew(ctx, "/locks/a") // a full age under the same token
	if err != nil || renewed.Token != hold.Token || renewed.Acquired != hold.Acquired || renewed.Renewed != w.clock.Now() {
		t.Errorf("%+v, %v", renewed, err)
	}
	w.pass(10*time.Minute - 1)
	w.holds("/locks/a", "a")
	w.clock.Advance(1)
	w.looksIn(0)
	if causes := w.expires("/locks/a"); causes[0] != lock.CauseExpire {
		t.Errorf("%q", causes)
	}
	w.holds("/locks/a", "")
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
	w.pass(30*time.Second, "/locks/short", "/ever")
	w.pass(10*time.Minute-30*time.Second, "/locks/long", "/locks/usual")
}

// Nobody keeps a lock beyond its age by renewing another one below it.
func TestTheAgeOfALockEndsItsMembers(t *testing.T) {
	w := newWorld(t)
	w.holder("a", "/locks/g")
	b := w.open("b")
	w.clock.Advance(9 * time.Minute)
	for _, n := range []lock.Name{"/locks/g/m", "/locks/g/m/x", "/locks/g/y/z"} {
		w.acquire(b, n)
	}
	w.clock.Advance(time.Minute)
	_, err := b.Renew(ctx, "/locks/g/m")
	w.ok(err)
	if ended := w.Expire(ctx); ended != 4 || len(w.All()) != 0 {
		t.Errorf("ended %d", ended)
	}
	wantText(t, w.release(b, "/locks/g/m", lock.ErrNotHeld), "taken away 0s ago: with its group, older than 10m0s")
	w.empty()
}

func TestExpireTakesOverWhatItRunsInto(t *testing.T) {
	w := newWorld(t)
	w.holder("a", "/locks/a")
	w.clock.Advance(10 * time.Minute)
	w.store.Outside("/locks/a", lock.CauseHostMade, w.host())
	w.expires("/locks/a") // as the host has it; the newer hold is the host's, and young
	w.holds("/locks/a", lock.HostAccount)
}

// So is one that its end cuts off.
func TestCommandUnderWayIsALastingSignOfLife(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/x", MaxIdle: 30 * time.Second})
	s := w.holder("a", "/x")
	s.Begin()
	w.pass(time.Hour)
	s.Begin()
	s.End()
	w.pass(time.Hour)
	s.End()
	w.pass(30*time.Second - 1)
	s.Begin()
	w.pass(time.Hour)
	w.end(s)
	w.pass(30*time.Second - 1)
	w.pass(1, "/x")
}

// An idle lock waits for its members, which are a sign of use.
func TestIdleLockWaitsForItsMembers(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/locks/*", MaxIdle: 10 * time.Minute, Contention: &anyone}, lock.Rule{Match: "/locks/**", MaxAge: 10 * time.Minute})
	w.holder("a", "/locks/g")
	w.clock.Advance(5 * time.Minute)
	b := w.holder("b", "/locks/g/m")
	w.pass(5 * time.Minute)
	w.holds("/locks/g", "a")
	w.looksIn(5 * time.Minute) // not at what waits
	w.hurries(func() { w.release(b, "/locks/g/m", nil) })
	w.expires("/locks/g")
}

// A member that cannot end with its group is tried again, and keeps the group until then.
func TestAMemberThatCannotEndKeepsItsGroupForASecond(t *testing.T) {
	w := newWorld(t)
	a, b := w.holder("a", "/locks/g"), w.open("b")
	w.clock.Advance(9 * time.Minute)
	m := w.acquire(b, "/locks/g/m")
	w.ok(publish(b, "/locks/g/m", m.Token, func() error {
		w.pass(time.Minute)
		return nil
	}))
	w.looksIn(time.Second)
	w.pass(time.Second, "/locks/g/m", "/locks/g")

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

func TestLockThatCannotEndIsLoggedOnceAndTriedLater(t *testing.T) {
	w := newWorld(t)
	s := w.holder("a", "/locks/a", "/locks/b")
	tries := 0
	w.store.Inject(func(c lock.Change) error {
		if c.Name == "/locks/a" && c.Cause == lock.CauseExpire {
			tries++
			return lock.ErrNotEmpty
		}
		return nil
	})
	w.pass(10*time.Minute, "/locks/b")
	for i, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		w.looksIn(wait * time.Second)
		w.pass(wait*time.Second - 1)
		if tries != i+1 {
			t.Fatal("tried too early")
		}
		w.pass(1)
	}
	if n := w.log.count("lock not ended though its time is over"); n != 1 || tries != 10 {
		t.Errorf("tried %d times, logged %d times", tries, n)
	}
	for _, anew := range []func() error{ // with a renewal, or another hold, all begins anew
		func() error { _, err := s.Renew(ctx, "/locks/a"); return err },
		func() error { w.release(s, "/locks/a", nil); return acquireOf(s, "/locks/a")() },
	} {
		w.ok(anew())
		w.pass(10 * time.Minute)
		w.looksIn(time.Second)
	}
	if n := w.log.count("lock not ended though its time is over"); n != 3 {
		t.Errorf("logged %d times", n)
	}
}

func TestExpireDoesNotWaitForPublications(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	hold := w.acquire(s, "/locks/a")
	w.acquire(s, "/locks/b")
	w.hurries(func() {
		w.ok(publish(s, "/locks/a", hold.Token, func() error {
			w.pass(10*time.Minute, "/locks/b")
			w.holds("/locks/a", "a")
			w.NextExpiry()
			return nil
		}))
	})
	if err := publish(s, "/locks/a", hold.Token, nothing); !errors.As(err, new(*lock.ProtectedError)) {
		t.Errorf("one more may publish when its time is over: %v", err)
	}
	renew := func() error { _, err := s.Renew(ctx, "/locks/a"); return err } // does not wait for publications, either
	w.ok(renew())
	w.ok(publish(s, "/locks/a", hold.Token, renew))
	w.expires()
}
