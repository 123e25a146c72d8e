package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// unknown is a world whose store loses its answers, and tells later what became of a change.
type unknown struct {
	*world
	store *blindable
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

func newUnknown(t *testing.T) *unknown {
	u := &unknown{world: &world{t: t, clock: locktest.NewFakeClock()}, store: &blindable{Memory: locktest.NewMemory()}}
	u.world.store = u.store.Memory
	u.over = u.store
	u.start(lock.Rule{Match: "/locks/**", MaxAge: 10 * time.Minute, LockDelay: time.Minute, Contention: &usual})
	return u
}

// loses has the store lose the answer to what do does, whether it makes the change or not.
func (u *unknown) loses(made bool, do func() error) {
	u.t.Helper()
	lost := func(lock.Change) error { return lock.ErrUncertain }
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

// The store tells when it is asked at once, or later by itself, or when somebody wants the name. Until then nobody gets the lock, and
// nobody writes by it. Then the table has what the store has.
func TestAChangeOfUnknownOutcome(t *testing.T) {
	const n = "/locks/a"
	for _, test := range []struct {
		name  string
		held  bool // by s, before
		cause lock.Cause
		do    func(u *unknown, s, next *lock.Session) error
		check func(u *unknown, s, next *lock.Session, made bool)
	}{
		{"grant", false, lock.CauseAcquire, func(_ *unknown, s, _ *lock.Session) error { return acquireOf(s, n)() },
			func(u *unknown, s, next *lock.Session, made bool) {
				if made {
					u.holds(n, "a")
					u.ok(publish(s, n, u.stored(n).Holds[0].Token, nothing))
					u.release(s, n, nil)
				} else {
					u.acquire(u.open("b"), n) // there is no lock_delay
				}
				if lost, ok := lock.Lost(s, n); ok || len(u.ends) != 0 {
					t.Errorf("counts as lost: %v, %+v", &lost, u.ends)
				}
			}},
		{"adoption", true, lock.CauseAdopt, func(_ *unknown, _, next *lock.Session) error { return acquireOf(next, n)() },
			func(u *unknown, s, next *lock.Session, made bool) {
				if s.Acquired(n) == made || next.Acquired(n) != made {
					u.t.Errorf("%+v", u.All())
				}
				u.release(next, n, nil)
			}},
		{"renewal", true, lock.CauseRenew, func(_ *unknown, s, _ *lock.Session) error { _, err := s.Renew(ctx, n); return err },
			func(u *unknown, s, _ *lock.Session, made bool) {
				if status, _ := u.Get(n); (status.Remaining == 10*time.Minute) != made {
					u.t.Errorf("it ends in %v", status.Remaining)
				}
				u.release(s, n, nil)
			}},
		{"release", true, lock.CauseRelease, func(_ *unknown, s, _ *lock.Session) error { return s.Release(ctx, n) },
			func(u *unknown, s, _ *lock.Session, made bool) {
				if !made {
					u.holds(n, "a")
					u.release(s, n, nil)
				}
				u.acquire(u.open("b"), n)
			}},
		{"end by time", true, lock.CauseExpire, func(u *unknown, _, _ *lock.Session) error {
			u.clock.Advance(5 * time.Minute)
			u.Expire(ctx)
			return lock.ErrUncertain
		}, func(u *unknown, s, _ *lock.Session, made bool) {
			if !made {
				u.pass(time.Second, n)
			}
			wantText(u.t, u.release(s, n, lock.ErrNotHeld), "taken away 0s ago: older than 10m0s")
			if err := u.refused(s, n, lock.ErrHeld); !errors.As(err, new(*lock.DelayedError)) {
				u.t.Error(err)
			}
		}},
	} {
		for _, made := range []bool{false, true} {
			for _, told := range []string{"at once", "by itself", "when somebody wants it"} {
				name := test.name + ", not made, told "
				if made {
					name = test.name + ", made, told "
				}
				t.Run(name+told, func(t *testing.T) {
					u := newUnknown(t)
					s, next, other := u.job("a", "job"), u.job("a", "job"), u.open("b")
					if test.held {
						u.acquire(s, n)
						u.clock.Advance(5 * time.Minute)
					}
					u.store.blind = told != "at once"
					u.loses(made, func() error { return test.do(u, s, next) })
					if u.store.blind {
						wantSuspended(t, acquireOf(other, n)())
						wantSuspended(t, s.Release(ctx, n))
						if err := s.Write(ctx, []lock.Write{{Path: n + "/f"}}, func([]lock.Title) error { return nil }); err == nil {
							t.Error("a file was published")
						}
					}
					switch told {
					case "by itself":
						u.tells(n, test.cause)
					case "when somebody wants it":
						u.store.blind = false
						if err := other.Release(ctx, n); !errors.Is(err, lock.ErrNotYours) && !errors.Is(err, lock.ErrNotHeld) {
							t.Error(err)
						}
					}
					u.agree(n)
					test.check(u, s, next, made)
					u.agree(n)
					if told != "by itself" && u.log.count("has something else") != 0 {
						t.Error("logged")
					}
				})
			}
		}
	}
}

func TestUncertainGrantKeepsOthersOut(t *testing.T) {
	u := newUnknown(t)
	s, other := u.open("a"), u.open("b")
	var told []lock.Observation
	u.observe = func(o lock.Observation) { told = append(told, o) }
	u.store.blind = true
	u.loses(false, acquireOf(s, "/locks/a"))
	if h, err := s.SpeaksFor("/locks/a"); err != nil || h.Token != 0 {
		t.Errorf("%+v, %v", h, err)
	}
	if err := s.Undo(ctx, "/locks/a", 0); !errors.Is(err, lock.ErrStale) {
		t.Errorf("no token ends a hold: %v", err)
	}
	for range 20 { // it is over after 10, but who knows
		wantSuspended(t, acquireOf(other, "/locks/a")())
		u.pass(time.Minute)
	}
	u.tells("/locks/a", lock.CauseUndeliver)
	u.acquire(other, "/locks/a")
	if len(told) != 3 || told[0].Hold.Token != 0 || !strings.Contains(told[0].Note, "not known yet whether that happened") ||
		!told[1].Ended || told[1].Cause != lock.CauseUndo || told[1].Hold.Owner.Account != "a" {
		t.Errorf("observed %+v", told)
	}
}

// A hold that vanished without a word is lost, but nobody took it away.
func TestAConflictThatNobodyExplains(t *testing.T) {
	u := newUnknown(t)
	s := u.holder("a", "/locks/a")
	u.store.Outside("/locks/a", "")
	_, err := s.Renew(ctx, "/locks/a")
	wantText(t, err, "taken away 0s ago: the store of the locks does not have it any more, and nobody knows why")
	u.acquire(u.open("b"), "/locks/a") // no lock_delay
	if n := u.log.count("the store has something else of a lock than this server knew"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// A client that tries again and again would meet its own hold for ever.
func TestTheNextTryGetsAGrantOfWhichItsClientWasNotTold(t *testing.T) {
	for name, grant := range map[string]func(u *unknown, try func() error){
		"the store did not tell": func(u *unknown, try func() error) {
			u.store.blind = true
			u.loses(true, try)
			u.store.blind = false
		},
		"the store told late": func(u *unknown, try func() error) {
			u.store.blind = true
			u.loses(true, try)
			u.tells("/locks/a", lock.CauseAcquire)
		},
		"the store was asked": func(u *unknown, try func() error) { u.loses(true, try) },
		"another server may be the active one": func(u *unknown, try func() error) {
			u.store.InjectAfter(func(lock.Change) error {
				u.suspend()
				return nil
			})
			if err := try(); !errors.Is(err, lock.ErrUncertain) {
				u.t.Error(err)
			}
			u.store.InjectAfter(nil)
			u.resume()
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnknown(t)
			s := u.open("a")
			grant(u, acquireOf(s, "/locks/a"))
			u.refused(u.open("b"), "/locks/a", lock.ErrHeld)
			if hold := u.acquire(s, "/locks/a"); hold.Token != u.stored("/locks/a").Holds[0].Token {
				t.Errorf("%+v", hold)
			}
			u.refused(s, "/locks/a", lock.ErrHeld) // it knows by now
			u.release(s, "/locks/a", nil)
			u.holds("/locks/a", "")
		})
	}
}
