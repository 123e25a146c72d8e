package lock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// leases are rules whose locks go with the connection, at once or after a grace.
func leases() []lock.Rule {
	return []lock.Rule{
		{Match: "/now/**", MaxAge: time.Hour, OnDisconnect: lock.ReleaseOnDisconnect, Contention: &anyone},
		{Match: "/grace/**", MaxAge: time.Hour, OnDisconnect: lock.ReleaseOnDisconnect, Grace: 30 * time.Second},
		{Match: "/keep/**", MaxAge: time.Hour},
	}
}

func TestEndOfTheConnectionEndsWhatItsRuleSays(t *testing.T) {
	w := newWorld(t, leases()...)
	s := w.open("a")
	for _, n := range []lock.Name{"/now/x", "/grace/x", "/keep/x"} {
		w.acquire(s, n)
	}
	w.end(s)
	w.holds("/now/x", "")
	w.holds("/grace/x", "a")
	w.holds("/keep/x", "a")
	if w.stored("/grace/x").Holds[0].Ended != w.clock.Now() {
		t.Error("the end is not in the store")
	}
	if w.stored("/keep/x").Revision != 3 {
		t.Error("a lock that is kept was written")
	}
	if w.log.count("lock=/now/x cause=disconnect") != 1 {
		t.Errorf("log: %q", w.log.lines)
	}
	w.clock.Advance(30*time.Second - 1)
	w.expires()
	w.clock.Advance(1)
	if ended := w.expires("/grace/x"); ended[0] != "disconnect" {
		t.Errorf("%+v", ended)
	}
	w.holds("/keep/x", "a")
}

func TestDuringTheGraceOnlyTheSameNonceTakesItUp(t *testing.T) {
	w := newWorld(t, leases()...)
	s := w.job("a", "job")
	old := w.acquire(s, "/grace/x")
	w.end(s)
	w.clock.Advance(29 * time.Second)
	w.refused(w.open("a"), "/grace/x", lock.ErrHeld)
	w.refused(w.job("b", "job"), "/grace/x", lock.ErrHeld)
	again := w.job("a", "job")
	if hold := w.acquire(again, "/grace/x"); hold.Token <= old.Token || hold.Ended != (lock.Instant{}) {
		t.Errorf("%+v", hold)
	}
	w.clock.Advance(time.Minute)
	w.expires()
	w.end(again)
	w.clock.Advance(30 * time.Second)
	w.expires("/grace/x")
}

func TestRenewDoesNotTakeUpAHoldInItsGrace(t *testing.T) {
	w := newWorld(t, leases()...)
	s := w.job("a", "job")
	w.acquire(s, "/grace/x")
	w.end(s)
	if _, err := w.job("a", "job").Renew(ctx, "/grace/x"); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(30 * time.Second)
	w.expires("/grace/x")
}

func TestConnectionThatEndsHoldingAGroupLeavesItToItsMembers(t *testing.T) {
	w := newWorld(t, leases()...)
	a, b := w.open("a"), w.open("b")
	w.acquire(a, "/now/g")
	w.acquire(a, "/now/g/own")
	w.acquire(b, "/now/g/m")
	w.end(a)
	w.holds("/now/g/own", "")
	w.holds("/now/g", "a")
	w.release(b, "/now/g/m", nil)
	w.expires("/now/g")
}

func TestHoldGrantedWhileItsConnectionEndsDoesNotOutliveIt(t *testing.T) {
	w := newWorld(t, leases()...)
	s := w.open("a")
	w.store.InjectAfter(func(c lock.Change) error {
		if c.Cause == lock.CauseAcquire {
			w.end(s)
		}
		return nil
	})
	w.acquire(s, "/now/x")
	w.expires("/now/x")
}

func TestDisconnectThatTheStoreRefusesIsTriedAgain(t *testing.T) {
	w := newWorld(t, leases()...)
	s := w.open("a")
	w.acquire(s, "/now/x")
	w.store.Inject(func(lock.Change) error { return lock.ErrNotEmpty })
	if err := s.Close(ctx); !errors.Is(err, lock.ErrNotEmpty) {
		t.Error(err)
	}
	w.store.Inject(nil)
	w.clock.Advance(time.Second)
	w.expires("/now/x")
}

func TestAgesGoOnAcrossARestart(t *testing.T) {
	for _, test := range []struct {
		name string
		stop func(c *locktest.FakeClock)
		left time.Duration // until the lock of 10 minutes ends, of which 4 were gone
	}{
		{"in the same boot", func(c *locktest.FakeClock) { c.Advance(time.Minute) }, 5 * time.Minute},
		{"in the same boot, wall clock set back", func(c *locktest.FakeClock) { c.Advance(time.Minute); c.StepWall(-24 * time.Hour) }, 5 * time.Minute},
		{"in the same boot, wall clock set forward", func(c *locktest.FakeClock) { c.Advance(time.Minute); c.StepWall(24 * time.Hour) }, 5 * time.Minute},
		{"in another boot", func(c *locktest.FakeClock) { c.Reboot("boot-2", time.Minute) }, 5 * time.Minute},
		{"in another boot, wall clock gone back", func(c *locktest.FakeClock) { c.Reboot("boot-2", -time.Hour) }, 10 * time.Minute},
		{"in another boot that came late", func(c *locktest.FakeClock) { c.Reboot("boot-2", time.Hour) }, 0},
		{"where boots cannot be told apart", func(c *locktest.FakeClock) { c.Reboot("", time.Minute) }, 5 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			s := w.open("a")
			before := w.acquire(s, "/locks/a")
			w.clock.Advance(4 * time.Minute)
			test.stop(w.clock)
			w.start()
			if test.left == 0 {
				w.holds("/locks/a", "")
				return
			}
			w.holds("/locks/a", "a")
			status, _ := w.Get("/locks/a")
			if status.Remaining != test.left || status.Holds[0].Token != before.Token {
				t.Errorf("%v left of %+v", status.Remaining, status.Holds[0])
			}
			if !status.Holds[0].Acquired.Wall.Equal(before.Acquired.Wall) {
				t.Error("the moment that people read has changed")
			}
			w.clock.Advance(test.left - 1)
			w.expires()
			w.clock.Advance(1)
			w.expires("/locks/a")
		})
	}
}

