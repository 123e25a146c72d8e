package lock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// unknown is a world whose store loses its answers, and tells later what became of a change.
type unknown struct {
	*world
	store *blindable
}

func newUnknown(t *testing.T, rules ...lock.Rule) *unknown {
	u := &unknown{world: &world{t: t, clock: locktest.NewFakeClock()}, store: &blindable{Memory: locktest.NewMemory()}}
	u.world.store = u.store.Memory
	u.over = u.store
	u.start(rules...)
	return u
}

// loses has the store lose the answer to what do does, whether it makes the change or not, and not tell what it has until tells.
func (u *unknown) loses(made bool, do func() error) {
	u.t.Helper()
	lost := func(lock.Change) error { return lock.ErrUncertain }
	u.store.blind = true
	if made {
		u.store.InjectAfter(lost)
	} else {
		u.store.Inject(lost)
	}
	if err := do(); !errors.Is(err, lock.ErrUncertain) {
		u.t.Errorf("got %v", err)
	}
	u.store.Inject(nil)
	u.store.InjectAfter(nil)
}

// tells has the table be told what the store has.
func (u *unknown) tells(n lock.Name, cause lock.Cause) {
	u.store.blind = false
	lock.TakeOver(u.Table, u.store.Tell(n, cause))
}

func acquireOf(s *lock.Session, n lock.Name) func() error {
	return func() error {
		_, err := s.Acquire(ctx, n)
		return err
	}
}

func delayed() lock.Rule {
	return lock.Rule{Match: "/locks/**", MaxAge: 10 * time.Minute, LockDelay: time.Minute, Contention: &usual}
}

func TestAGrantThatWasNotMadeVanishes(t *testing.T) {
	u := newUnknown(t, delayed())
	s := u.open("a")
	var ends []lock.Observation
	u.observe = func(o lock.Observation) {
		if o.Ended {
			ends = append(ends, o)
		}
	}
	u.loses(false, acquireOf(s, "/locks/a"))
	_, err := u.open("b").Acquire(ctx, "/locks/a")
	wantSuspended(t, err)
	if _, err := publishIn(s, "/locks/a"); err == nil {
		t.Error("a file was published")
	}
	u.tells("/locks/a", lock.CauseUndeliver)
	u.acquire(u.open("b"), "/locks/a") // there is no lock_delay
	u.holds("/locks/a", "b")
	if lost, ok := lock.Lost(s, "/locks/a"); ok {
		t.Errorf("counts as lost: %v", &lost)
	}
	if len(ends) != 1 || ends[0].Cause != lock.CauseUndo || ends[0].Hold.Owner.Account != "a" {
		t.Errorf("told of %+v", ends)
	}
}

func TestAGrantThatWasMadeGetsItsToken(t *testing.T) {
	u := newUnknown(t, delayed())
	s := u.open("a")
	u.loses(true, acquireOf(s, "/locks/a"))
	if hold, err := s.SpeaksFor("/locks/a"); err != nil || hold.Token != 0 {
		t.Errorf("before: %+v, %v", hold, err)
	}
	u.tells("/locks/a", lock.CauseAcquire)
	hold, err := s.SpeaksFor("/locks/a")
	if err != nil || hold.Token == 0 || hold.Token != u.stored("/locks/a").Holds[0].Token {
		t.Errorf("%+v, %v", hold, err)
	}
	if err := publish(s, "/locks/a", hold.Token, func() error { return nil }); err != nil {
		t.Error(err)
	}
	u.release(s, "/locks/a", nil)
	u.holds("/locks/a", "")
}

func TestAnAdoptionOfUnknownOutcome(t *testing.T) {
	for _, made := range []bool{false, true} {
		u := newUnknown(t, delayed())
		s, next := u.job("a", "job"), u.job("a", "job")
		first := u.acquire(s, "/locks/a")
		u.loses(made, acquireOf(next, "/locks/a"))
		u.tells("/locks/a", lock.CauseAdopt)
		status, _ := u.Get("/locks/a")
		if !slices.EqualFunc(status.Holds, u.stored("/locks/a").Holds, func(a, b lock.Hold) bool { return a.Token == b.Token }) {
			t.Errorf("made %v: the table has %+v, the store %+v", made, status.Holds, u.stored("/locks/a").Holds)
		}
		if s.Acquired("/locks/a") == made || next.Acquired("/locks/a") != made || !made && status.Holds[0].Token != first.Token {
			t.Errorf("made %v: %+v", made, status.Holds)
		}
		u.release(next, "/locks/a", nil)
		u.holds("/locks/a", "")
	}
}

