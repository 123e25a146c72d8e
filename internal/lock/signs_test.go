package lock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// idling is a rule whose locks end half a minute after the last sign of life.
func idling(release lock.ReleasePolicy) lock.Rule {
	return lock.Rule{Match: "/x/*", MaxAge: 24 * time.Hour, MaxIdle: 30 * time.Second, Release: release}
}

func TestWorkOfItsJobKeepsTheLockOfAnEndedSession(t *testing.T) {
	for _, test := range []struct {
		who   lock.Owner
		keeps bool
	}{
		{lock.Owner{Account: "a", Address: "192.0.2.1"}, true},
		{lock.Owner{Account: "a", Address: "::ffff:192.0.2.1"}, true},
		{lock.Owner{Account: "a", Address: "192.0.2.2"}, false},
		{lock.Owner{Account: "a", Address: "192.0.2.2", Nonce: "job"}, true},
		{lock.Owner{Account: "b", Address: "192.0.2.1", Nonce: "job"}, false},
	} {
		for _, policy := range []lock.ReleasePolicy{lock.ReleaseAddress, lock.ReleaseUser, lock.ReleaseSession, lock.ReleaseAnyone} {
			t.Run(fmt.Sprint(test.who, test.who.Nonce, policy), func(t *testing.T) {
				w := newWorld(t, idling(policy))
				holder, s := w.job("a", "job"), w.Open(test.who)
				w.acquire(holder, "/x/1")
				w.acquire(holder, "/x/2")
				w.end(holder)
				for range 3 {
					w.clock.Advance(30*time.Second - 1)
					s.Work()
					if !test.keeps {
						w.pass(1, "/x/1", "/x/2")
						return
					}
					w.expires()
				}
				w.pass(30*time.Second - 1)
				if causes := w.pass(1, "/x/1", "/x/2"); causes[0] != lock.CauseIdle {
					t.Errorf("%q", causes)
				}
			})
		}
	}
}

func TestOnlyWorkOfAnotherSessionCountsAndOnlyAfterTheEnd(t *testing.T) {
	w := newWorld(t, idling(lock.ReleaseAddress))
	for _, test := range []struct {
		name  string
		lives bool // the holder's session
		sign  func(holder, other *lock.Session)
		keeps bool
	}{
		{"its own work", true, func(holder, _ *lock.Session) { holder.Work() }, true},
		{"its own touch", true, func(holder, _ *lock.Session) { holder.Touch() }, true},
		{"work while the holder lives", true, func(_, other *lock.Session) { other.Work() }, false},
		{"touch", false, func(_, other *lock.Session) { other.Touch() }, false},
		{"command", false, func(_, other *lock.Session) { other.Begin(); other.End() }, false},
		{"MKD", false, func(_, other *lock.Session) { w.refused(other, "/x/1", lock.ErrHeld) }, false},
		{"look", false, func(_, other *lock.Session) { _, _ = other.SpeaksFor("/x/1"); other.HoldsUntil(); w.Get("/x/1") }, false},
	} {
		holder, other := w.holder("a", "/x/1"), w.open("a")
		if !test.lives {
			w.end(holder)
		}
		w.clock.Advance(20 * time.Second)
		test.sign(holder, other)
		w.clock.Advance(10 * time.Second)
		if kept := w.Expire(ctx) == 0; kept != test.keeps {
			t.Errorf("%s keeps it: %v", test.name, kept)
		}
		w.clock.Advance(20 * time.Second)
		w.Expire(ctx)
		w.holds("/x/1", "")
	}
}

func TestWorkOfASessionThatLostTheLockKeepsNoNewerOne(t *testing.T) {
	w := newWorld(t, idling(lock.ReleaseAddress))
	late := w.holder("a", "/x/1")
	w.pass(30*time.Second, "/x/1")
	next := w.holder("a", "/x/1", "/x/2")
	w.end(next)
	w.clock.Advance(20 * time.Second)
	late.Work()
	w.pass(10*time.Second, "/x/1")
	w.holds("/x/2", "a")
}
