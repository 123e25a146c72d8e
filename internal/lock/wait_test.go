package lock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// ways is a rule for everything with a Contention.
func ways(c lock.Contention) lock.Rule {
	return lock.Rule{Match: "/locks/**", MaxAge: time.Hour, Contention: &c}
}

// waits half a minute, and polls are kept for up to 15 s.
var usual = lock.Contention{Wait: 30 * time.Second, QueueHold: 15 * time.Second, Members: lock.MembersAnyone}

// waiter is a session that waits.
type waiter struct {
	*lock.Waiting
	w     *world
	s     *lock.Session
	name  lock.Name
	calls int
}

// waits has a new session of the account wait for the lock.
func (w *world) waits(account string, n lock.Name) *waiter {
	w.t.Helper()
	return w.waitsIn(w.open(account), n)
}

func (w *world) waitsIn(s *lock.Session, n lock.Name) *waiter {
	w.t.Helper()
	x := &waiter{w: w, s: s, name: n}
	hold, waiting, err := s.AcquireOrWait(ctx, n, func() { x.calls++ })
	if waiting == nil || err != nil || hold.Token != 0 {
		w.t.Fatalf("%s: it does not wait: %+v, %v", n, hold, err)
	}
	x.Waiting = waiting
	return x
}

// gets polls: it must have been called, and get the lock.
func (x *waiter) gets() lock.Hold {
	x.w.t.Helper()
	if x.calls == 0 {
		x.w.t.Fatal("it was not called")
	}
	x.calls = 0
	hold, over, err := x.Poll(ctx)
	if !over || err != nil {
		x.w.t.Fatalf("poll: over %v, %v", over, err)
	}
	return hold
}

// stillWaits polls, and must not have been called.
func (x *waiter) stillWaits() {
	x.w.t.Helper()
	if x.calls != 0 {
		x.w.t.Fatalf("it was called %d times", x.calls)
	}
	if hold, over, err := x.Poll(ctx); over {
		x.w.t.Fatalf("it does not wait any more: %+v, %v", hold, err)
	}
}

// fails polls: it must have been called, and end with that error.
func (x *waiter) fails(want error) error {
	x.w.t.Helper()
	if x.calls == 0 {
		x.w.t.Fatal("it was not called")
	}
	_, over, err := x.Poll(ctx)
	if !over || !errors.Is(err, want) {
		x.w.t.Fatalf("poll: over %v, %v, want %v", over, err, want)
	}
	return err
}

// empty checks that nothing is left in memory, once everything is over.
func (w *world) empty() {
	w.t.Helper()
	w.clock.Advance(2 * time.Minute)
	w.Expire(ctx)
	if n := lock.Nodes(w.Table); n != 1+len(w.All()) && len(w.All()) == 0 {
		w.t.Errorf("%d names are remembered", n)
	}
	if n := lock.Polls(w.Table); n > 0 {
		w.t.Errorf("%d tries are remembered", n)
	}
}

func TestWaitersGetTheLockInTheOrderInWhichTheyCame(t *testing.T) {
	w := newWorld(t, ways(usual))
	first := w.open("a")
	w.acquire(first, "/locks/x")
	var all []*waiter
	for i := range 4 {
		all = append(all, w.waits(fmt.Sprint("w", i), "/locks/x"))
	}
	if status, _ := w.Get("/locks/x"); status.Waiting != 4 {
		t.Errorf("%d wait", status.Waiting)
	}
	w.release(first, "/locks/x", nil)
	for i, x := range all {
		for _, behind := range all[i+1:] {
			behind.stillWaits()
		}
		err := w.refused(w.open("newcomer"), "/locks/x", lock.ErrHeld)
		wantText(t, err, fmt.Sprintf("others came earlier, w%d@192.0.2.1 is next; %d in the queue", i, len(all)-i))
		x.gets()
		w.holds("/locks/x", fmt.Sprint("w", i))
		w.release(x.s, "/locks/x", nil)
	}
	w.acquire(w.open("newcomer"), "/locks/x")
	w.release(w.open("newcomer"), "/locks/x", lock.ErrNotYours)
}