func TestAReleaseOfUnknownOutcome(t *testing.T) {
	for _, made := range []bool{false, true} {
		u := newUnknown(t, delayed())
		s := u.open("a")
		u.acquire(s, "/locks/a")
		u.loses(made, func() error { return s.Release(ctx, "/locks/a") })
		_, err := u.open("b").Acquire(ctx, "/locks/a")
		wantSuspended(t, err)
		u.tells("/locks/a", lock.CauseRelease)
		if made {
			u.holds("/locks/a", "")
			u.acquire(u.open("b"), "/locks/a")
			continue
		}
		u.holds("/locks/a", "a")
		u.release(s, "/locks/a", nil)
	}
}

func TestAnEndByTimeOfUnknownOutcome(t *testing.T) {
	for _, made := range []bool{false, true} {
		u := newUnknown(t, delayed())
		s := u.open("a")
		u.acquire(s, "/locks/a")
		u.clock.Advance(10 * time.Minute)
		u.loses(made, func() error {
			u.expires()
			return lock.ErrUncertain
		})
		u.tells("/locks/a", lock.CauseExpire)
		if !made {
			u.clock.Advance(time.Second)
			u.expires("/locks/a")
		}
		u.holds("/locks/a", "")
		wantText(t, u.release(s, "/locks/a", lock.ErrNotHeld), "taken away 0s ago: older than 10m0s")
		var kept *lock.DelayedError
		if err := u.refused(s, "/locks/a", lock.ErrHeld); !errors.As(err, &kept) {
			t.Error(err)
		}
	}
}

func TestARenewalOfUnknownOutcome(t *testing.T) {
	for _, made := range []bool{false, true} {
		u := newUnknown(t, delayed())
		s := u.open("a")
		token := u.acquire(s, "/locks/a").Token
		u.clock.Advance(5 * time.Minute)
		u.loses(made, func() error {
			_, err := s.Renew(ctx, "/locks/a")
			return err
		})
		u.tells("/locks/a", lock.CauseRenew)
		left := 5 * time.Minute
		if made {
			left = 10 * time.Minute
		}
		if status, _ := u.Get("/locks/a"); status.Remaining != left || status.Holds[0].Token != token {
			t.Errorf("made %v: it ends in %v", made, status.Remaining)
		}
		u.release(s, "/locks/a", nil)
	}
}

// What the store found out comes when the lock has gone on.
func TestLateNewsOfAnUnknownOutcomeChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		s := w.open("a")
		w.store.InjectAfter(func(lock.Change) error { return lock.ErrUncertain })
		w.refused(s, "/locks/a", lock.ErrUncertain) // the store tells at once that it was made
		w.store.InjectAfter(nil)
		late := w.store.Tell("/locks/a", lock.CauseAcquire)
		w.release(s, "/locks/a", nil)
		lock.TakeOver(w.Table, late)
		w.holds("/locks/a", "")
		gone := w.store.Tell("/locks/a", lock.CauseRelease)
		w.acquire(w.open("b"), "/locks/a")
		lock.TakeOver(w.Table, gone)
		w.holds("/locks/a", "b")
	})
}