func TestAgesGoByWallTimeWhereBootsHaveNoID(t *testing.T) {
	w := newWorld(t)
	w.clock.Reboot("", 0)
	w.clock.Advance(time.Hour)
	w.acquire(w.open("a"), "/locks/a")
	w.clock.Advance(4 * time.Minute)
	w.clock.Reboot("", time.Minute)
	w.start()
	w.clock.Advance(5*time.Minute - 1)
	w.expires()
	w.clock.Advance(1)
	w.expires("/locks/a")
}

// TestASessionShortensTheLifeOfItsLocks is about SetDisconnect, under each rule, and over a reload and a restart.
func TestASessionShortensTheLifeOfItsLocks(t *testing.T) {
	for name, during := range map[string]func(w *world){
		"":              func(*world) {},
		"over a reload": func(w *world) { w.reload(append(leases(), lock.Rule{Match: "/none"})...) },
	} {
		w := newWorld(t, leases()...)
		s := w.open("a")
		w.acquire(s, "/keep/before")
		s.SetDisconnect(10 * time.Second)
		for _, n := range []lock.Name{"/now/x", "/grace/x", "/keep/x"} {
			w.acquire(s, n)
		}
		during(w)
		w.end(s)
		w.holds("/now/x", "") // its rule is shorter still
		w.holds("/keep/x", "a")
		w.clock.Advance(10*time.Second - 1)
		w.expires()
		w.clock.Advance(1)
		if ended := w.expires("/grace/x", "/keep/x"); ended[0] != "disconnect" {
			t.Errorf("%s: %+v", name, ended)
		}
		w.holds("/keep/before", "a")
	}
	w := newWorld(t, leases()...)
	s := w.open("a")
	s.SetDisconnect(10 * time.Second)
	w.acquire(s, "/keep/x")
	w.start(leases()...)
	w.holds("/keep/x", "a")
	w.clock.Advance(10 * time.Second)
	w.expires("/keep/x")
}

func TestRestartMakesNoAgeLonger(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	s.SetAge(time.Minute)
	w.acquire(s, "/locks/asked")
	s.SetAge(0)
	w.acquire(s, "/locks/usual")
	w.start(lock.Rule{Match: "/locks/**", MaxAge: 5 * time.Minute})
	w.clock.Advance(time.Minute)
	w.expires("/locks/asked")
	w.clock.Advance(4 * time.Minute)
	w.expires("/locks/usual") // a shorter rule counts
}

func TestStopOfTheServerIsADisconnect(t *testing.T) {
	w := newWorld(t, leases()...)
	s := w.job("a", "job")
	for _, n := range []lock.Name{"/now/x", "/grace/x", "/grace/y", "/keep/x"} {
		w.acquire(s, n)
	}
	w.start(leases()...)
	w.holds("/now/x", "")
	w.holds("/grace/x", "a")
	w.holds("/keep/x", "a")
	w.clock.Advance(20 * time.Second)
	again := w.job("a", "job")
	w.acquire(again, "/grace/y")
	w.start(leases()...) // its end is known already: no second grace
	w.clock.Advance(10 * time.Second)
	w.expires("/grace/x")
	w.clock.Advance(20 * time.Second)
	w.expires("/grace/y")
	w.release(w.open("a"), "/keep/x", nil) // the session that acquired it has ended
}

func TestIdleTimeCountsFromTheRestart(t *testing.T) {
	rule := lock.Rule{Match: "/x", MaxIdle: time.Minute}
	w := newWorld(t, rule)
	w.acquire(w.open("a"), "/x")
	w.clock.Advance(2 * time.Minute)
	w.start(rule)
	w.holds("/x", "a")
	w.clock.Advance(time.Minute)
	w.expires("/x")
}

func TestGroupIsLoadedWithItsMembers(t *testing.T) {
	w := newWorld(t, leases()...)
	s := w.open("a")
	w.acquire(s, "/now/g")
	w.acquire(s, "/now/g/m")
	w.acquire(s, "/keep/g")
	w.acquire(s, "/keep/g/m")
	w.start(leases()...)
	w.holds("/now/g", "")
	w.holds("/now/g/m", "")
	next := w.open("a")
	w.release(next, "/keep/g", lock.ErrMembers)
	w.release(next, "/keep/g/m", nil)
	w.release(next, "/keep/g", nil)
}

func TestStoreThatCannotBeReadStopsTheStart(t *testing.T) {
	w := newWorld(t)
	w.acquire(w.open("a"), "/locks/a")
	stopped, stop := contextEnded()
	defer stop()
	if _, err := lock.NewTable(stopped, lock.Options{Store: w.store, Clock: w.clock, Rules: rulesOf(t)}); err == nil {
		t.Error("no error")
	}
	if _, err := lock.NewTable(ctx, lock.Options{}); err == nil {
		t.Error("no error without a store")
	}
}

func TestSessionIDsNeverRepeat(t *testing.T) {
	w := newWorld(t)
	seen := make(map[lock.SessionID]bool)
	for range 3 {
		for range 3 {
			id := w.open("a").ID()
			if id == 0 || seen[id] {
				t.Errorf("id %x", id)
			}
			seen[id] = true
		}
		w.start()
	}
}
