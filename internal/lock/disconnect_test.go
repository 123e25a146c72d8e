package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
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
	s := w.holder("a", "/now/x", "/grace/x", "/keep/x", "/now/g", "/now/g/own")
	member := w.holder("b", "/now/g/m")
	w.end(s)
	w.holds("/now/x", "")
	w.holds("/now/g/own", "")
	for _, n := range []lock.Name{"/now/g", "/grace/x", "/keep/x"} { // the first one is left to its other member
		w.holds(n, "a")
	}
	if w.stored("/grace/x").Holds[0].Ended != w.clock.Now() {
		t.Error("the end is not in the store")
	}
	if w.stored("/keep/x").Revision != 3 {
		t.Error("a lock that is kept was written")
	}
	w.release(member, "/now/g/m", nil)
	w.expires("/now/g")
	w.pass(30*time.Second - 1)
	if causes := w.pass(1, "/grace/x"); causes[0] != lock.CauseDisconnect {
		t.Errorf("%q", causes)
	}
	w.holds("/keep/x", "a")
}

// Only MKD by the same job takes it up.
func TestRenewDoesNotTakeUpAHoldInItsGrace(t *testing.T) {
	w := newWorld(t, leases()...)
	for _, n := range []lock.Name{"/grace/renewed", "/grace/adopted"} {
		s := w.job("a", "job")
		w.acquire(s, n)
		w.end(s)
	}
	s := w.job("a", "job")
	_, err := s.Renew(ctx, "/grace/renewed")
	w.ok(err)
	if hold := w.acquire(s, "/grace/adopted"); hold.Ended != (lock.Instant{}) {
		t.Errorf("%+v", hold)
	}
	w.pass(30*time.Second, "/grace/renewed")
	w.end(s)
	w.pass(30*time.Second, "/grace/adopted")
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
	s := w.holder("a", "/now/x")
	w.store.Inject(func(lock.Change) error { return lock.ErrNotEmpty })
	if err := s.Close(ctx); !errors.Is(err, lock.ErrNotEmpty) {
		t.Error(err)
	}
	w.store.Inject(nil)
	w.pass(time.Second, "/now/x")
}

func TestAgesGoByWallTimeWhereBootsHaveNoID(t *testing.T) {
	w := newWorld(t)
	w.clock.Reboot("", 0)
	w.clock.Advance(time.Hour)
	w.holder("a", "/locks/a")
	w.clock.Advance(4 * time.Minute)
	w.clock.Reboot("", time.Minute)
	w.start()
	w.pass(5*time.Minute - 1)
	w.pass(1, "/locks/a")
}

// TestASessionShortensTheLifeOfItsLocks is about SetDisconnect, under each rule, and over a reload and a restart.
func TestASessionShortensTheLifeOfItsLocks(t *testing.T) {
	for _, during := range []string{"", "a reload", "a restart"} {
		t.Run(during, func(t *testing.T) {
			w := newWorld(t, leases()...)
			s := w.holder("a", "/keep/before")
			s.SetDisconnect(10 * time.Second)
			for _, n := range []lock.Name{"/now/x", "/grace/x", "/keep/x"} {
				w.acquire(s, n)
			}
			switch during {
			case "a reload":
				w.reload(append(leases(), lock.Rule{Match: "/none"})...)
			case "a restart":
				w.start(leases()...)
			}
			w.end(s)
			w.holds("/now/x", "") // its rule is shorter still
			w.holds("/keep/x", "a")
			w.pass(10*time.Second - 1)
			w.pass(1, "/grace/x", "/keep/x")
			w.holds("/keep/before", "a")
		})
	}
}

func TestRestartMakesNoAgeLonger(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	s.SetAge(time.Minute)
	w.acquire(s, "/locks/asked")
	s.SetAge(0)
	w.acquire(s, "/locks/usual")
	w.start(lock.Rule{Match: "/locks/**", MaxAge: 5 * time.Minute})
	w.pass(time.Minute, "/locks/asked")
	w.pass(4*time.Minute, "/locks/usual") // a shorter rule counts
}

func TestIdleTimeCountsFromTheRestart(t *testing.T) {
	rule := lock.Rule{Match: "/*", MaxIdle: time.Minute}
	w := newWorld(t, rule)
	w.holder("a", "/x")
	w.store.Outside("/y", lock.CauseHostMade, w.host())
	w.clock.Advance(2 * time.Minute)
	w.start(rule)
	w.pass(time.Minute - 1)
	w.pass(1, "/x", "/y")
}

// It is the end of every connection.
func TestARestart(t *testing.T) {
	w := newWorld(t, leases()...)
	s := w.holder("a", "/now/g", "/now/g/m", "/keep/g", "/keep/g/m", "/grace/x")
	w.clock.Advance(20 * time.Second)
	w.start(leases()...)
	w.holds("/now/g", "")
	w.holds("/now/g/m", "")
	w.pass(20 * time.Second)
	w.start(leases()...) // its end is known already: no second grace
	w.pass(10*time.Second, "/grace/x")
	next := w.open("a")
	if next.ID() == 0 || next.ID() == s.ID() {
		t.Errorf("session ids %d and %d", s.ID(), next.ID())
	}
	w.release(next, "/keep/g", lock.ErrMembers)
	w.release(next, "/keep/g/m", nil)
	w.release(next, "/keep/g", nil)
}

func TestStoreThatCannotBeReadStopsTheStart(t *testing.T) {
	w := newWorld(t)
	w.holder("a", "/locks/a")
	ended, end := context.WithCancel(ctx)
	end()
	for _, o := range []lock.Options{{Store: w.store, Clock: w.clock, Rules: rulesOf(t)}, {}} {
		if _, err := lock.NewTable(ended, o); err == nil {
			t.Error("no error")
		}
	}
}