// A hold that vanished without a word is lost, but nobody took it away.
func TestAConflictThatNobodyExplains(t *testing.T) {
	u := newUnknown(t, delayed())
	s := u.open("a")
	u.acquire(s, "/locks/a")
	u.store.Outside("/locks/a", "")
	if _, err := s.Renew(ctx, "/locks/a"); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("renewal: %v", err)
	} else {
		wantText(t, err, "taken away 0s ago: the store of the locks does not have it any more, and nobody knows why")
	}
	if n := u.log.count("the store has something else of a lock than this server knew"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	u.acquire(u.open("b"), "/locks/a") // no lock_delay
	if n := u.log.count("the store has something else"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// One change hangs in the store; what concerns other names does not wait for it.
func TestASlowStoreHoldsUpOneNameOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t)
		s := w.open("a")
		w.acquire(s, "/locks/old")
		w.store.Inject(func(c lock.Change) error {
			time.Sleep(700 * time.Millisecond)
			return nil
		})
		began := time.Now()
		var all []chan error
		for _, n := range []lock.Name{"/locks/a", "/locks/b", "/locks/c"} {
			done := make(chan error, 1)
			go func() { done <- acquireOf(s, n)() }()
			all = append(all, done)
		}
		synctest.Wait()
		if _, ok := w.Get("/locks/old"); !ok {
			t.Error("nothing can be seen")
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := w.open("b").Acquire(ended, "/locks/a"); !errors.Is(err, context.Canceled) {
			t.Errorf("one that gave up: %v", err)
		}
		for _, done := range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != 700*time.Millisecond {
			t.Errorf("three changes took %v", took)
		}
	})
}

// Whoever wants a name of which nobody knows who holds it has the store asked, and need not wait until it tells by itself.
func TestWhoWantsANameHasItCleared(t *testing.T) {
	for _, made := range []bool{false, true} {
		for _, test := range []struct {
			name string
			do   func(u *unknown, s *lock.Session) error
			want error // if the grant was made
			free error // if it was not
		}{
			{"others want it", func(u *unknown, s *lock.Session) error {
				_, err := u.open("b").Acquire(ctx, "/locks/a")
				return err
			}, lock.ErrHeld, nil},
			{"its holder gives it back", func(u *unknown, s *lock.Session) error { return s.Release(ctx, "/locks/a") }, nil, lock.ErrNotHeld},
			{"its holder renews it", func(u *unknown, s *lock.Session) error {
				_, err := s.Renew(ctx, "/locks/a")
				return err
			}, nil, lock.ErrNotHeld},
		} {
			u := newUnknown(t, delayed())
			s := u.open("a")
			u.loses(made, acquireOf(s, "/locks/a"))
			wantSuspended(t, test.do(u, s))
			u.store.blind = false
			want := test.free
			if made {
				want = test.want
			}
			if err := test.do(u, s); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%s, made %v: %v, want %v", test.name, made, err, want)
			}
			if n := u.log.count("has something else"); n != 0 {
				t.Errorf("logged %d times", n)
			}
		}
	}
}

// A client that tries again and again would meet its own hold for ever.
func TestTheNextTryGetsAGrantOfWhichItsClientWasNotTold(t *testing.T) {
	for _, test := range []struct {
		name  string
		grant func(u *unknown, s *lock.Session)
	}{
		{"the store did not tell", func(u *unknown, s *lock.Session) {
			u.loses(true, acquireOf(s, "/locks/a"))
			u.store.blind = false
		}},
		{"the store told late", func(u *unknown, s *lock.Session) {
			u.loses(true, acquireOf(s, "/locks/a"))
			u.tells("/locks/a", lock.CauseAcquire)
		}},
		{"the store was asked", func(u *unknown, s *lock.Session) {
			u.store.InjectAfter(func(lock.Change) error { return lock.ErrUncertain })
			u.refused(s, "/locks/a", lock.ErrUncertain)
			u.store.InjectAfter(nil)
		}},
		{"another server may be the active one", func(u *unknown, s *lock.Session) {
			u.store.InjectAfter(func(lock.Change) error {
				u.suspend()
				return nil
			})
			u.refused(s, "/locks/a", lock.ErrUncertain)
			u.store.InjectAfter(nil)
			u.resume()
		}},
	} {
		u := newUnknown(t, delayed())
		s := u.open("a")
		test.grant(u, s)
		u.refused(u.open("b"), "/locks/a", lock.ErrHeld)
		if hold := u.acquire(s, "/locks/a"); hold.Token != u.stored("/locks/a").Holds[0].Token {
			t.Errorf("%s: %+v", test.name, hold)
		}
		u.refused(s, "/locks/a", lock.ErrHeld) // it knows by now
		u.release(s, "/locks/a", nil)
		u.holds("/locks/a", "")
	}
}
