package lock_test

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

var runs = flag.Int("interleavings", 2000, "how many interleavings each script runs at least; all of them at least once")

// script runs several operations at once, in an order that it decides: each operation stops
// before the store makes its change and again before the table hears of it.
type script struct {
	*world
	ops     []func()        // those that have not begun
	stopped []chan struct{} // operations that wait for their next step
	on      bool
}

// stop is called by the store at each of its steps.
func (s *script) stop(lock.Change) error {
	if s.on {
		next := make(chan struct{})
		s.stopped = append(s.stopped, next)
		<-next
	}
	return nil
}

// run takes the choices for its steps, 0 where they run out, and returns how many each step
// had. A step begins an operation or lets one that has stopped go on.
func (s *script) run(choices []int) (had []int) {
	s.on = true
	for {
		synctest.Wait()
		options := len(s.stopped) + len(s.ops)
		if options == 0 {
			s.on = false
			return had
		}
		choice := 0
		if len(had) < len(choices) {
			choice = choices[len(had)]
		}
		had = append(had, options)
		if choice < len(s.stopped) {
			next := s.stopped[choice]
			s.stopped = append(s.stopped[:choice:choice], s.stopped[choice+1:]...)
			close(next)
			continue
		}
		choice -= len(s.stopped)
		op := s.ops[choice]
		s.ops = append(s.ops[:choice:choice], s.ops[choice+1:]...)
		go op()
	}
}

// everyInterleaving runs what build sets up once for each order of its steps. check is called when
// all are over; that none is left waiting for another is checked by the bubble.
func everyInterleaving(t *testing.T, atLeast int, build func(s *script) (check func())) {
	t.Helper()
	orders := 0
	for n := 0; n == 0 || n < *runs; {
		orders = 0
		for choices, had := []int(nil), []int(nil); choices != nil || orders == 0; choices = nextOrder(choices, had) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{world: newWorldIn(t, scripted...)}
				s.store.Inject(s.stop)
				s.store.InjectAfter(s.stop)
				check := build(s)
				had = s.run(choices)
				check()
				s.agrees()
			})
			if t.Failed() {
				t.Fatalf("in the order %v", choices)
			}
			orders++
		}
		n += orders
	}
	if orders < atLeast {
		t.Errorf("only %d orders: the script does not reach what it is for", orders)
	}
}

// nextOrder counts the choices on, the last step first; nil: that was the last order.
func nextOrder(choices, had []int) []int {
	next := make([]int, len(had))
	copy(next, choices)
	for i := len(had) - 1; i >= 0; i-- {
		if next[i]++; next[i] < had[i] {
			return next[:i+1]
		}
	}
	return nil
}

var scripted = []lock.Rule{
	{Match: "/locks/**", MaxAge: 10 * time.Minute, Contention: &anyone},
	{Match: "/now/**", MaxAge: time.Hour, OnDisconnect: lock.ReleaseOnDisconnect},
	{Match: "/queue/**", MaxAge: time.Hour, Contention: &usual},
}

// agrees checks that the table and the store have the same holds, and none too many.
func (s *script) agrees() {
	s.t.Helper()
	seen := 0
	for record, err := range s.store.All(ctx) {
		if err != nil {
			s.t.Fatal(err)
		}
		seen++
		status, ok := s.Get(record.Name)
		if !ok || len(record.Holds) != 1 || len(status.Holds) != 1 || status.Holds[0].Token != record.Holds[0].Token {
			s.t.Errorf("table %+v, store %+v", status, record)
		}
	}
	if n := len(s.All()); n != seen {
		s.t.Errorf("the table has %d locks, the store %d", n, seen)
	}
}

// op adds an operation; err is what it returned.
func (s *script) op(f func() error) (err *error) {
	err = new(error)
	s.ops = append(s.ops, func() { *err = f() })
	return err
}

func TestTwoReapersAndAnAcquirer(t *testing.T) {
	everyInterleaving(t, 42, func(s *script) func() {
		holder, next := s.open("a"), s.open("b")
		s.acquire(holder, "/locks/x")
		time.Sleep(10 * time.Minute)
		for range 2 {
			s.op(func() error { s.Expire(ctx); return nil })
		}
		got := s.op(func() error { _, err := next.Acquire(ctx, "/locks/x"); return err })
		return func() {
			switch {
			case len(s.ended()) != 1:
				s.t.Errorf("ended %d times", len(s.ended()))
			case *got == nil:
				s.holds("/locks/x", "b")
			case errors.Is(*got, lock.ErrHeld): // it came first
				s.holds("/locks/x", "")
			default:
				s.t.Error(*got)
			}
		}
	})
}