func TestAWithdrawnWaiterLeavesItsPlaceToTheNext(t *testing.T) {
	for _, when := range []string{"before its turn", "at its turn", "closed at its turn"} {
		t.Run(when, func(t *testing.T) {
			w := newWorld(t, ways(usual))
			s := w.open("a")
			w.acquire(s, "/locks/x")
			one, two := w.waits("b", "/locks/x"), w.waits("c", "/locks/x")
			switch when {
			case "before its turn":
				one.Withdraw()
				w.release(s, "/locks/x", nil)
			case "at its turn":
				w.release(s, "/locks/x", nil)
				two.stillWaits()
				one.Withdraw()
			default:
				w.release(s, "/locks/x", nil)
				w.end(one.s)
			}
			if _, over, err := one.Poll(ctx); !over || !errors.Is(err, lock.ErrEnded) {
				t.Errorf("a withdrawn one: %v, %v", over, err)
			}
			two.gets()
			one.Withdraw()
			w.holds("/locks/x", "c")
			w.release(two.s, "/locks/x", nil)
			w.empty()
		})
	}
}

func TestWhateverEndsTheHoldCallsTheNext(t *testing.T) {
	rule := lock.Rule{Match: "/locks/**", MaxAge: 20 * time.Second, Contention: &usual}
	delayed := rule
	delayed.Match, delayed.LockDelay = "/delayed/*", 5*time.Second
	ends := lock.Rule{Match: "/ends/*", OnDisconnect: lock.ReleaseOnDisconnect, Contention: &usual}
	for _, test := range []struct {
		how  string
		name lock.Name
		end  func(w *world, s *lock.Session, h lock.Hold, x *waiter)
	}{
		{"age", "/locks/x", func(w *world, _ *lock.Session, _ lock.Hold, _ *waiter) {
			w.clock.Advance(20 * time.Second)
			w.expires("/locks/x")
		}},
		{"break", "/locks/x", func(w *world, _ *lock.Session, h lock.Hold, _ *waiter) {
			if err := w.Break(ctx, "/locks/x", h.Token, lock.Owner{}, ""); err != nil {
				t.Fatal(err)
			}
		}},
		{"undelivered", "/locks/x", func(w *world, s *lock.Session, h lock.Hold, _ *waiter) {
			if err := s.Undo(ctx, "/locks/x", h.Token); err != nil {
				t.Fatal(err)
			}
		}},
		{"disconnect", "/ends/x", func(w *world, s *lock.Session, _ lock.Hold, _ *waiter) { w.end(s) }},
		{"rmdir on the host", "/locks/x", func(w *world, _ *lock.Session, _ lock.Hold, _ *waiter) {
			lock.TakeOver(w.Table, w.store.Outside("/locks/x", lock.CauseHostGone))
		}},
		{"the end of lock_delay", "/delayed/x", func(w *world, _ *lock.Session, _ lock.Hold, x *waiter) {
			w.clock.Advance(20 * time.Second)
			w.expires("/delayed/x")
			x.stillWaits()
			if in, ok := w.NextExpiry(); !ok || in != 5*time.Second {
				t.Errorf("next look in %v, %v", in, ok)
			}
			w.clock.Advance(5 * time.Second)
			w.expires()
		}},
	} {
		t.Run(test.how, func(t *testing.T) {
			w := newWorld(t, rule, delayed, ends)
			s := w.open("a")
			h := w.acquire(s, test.name)
			x, behind := w.waits("b", test.name), w.waits("c", test.name)
			test.end(w, s, h, x)
			behind.stillWaits()
			x.gets()
			w.holds(test.name, "b")
		})
	}
}

func TestWaitingEndsByTime(t *testing.T) {
	w := newWorld(t, ways(usual))
	s := w.open("a")
	w.acquire(s, "/locks/x")
	x, behind := w.waits("b", "/locks/x"), w.waits("c", "/locks/x")
	w.clock.Advance(29 * time.Second)
	w.expires()
	x.stillWaits()
	if in, ok := w.NextExpiry(); !ok || in != time.Second {
		t.Errorf("next look in %v, %v", in, ok)
	}
	w.clock.Advance(time.Second)
	w.expires()
	wantText(t, x.fails(lock.ErrHeld), "waited 30s: held by a@192.0.2.1 for 30s, expires in 59m30s; place 1 of 2 in the queue")
	behind.fails(lock.ErrHeld)
}

