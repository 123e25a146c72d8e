package lock_test

import (
	"errors"
	"fmt"
	"math"
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

// releases has the session give the lock back, which waits for its members.
func (w *world) releases(s *lock.Session, n lock.Name) *waiter {
	w.t.Helper()
	x := &waiter{w: w, s: s, name: n}
	var err error
	if _, x.Waiting, err = s.ReleaseOrWait(ctx, n, func() { x.calls++ }); x.Waiting == nil || err != nil {
		w.t.Fatalf("%s: it does not wait: %v", n, err)
	}
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

// goesOn polls because it was called, and has to wait on.
func (x *waiter) goesOn() {
	x.w.t.Helper()
	if x.calls == 0 {
		x.w.t.Fatal("it was not called")
	}
	x.calls = 0
	x.stillWaits()
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

// end is one way in which a hold ends.
type end struct {
	how     string
	name    lock.Name
	takes   bool // the hold is taken away, so that there is a lock_delay
	drains  bool // it waits for publications
	hastens func(w *world, s *lock.Session, h lock.Hold) error
}

// ends are all ways in which the hold of a session of the job "job" of account "a" ends.
var ends = []end{
	{"released", "/x", false, true, func(_ *world, s *lock.Session, _ lock.Hold) error { return s.Release(ctx, "/x") }},
	{"undone", "/x", false, true, func(_ *world, s *lock.Session, h lock.Hold) error { return s.Undo(ctx, "/x", h.Token) }},
	{"broken", "/x", true, true, func(w *world, _ *lock.Session, h lock.Hold) error {
		return w.Break(ctx, "/x", h.Token, lock.Owner{}, "")
	}},
	{"too old", "/x", true, false, func(w *world, s *lock.Session, _ lock.Hold) error { s.Begin(); w.pass(time.Minute, "/x"); return nil }},
	{"idle", "/x", true, false, func(w *world, _ *lock.Session, _ lock.Hold) error { w.pass(50*time.Second, "/x"); return nil }},
	{"disconnected", "/gone", true, false, func(_ *world, s *lock.Session, _ lock.Hold) error { return s.Close(ctx) }},
	{"removed on the host", "/x", true, false, func(w *world, _ *lock.Session, _ lock.Hold) error {
		lock.TakeOver(w.Table, w.store.Outside("/x", lock.CauseHostGone))
		return nil
	}},
}

// endless are the rules of the locks of ends.
func endless(delay time.Duration) []lock.Rule {
	rule := lock.Rule{Match: "/x", MaxAge: time.Minute, MaxIdle: 50 * time.Second, LockDelay: delay, Contention: &lock.Contention{Wait: time.Hour}}
	gone := rule
	gone.Match, gone.OnDisconnect = "/gone", lock.ReleaseOnDisconnect
	return []lock.Rule{rule, gone}
}

func TestWhateverEndsTheHoldCallsTheNext(t *testing.T) {
	for _, end := range ends {
		t.Run(end.how, func(t *testing.T) {
			w := newWorld(t, endless(0)...)
			s := w.job("a", "job")
			h := w.acquire(s, end.name)
			x, behind := w.waits("b", end.name), w.waits("c", end.name)
			w.ok(end.hastens(w, s, h))
			behind.stillWaits()
			x.gets()
			w.holds(end.name, "b")
		})
	}
}

func TestNobodyGetsALockSoonAfterItWasTakenAway(t *testing.T) {
	for _, end := range ends {
		t.Run(end.how, func(t *testing.T) {
			w := newWorld(t, endless(15*time.Second)...)
			s := w.job("a", "job")
			h := w.acquire(s, end.name)
			x := w.waits("w", end.name)
			w.ok(end.hastens(w, s, h))
			if !end.takes {
				x.gets()
				return
			}
			w.clock.Advance(5 * time.Second)
			err := w.refused(w.job("a", "job"), end.name, lock.ErrHeld)
			wantText(t, err, "kept back for 10s after it was taken away; 1 in the queue")
			x.stillWaits()
			w.looksIn(10 * time.Second)
			w.pass(10 * time.Second)
			x.gets()
		})
	}
}

// The longest delay that a configuration can have does not overflow.
func TestADelayThatNeverEnds(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/locks/*", LockDelay: math.MaxInt64})
	h := w.acquire(w.open("a"), "/locks/x")
	w.ok(w.Break(ctx, "/locks/x", h.Token, lock.Owner{Account: "boss"}, ""))
	w.refused(w.open("b"), "/locks/x", lock.ErrHeld)
}

func TestWaitersGetTheLockInTheOrderInWhichTheyCame(t *testing.T) {
	w := newWorld(t, ways(usual))
	first := w.holder("a", "/locks/x")
	var all []*waiter
	for i := range 4 {
		all = append(all, w.waits(fmt.Sprint("w", i), "/locks/x"))
	}
	w.wanted("/locks/x", 4)
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
	w.holder("newcomer", "/locks/x")
}

func TestAWaiterThatEndsLeavesItsPlaceToTheNext(t *testing.T) {
	full := errors.New("disk full")
	for _, test := range []struct {
		when string
		want error
		end  func(w *world, x *waiter) // at its turn
	}{
		{"withdrawn before its turn", lock.ErrEnded, nil},
		{"withdrawn", lock.ErrEnded, func(_ *world, x *waiter) { x.Withdraw() }},
		{"closed", lock.ErrEnded, func(w *world, x *waiter) { w.end(x.s) }},
		{"the store fails", full, func(w *world, _ *waiter) { w.store.Inject(func(lock.Change) error { return full }) }},
	} {
		t.Run(test.when, func(t *testing.T) {
			w := newWorld(t, ways(usual))
			s := w.holder("a", "/locks/x")
			x, behind := w.waits("b", "/locks/x"), w.waits("c", "/locks/x")
			if test.end == nil {
				x.Withdraw()
			}
			w.release(s, "/locks/x", nil)
			if test.end != nil {
				behind.stillWaits()
				test.end(w, x)
			}
			if _, over, err := x.Poll(ctx); !over || !errors.Is(err, test.want) {
				t.Errorf("over %v, %v", over, err)
			}
			w.store.Inject(nil)
			behind.gets()
			x.Withdraw() // once more
			w.holds("/locks/x", "c")
			w.release(behind.s, "/locks/x", nil)
			w.empty()
		})
	}
}

func TestTheHostMayComeFirst(t *testing.T) {
	w := newWorld(t, ways(usual))
	s := w.holder("a", "/locks/x")
	x := w.waits("b", "/locks/x")
	w.release(s, "/locks/x", nil)
	w.store.Outside("/locks/x", lock.CauseHostMade, w.host())
	x.goesOn() // it runs into a conflict
	w.holds("/locks/x", lock.HostAccount)
	lock.TakeOver(w.Table, w.store.Outside("/locks/x", lock.CauseHostGone))
	x.gets()
	w.holds("/locks/x", "b")
}

// Under "fair" it keeps its place as one that polls.
func TestWaitingEndsByTime(t *testing.T) {
	for _, queue := range []lock.QueuePolicy{lock.QueueOff, lock.QueueFair} {
		c := usual
		c.Queue = queue
		w := newWorld(t, ways(c))
		s := w.holder("a", "/locks/x")
		x := w.waits("b", "/locks/x")
		w.clock.Advance(20 * time.Second)
		behind := w.waits("c", "/locks/x")
		w.pass(9 * time.Second)
		x.stillWaits()
		w.looksIn(time.Second)
		w.pass(time.Second)
		wantText(t, x.fails(lock.ErrHeld), "waited 30s: held by a@192.0.2.1 for 30s; place 1 of 2 in the queue, expires in 59m30s")
		again := w.waitsIn(x.s, "/locks/x") // as a client does that tries for ever
		w.release(s, "/locks/x", nil)
		if queue == lock.QueueFair {
			behind.stillWaits()
			w.pass(time.Minute) // the time is over, and the lock is free
			again.gets()
		} else {
			again.stillWaits()
			behind.gets()
		}
	}
}

func TestTheSessionSaysHowLongItWaits(t *testing.T) {
	w := newWorld(t, ways(usual), lock.Rule{Match: "/never/*"})
	s := w.holder("a", "/locks/x", "/never/x")
	notAtAll := w.open("b")
	notAtAll.SetWait(0)
	for _, try := range []struct {
		s *lock.Session
		n lock.Name
	}{{notAtAll, "/locks/x"}, {w.open("c"), "/never/x"}, {s, "/locks/x"}} { // the last one would wait for itself
		if _, waiting, err := try.s.AcquireOrWait(ctx, try.n, func() {}); waiting != nil || !errors.Is(err, lock.ErrHeld) {
			t.Errorf("%s waits for %s: %v", try.s.Owner(), try.n, err)
		}
	}
	c := w.open("c")
	c.SetWait(5 * time.Second)
	x := w.waitsIn(c, "/never/x")
	w.pass(5 * time.Second)
	x.fails(lock.ErrHeld)
}

func TestReloadKeepsTheOrder(t *testing.T) {
	w := newWorld(t, ways(usual))
	s := w.holder("a", "/locks/x")
	one, two := w.waits("b", "/locks/x"), w.waits("c", "/locks/x")
	limited := usual
	limited.Limit = 1
	for _, c := range []lock.Contention{usual, limited, {Queue: lock.QueueOff}, usual} {
		w.reload(ways(c))
		one.stillWaits()
		two.stillWaits()
	}
	w.release(s, "/locks/x", nil)
	two.stillWaits()
	one.gets()
	w.reload(lock.Rule{Match: "/other/*"})
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
		w.reload(ways(lock.Contention{Queue: lock.QueueOff}))
		if n := lock.Nodes(w.Table); n != 1 {
			t.Fatalf("%d names are remembered", n)
		}
	}
}

func TestAReleaseThatWaitsForMembersEnds(t *testing.T) {
	for _, test := range []struct {
		how  string
		want error
		text string
		end  func(w *world, member *lock.Session)
	}{
		{"by time", lock.ErrMembers, "waited 1m0s: there are locks below it", func(w *world, _ *lock.Session) { w.pass(time.Minute) }},
		{"with the lock", lock.ErrNotHeld, "taken away 0s ago: removed on the server", func(w *world, _ *lock.Session) {
			lock.TakeOver(w.Table, w.store.Outside("/g/x", lock.CauseHostGone))
		}},
		{"with the lock, which is idle", lock.ErrNotHeld, "taken away 0s ago: no sign of life for 10s", func(w *world, member *lock.Session) {
			w.pass(10 * time.Second)
			w.hurries(func() { w.release(member, "/g/x/1", nil) })
			w.looksIn(0)
			w.expires("/g/x")
		}},
	} {
		t.Run(test.how, func(t *testing.T) {
			w := newWorld(t, lock.Rule{Match: "/g/*/*"}, lock.Rule{Match: "/g/*", MaxIdle: 10 * time.Second, Contention: &anyone})
			s, member := w.holder("a", "/g/x"), w.holder("b", "/g/x/1")
			s.SetWait(time.Minute)
			x := w.releases(s, "/g/x")
			test.end(w, member)
			wantText(t, x.fails(test.want), test.text)
		})
	}
}

// A lock that is over but has members, and is wanted: neither Expire nor the one who waits may be forgotten.
func TestWaitingEndsByTimeAlsoForALockThatCannotEndYet(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/g/*/*"}, lock.Rule{Match: "/g/*", MaxIdle: 10 * time.Second, Contention: &usual})
	w.holder("a", "/g/x")
	member := w.holder("b", "/g/x/1")
	x := w.waits("c", "/g/x")
	w.pass(10 * time.Second)
	y := w.waits("d", "/g/x")
	w.expires()
	w.looksIn(20 * time.Second)
	w.pass(20 * time.Second)
	x.fails(lock.ErrHeld)
	w.release(member, "/g/x/1", nil)
	w.expires("/g/x")
	y.gets()
}