func TestReapedHoldersLateReleaseWithTheSameAccount(t *testing.T) {
	everyInterleaving(t, 42, func(s *script) func() {
		late, next := s.open("a"), s.open("a")
		s.acquire(late, "/locks/x")
		time.Sleep(10 * time.Minute)
		s.op(func() error { s.Expire(ctx); return nil })
		released := s.op(func() error { return late.Release(ctx, "/locks/x") })
		var hold lock.Hold
		got := s.op(func() (err error) { hold, err = next.Acquire(ctx, "/locks/x"); return err })
		return func() {
			if *released != nil && !errors.Is(*released, lock.ErrNotHeld) && !errors.Is(*released, lock.ErrNotYours) {
				s.t.Error("release:", *released)
			}
			if (*released == nil) == (len(s.ended()) == 1) {
				s.t.Errorf("release: %v, expired %+v", *released, s.ended())
			}
			if *got != nil {
				if !errors.Is(*got, lock.ErrHeld) {
					s.t.Error("acquire:", *got)
				}
				s.holds("/locks/x", "")
				return
			}
			if status, ok := s.Get("/locks/x"); !ok || status.Holds[0].Token != hold.Token {
				s.t.Errorf("the newer hold is gone; release: %v", *released)
			}
		}
	})
}

func TestBreakAgainstRenew(t *testing.T) {
	everyInterleaving(t, 6, func(s *script) func() {
		holder := s.open("a")
		token := s.acquire(holder, "/locks/x").Token
		broken := s.op(func() error { return s.Break(ctx, "/locks/x", token, lock.Owner{Account: "root"}, "") })
		renewed := s.op(func() error { _, err := holder.Renew(ctx, "/locks/x"); return err })
		return func() {
			if *broken != nil {
				s.t.Error("break:", *broken)
			}
			if *renewed != nil && !errors.As(*renewed, new(*lock.LostError)) {
				s.t.Error("renew:", *renewed)
			}
			s.holds("/locks/x", "")
		}
	})
}

func TestChildAcquireAgainstParentRelease(t *testing.T) {
	everyInterleaving(t, 6, func(s *script) func() {
		holder, child := s.open("a"), s.open("b")
		s.acquire(holder, "/locks/g")
		released := s.op(func() error { return holder.Release(ctx, "/locks/g") })
		var joinedAfter bool
		joined := s.op(func() error {
			_, parent := s.Get("/locks/g")
			joinedAfter = !parent
			_, err := child.Acquire(ctx, "/locks/g/m")
			return err
		})
		return func() {
			switch {
			case joinedAfter: // whether there is a directory is not the table's business
			case *released == nil && !errors.Is(*joined, lock.ErrNoParent):
				s.t.Errorf("the lock above ended, and the member: %v", *joined)
			case *released != nil && (!errors.Is(*released, lock.ErrMembers) || *joined != nil):
				s.t.Errorf("release: %v, member: %v", *released, *joined)
			}
		}
	})
}

func TestTwoOfTheSameJobAdoptAgainstExpiry(t *testing.T) {
	everyInterleaving(t, 60, func(s *script) func() {
		s.acquire(s.job("a", "job"), "/locks/x")
		time.Sleep(10 * time.Minute)
		s.op(func() error { s.Expire(ctx); return nil })
		var tokens []lock.Token
		for range 2 {
			again := s.job("a", "job")
			s.op(func() error {
				hold, err := again.Acquire(ctx, "/locks/x")
				if err == nil {
					tokens = append(tokens, hold.Token)
				}
				return err
			})
		}
		return func() {
			status, ok := s.Get("/locks/x")
			if len(tokens) == 0 || !ok || status.Holds[0].Token != max(tokens[0], tokens[len(tokens)-1]) {
				s.t.Errorf("granted %v, stands %+v", tokens, status.Holds)
			}
		}
	})
}