func TestATimedOutWaiterKeepsItsPlaceWherePollersDo(t *testing.T) {
	both := usual
	both.Queue = lock.QueueFair
	w := newWorld(t, ways(both))
	s := w.open("a")
	w.acquire(s, "/locks/x")
	x := w.waits("b", "/locks/x")
	w.clock.Advance(20 * time.Second)
	behind := w.waits("c", "/locks/x")
	w.clock.Advance(10 * time.Second)
	w.expires()
	x.fails(lock.ErrHeld)
	again := w.waitsIn(x.s, "/locks/x") // as a client does that tries for ever
	w.release(s, "/locks/x", nil)
	behind.stillWaits()
	again.gets()
}

func TestAWaiterWhoseTimeIsOverGetsALockThatIsFree(t *testing.T) {
	w := newWorld(t, ways(usual))
	s := w.open("a")
	w.acquire(s, "/locks/x")
	x := w.waits("b", "/locks/x")
	w.clock.Advance(time.Minute)
	w.release(s, "/locks/x", nil)
	x.gets()
}

func TestTheSessionSaysHowLongItWaits(t *testing.T) {
	w := newWorld(t, ways(usual), lock.Rule{Match: "/never/*"})
	s := w.open("a")
	w.acquire(s, "/locks/x")
	w.acquire(s, "/never/x")
	b := w.open("b")
	b.SetWait(0)
	if _, waiting, err := b.AcquireOrWait(ctx, "/locks/x", func() {}); waiting != nil || !errors.Is(err, lock.ErrHeld) {
		t.Errorf("it waits: %v", err)
	}
	c := w.open("c")
	if _, waiting, err := c.AcquireOrWait(ctx, "/never/x", func() {}); waiting != nil || !errors.Is(err, lock.ErrHeld) {
		t.Errorf("it waits: %v", err)
	}
	c.SetWait(5 * time.Second)
	x := w.waitsIn(c, "/never/x")
	w.clock.Advance(5 * time.Second)
	w.expires()
	x.fails(lock.ErrHeld)
}

func TestNobodyWaitsForItself(t *testing.T) {
	w := newWorld(t, ways(usual))
	s := w.open("a")
	w.acquire(s, "/locks/x")
	_, waiting, err := s.AcquireOrWait(ctx, "/locks/x", func() {})
	if waiting != nil {
		t.Error("it waits")
	}
	wantText(t, err, "held by a@192.0.2.1 for 0s, expires in 1h0m0s")
	w.release(s, "/locks/x", nil)
	w.empty()
}

func TestAFailedGrantPassesTheTurnOn(t *testing.T) {
	w := newWorld(t, ways(usual))
	s := w.open("a")
	w.acquire(s, "/locks/x")
	x, behind := w.waits("b", "/locks/x"), w.waits("c", "/locks/x")
	w.release(s, "/locks/x", nil)
	full := errors.New("disk full")
	w.store.Inject(func(lock.Change) error { return full })
	x.fails(full)
	w.store.Inject(nil)
	behind.gets()
}

func TestTheHostMayComeFirst(t *testing.T) {
	w := newWorld(t, ways(usual))
	s := w.open("a")
	w.acquire(s, "/locks/x")
	x := w.waits("b", "/locks/x")
	w.release(s, "/locks/x", nil)
	w.store.Outside("/locks/x", lock.CauseHostMade, lock.Hold{Owner: lock.Owner{Account: lock.HostAccount}, Acquired: w.clock.Now()})
	if _, over, err := x.Poll(ctx); over { // it runs into a conflict
		t.Fatalf("over: %v", err)
	}
	w.holds("/locks/x", lock.HostAccount)
	x.calls = 0
	lock.TakeOver(w.Table, w.store.Outside("/locks/x", lock.CauseHostGone))
	x.gets()
	w.holds("/locks/x", "b")
}

func TestReloadKeepsTheOrder(t *testing.T) {
	w := newWorld(t, ways(usual))
	s := w.open("a")
	w.acquire(s, "/locks/x")
	one, two := w.waits("b", "/locks/x"), w.waits("c", "/locks/x")
	limited := usual
	limited.Limit = 1
	for _, c := range []lock.Contention{usual, limited, {Queue: lock.QueueOff}, usual} {
		if err := w.SetRules(ctx, rulesOf(t, ways(c))); err != nil {
			t.Fatal(err)
		}
		one.stillWaits()
		two.stillWaits()
	}
	w.release(s, "/locks/x", nil)
	two.stillWaits()
	one.gets()
	if err := w.SetRules(ctx, rulesOf(t, lock.Rule{Match: "/other/*"})); err != nil {
		t.Fatal(err)
	}
	two.fails(lock.ErrNoRule)
	w.release(one.s, "/locks/x", nil)
	w.empty()
}

