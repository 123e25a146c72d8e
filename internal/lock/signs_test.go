package lock_test

import (
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
		who   string
		open  func(w *world) *lock.Session
		keeps bool
	}{
		{"the same address", func(w *world) *lock.Session { return w.open("a") }, true},
		{"the same address, mapped", func(w *world) *lock.Session { return w.openAt("a", "::ffff:192.0.2.1") }, true},
		{"another address", func(w *world) *lock.Session { return w.openAt("a", "192.0.2.2") }, false},
		{"the same nonce at another address", func(w *world) *lock.Session {
			s := w.openAt("a", "192.0.2.2")
			if err := s.SetNonce("job"); err != nil {
				t.Fatal(err)
			}
			return s
		}, true},
		{"another account", func(w *world) *lock.Session { return w.job("b", "job") }, false},
	} {
		for _, policy := range []lock.ReleasePolicy{lock.ReleaseAddress, lock.ReleaseUser, lock.ReleaseSession, lock.ReleaseAnyone} {
			t.Run(test.who+", "+string(policy), func(t *testing.T) {
				w := newWorld(t, idling(policy))
				holder := w.job("a", "job")
				w.acquire(holder, "/x/1")
				w.acquire(holder, "/x/2")
				s := test.open(w)
				w.end(holder)
				for range 10 {
					w.clock.Advance(30*time.Second - 1)
					s.Work()
					if w.expires(); !test.keeps {
						break
					}
				}
				w.clock.Advance(1)
				if test.keeps {
					w.expires()
					w.clock.Advance(30*time.Second - 2)
					w.expires()
					w.clock.Advance(1)
				}
				if ended := w.Expire(ctx); ended != 2 || w.log.count("cause=idle") != 2 {
					t.Errorf("%d", ended)
				}
			})
		}
	}
}

func TestWorkIsASignOfLifeOfTheOwnSession(t *testing.T) {
	w := newWorld(t, idling(lock.ReleaseAddress))
	s := w.open("a")
	w.acquire(s, "/x/1")
	w.clock.Advance(20 * time.Second)
	s.Work()
	w.clock.Advance(20 * time.Second)
	w.expires()
	w.clock.Advance(10 * time.Second)
	w.expires("/x/1")
}

func TestOnlyWorkOfAnotherSessionCountsAndOnlyAfterTheEnd(t *testing.T) {
	w := newWorld(t, idling(lock.ReleaseAddress))
	for name, sign := range map[string]func(s *lock.Session){
		"touch":   (*lock.Session).Touch,
		"command": func(s *lock.Session) { s.Begin(); s.End() },
		"MKD":     func(s *lock.Session) { w.refused(s, "/x/1", lock.ErrHeld) },
		"look":    func(s *lock.Session) { _, _ = s.SpeaksFor("/x/1"); s.HoldsUntil(); w.Get("/x/1") },
	} {
		holder, s := w.open("a"), w.open("a")
		w.acquire(holder, "/x/1")
		w.end(holder)
		w.clock.Advance(20 * time.Second)
		s.Begin()
		sign(s)
		w.clock.Advance(10 * time.Second)
		if ended := w.Expire(ctx); ended != 1 {
			t.Errorf("%s: %d", name, ended)
		}
		s.End()
	}
	holder, s := w.open("a"), w.open("a")
	w.acquire(holder, "/x/1")
	w.clock.Advance(20 * time.Second)
	s.Work()
	w.clock.Advance(10 * time.Second)
	w.expires("/x/1")
}

func TestWorkOfASessionThatLostTheLockKeepsNoNewerOne(t *testing.T) {
	w := newWorld(t, idling(lock.ReleaseAddress))
	late := w.open("a")
	w.acquire(late, "/x/1")
	w.clock.Advance(30 * time.Second)
	w.expires("/x/1")
	next := w.open("a")
	w.acquire(next, "/x/1")
	w.acquire(next, "/x/2")
	w.end(next)
	w.clock.Advance(20 * time.Second)
	late.Work()
	w.clock.Advance(10 * time.Second)
	w.expires("/x/1")
	w.holds("/x/2", "a")
}