func TestEndOfTheConnectionAgainstEverything(t *testing.T) {
	everyInterleaving(t, 42, func(s *script) func() {
		holder, next := s.job("a", "job"), s.job("b", "")
		token := s.acquire(holder, "/now/x").Token
		s.op(func() error { return holder.Close(ctx) })
		undone := s.op(func() error { return holder.Undo(ctx, "/now/x", token) })
		got := s.op(func() error { _, err := next.Acquire(ctx, "/now/x"); return err })
		return func() {
			if *undone != nil && !errors.Is(*undone, lock.ErrStale) {
				s.t.Error("undo:", *undone)
			}
			if *got != nil && !errors.Is(*got, lock.ErrHeld) {
				s.t.Error("acquire:", *got)
			}
			s.Expire(ctx)
			if status, ok := s.Get("/now/x"); ok && (*got != nil || status.Holds[0].Owner.Account != "b") {
				s.t.Errorf("%+v stands", status)
			}
		}
	})
}

func TestPublicationAgainstBreakAndNextHolder(t *testing.T) {
	everyInterleaving(t, 33, func(s *script) func() {
		holder, next := s.open("a"), s.open("b")
		token := s.acquire(holder, "/locks/x").Token
		s.op(func() error { return s.Break(ctx, "/locks/x", token, lock.Owner{}, "") })
		written := s.op(func() error {
			return publish(holder, "/locks/x", token, func() error {
				before := s.stored("/locks/x").Holds
				_ = s.stop(lock.Change{})
				after := s.stored("/locks/x").Holds
				for _, holds := range [][]lock.Hold{before, after} {
					if len(holds) != 1 || holds[0].Token != token {
						return fmt.Errorf("written under %v", holds)
					}
				}
				return nil
			})
		})
		s.op(func() error { _, err := next.Acquire(ctx, "/locks/x"); return err })
		return func() {
			if *written != nil && !errors.As(*written, new(*lock.ProtectedError)) {
				s.t.Error(*written)
			}
		}
	})
}

// A release, a waiter that looks and then gives up, another one that waits on, and a newcomer, in every order of
// their steps: the newcomer never overtakes, and the lock is never left to nobody while somebody waits.
func TestATurnIsNeverLostNorTakenByANewcomer(t *testing.T) {
	everyInterleaving(t, 22, func(s *script) func() {
		holder, newcomer := s.open("a"), s.open("newcomer")
		s.acquire(holder, "/queue/x")
		x, y := s.waits("x", "/queue/x"), s.waits("y", "/queue/x")
		var got lock.Hold
		var over bool
		s.op(func() error { return holder.Release(ctx, "/queue/x") })
		s.op(func() (err error) {
			if got, over, err = x.Poll(ctx); !over {
				x.Withdraw()
			}
			return err
		})
		overtook := s.op(func() error { _, err := newcomer.Acquire(ctx, "/queue/x"); return err })
		return func() {
			if !errors.Is(*overtook, lock.ErrHeld) {
				s.t.Errorf("the newcomer: %v", *overtook)
			}
			if over {
				s.holds("/queue/x", "x")
				y.stillWaits()
				if err := x.s.Undo(ctx, "/queue/x", got.Token); err != nil { // its client has gone
					s.t.Error(err)
				}
			}
			y.gets()
			s.holds("/queue/x", "y")
		}
	})
}

// A reaper, the waiter whose turn that makes it, and the waiter's own end.
func TestATurnPassesOnFromAWaiterThatEnds(t *testing.T) {
	everyInterleaving(t, 22, func(s *script) func() {
		s.acquire(s.open("a"), "/queue/x")
		one, two := s.open("x"), s.open("y")
		one.SetWait(3 * time.Hour)
		two.SetWait(3 * time.Hour)
		x, y := s.waitsIn(one, "/queue/x"), s.waitsIn(two, "/queue/x")
		time.Sleep(time.Hour)
		var got lock.Hold
		var over bool
		s.op(func() error { s.Expire(ctx); return nil })
		s.op(func() (err error) { got, over, err = x.Poll(ctx); return err })
		s.op(func() error { return x.s.Close(ctx) })
		return func() {
			s.Expire(ctx)
			if over && got.Token != 0 {
				s.holds("/queue/x", "x")
				y.Withdraw()
				return
			}
			if hold, done, err := y.Poll(ctx); !done || err != nil || hold.Token == 0 {
				s.t.Errorf("the next: %+v, %v, %v", hold, done, err)
			}
		}
	})
}