func TestReloadLeavesNothingOfForgottenQueues(t *testing.T) {
	for range 50 { // the table goes through its names in any order
		w := newWorld(t, ways(lock.Contention{Queue: lock.QueueFair, QueueHold: time.Minute, Members: lock.MembersAnyone}))
		s, poller := w.open("a"), w.open("b")
		var names []lock.Name
		for i := range 12 {
			names = append(names, lock.Name(fmt.Sprint("/locks/", i)), lock.Name(fmt.Sprint("/locks/", i, "/member")))
		}
		for _, n := range names {
			w.acquire(s, n)
			w.polls(poller, n, 2, time.Second)
		}
		for i := range names {
			w.release(s, names[len(names)-1-i], nil)
		}
		if err := w.SetRules(ctx, rulesOf(t, ways(lock.Contention{Queue: lock.QueueOff}))); err != nil {
			t.Fatal(err)
		}
		if n := lock.Nodes(w.Table); n != 1 {
			t.Fatalf("%d names are remembered", n)
		}
	}
}

func TestReleaseWaitsForMembersSoLongOnly(t *testing.T) {
	w := newWorld(t, ways(usual))
	s, member := w.open("a"), w.open("b")
	w.acquire(s, "/locks/g")
	w.acquire(member, "/locks/g/1")
	s.SetWait(time.Minute)
	x := &waiter{w: w, s: s}
	_, x.Waiting, _ = s.ReleaseOrWait(ctx, "/locks/g", func() { x.calls++ })
	w.clock.Advance(time.Minute)
	w.expires()
	wantText(t, x.fails(lock.ErrMembers), "waited 1m0s: there are locks below it")
	w.holds("/locks/g", "a")
}

func TestReleaseThatWaitsIsToldOfTheEndOfTheLock(t *testing.T) {
	w := newWorld(t, ways(usual))
	s, member := w.open("a"), w.open("b")
	w.acquire(s, "/locks/g")
	w.acquire(member, "/locks/g/1")
	s.SetWait(time.Minute)
	x := &waiter{w: w, s: s}
	_, x.Waiting, _ = s.ReleaseOrWait(ctx, "/locks/g", func() { x.calls++ })
	lock.TakeOver(w.Table, w.store.Outside("/locks/g", lock.CauseHostGone))
	x.fails(lock.ErrNotHeld)
}

// A lock that is over but has members, and is wanted: neither Expire nor the one who waits may be forgotten.
func TestWaitingEndsByTimeAlsoForALockThatCannotEndYet(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/g/*/*"}, lock.Rule{Match: "/g/*", MaxIdle: 10 * time.Second, Contention: &usual})
	member := w.open("b")
	w.acquire(w.open("a"), "/g/x")
	w.acquire(member, "/g/x/1")
	x := w.waits("c", "/g/x")
	w.clock.Advance(10 * time.Second)
	w.expires()
	y := w.waits("d", "/g/x")
	w.expires()
	if in, ok := w.NextExpiry(); !ok || in != 20*time.Second {
		t.Errorf("next look in %v, %v", in, ok)
	}
	w.clock.Advance(20 * time.Second)
	w.expires()
	x.fails(lock.ErrHeld)
	w.release(member, "/g/x/1", nil)
	w.expires("/g/x")
	y.gets()
}

func TestTheLastMemberLetsALockEndThatIsWaitedToBeReleased(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/g/*/*"}, lock.Rule{Match: "/g/*", MaxIdle: 10 * time.Second, Contention: &anyone})
	s, member := w.open("a"), w.open("b")
	w.acquire(s, "/g/x")
	w.acquire(member, "/g/x/1")
	s.SetWait(time.Hour)
	if _, waiting, err := s.ReleaseOrWait(ctx, "/g/x", func() {}); waiting == nil {
		t.Fatal(err)
	}
	w.clock.Advance(10 * time.Second)
	w.expires()
	w.release(member, "/g/x/1", nil)
	if in, ok := w.NextExpiry(); !ok || in != 0 {
		t.Errorf("next look in %v, %v", in, ok)
	}
	w.expires("/g/x")
}
