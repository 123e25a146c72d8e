package lock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// fair keeps freed locks for clients that poll.
var fair = lock.Contention{Queue: lock.QueueFair, QueueHold: 15 * time.Second}

// polls has the session try in vain so many times, with pauses between.
func (w *world) polls(s *lock.Session, n lock.Name, times int, pause time.Duration) error {
	w.t.Helper()
	var err error
	for i := range times {
		if i > 0 {
			w.clock.Advance(pause)
		}
		err = w.refused(s, n, lock.ErrHeld)
	}
	return err
}

// By default clients that poll compete: whoever tries first gets a lock that is free.
func TestAFreeLockIsRefusedToNobodyByDefault(t *testing.T) {
	for _, c := range []lock.Contention{{}, {QueueHold: time.Minute}, {Queue: lock.QueueFair}, {Wait: 0, QueueHold: time.Minute, Limit: 2}} {
		w := newWorld(t, ways(c))
		s, b := w.open("a"), w.open("b")
		w.acquire(s, "/locks/x")
		w.polls(b, "/locks/x", 3, time.Second)
		w.release(s, "/locks/x", nil)
		newcomer := w.holder("newcomer", "/locks/x")
		w.release(newcomer, "/locks/x", nil)
		w.acquire(b, "/locks/x")
		w.release(b, "/locks/x", nil)
		w.empty()
	}
}

func TestTheSecondTryWithinAMinuteIsAPlace(t *testing.T) {
	for _, test := range []struct {
		tries  int
		pause  time.Duration
		queued bool
	}{
		{1, 0, false}, {2, 3 * time.Second, true}, {2, time.Minute - 1, true}, {2, time.Minute, false}, {3, time.Minute, false},
	} {
		w := newWorld(t, ways(fair))
		s, b := w.holder("a", "/locks/x"), w.open("b")
		w.polls(b, "/locks/x", test.tries, test.pause)
		w.release(s, "/locks/x", nil)
		if _, err := w.open("newcomer").Acquire(ctx, "/locks/x"); test.queued != (err != nil) {
			t.Errorf("%+v: the newcomer: %v", test, err)
		}
		if test.queued {
			w.acquire(b, "/locks/x")
		}
		w.empty()
	}
}

// A place in the queue of a held lock ends, too, and later tries begin anew.
func TestAPlaceIsKeptForTwiceTheLastInterval(t *testing.T) {
	for _, test := range []struct {
		pause, hold time.Duration
		freed, kept time.Duration // after the last try
	}{
		{3 * time.Second, 15 * time.Second, 0, 6 * time.Second},
		{3 * time.Second, 15 * time.Second, 4 * time.Second, 6 * time.Second},
		{time.Millisecond, 15 * time.Second, 0, 50 * time.Millisecond},
		{10 * time.Second, 15 * time.Second, 0, 15 * time.Second},
		{10 * time.Second, 15 * time.Second, 10 * time.Second, 20 * time.Second},
		{time.Second, 10 * time.Millisecond, 0, 10 * time.Millisecond},
	} {
		for _, late := range []time.Duration{-1, 0} {
			w := newWorld(t, ways(lock.Contention{Queue: lock.QueueFair, QueueHold: test.hold}))
			s, b := w.holder("a", "/locks/x"), w.open("b")
			w.polls(b, "/locks/x", 3, test.pause)
			w.clock.Advance(test.freed)
			w.release(s, "/locks/x", nil)
			w.clock.Advance(test.kept - test.freed + late)
			_, err := w.open("newcomer").Acquire(ctx, "/locks/x")
			if late < 0 != errors.Is(err, lock.ErrHeld) {
				t.Errorf("%+v, %v before the end: %v", test, -late, err)
			}
			if late < 0 {
				w.acquire(b, "/locks/x")
			}
		}
	}
	w := newWorld(t, ways(fair))
	w.holder("a", "/locks/x")
	b := w.open("b")
	w.polls(b, "/locks/x", 2, 3*time.Second)
	w.pass(6*time.Second - 1)
	w.wanted("/locks/x", 1)
	w.pass(1)
	w.wanted("/locks/x", 0)
	w.polls(b, "/locks/x", 1, 0) // within a minute
	w.wanted("/locks/x", 1)
}

// What is remembered of those who tried is bounded for each account and each address; the oldest goes first.
func TestSoManyPollsAreRemembered(t *testing.T) {
	for _, by := range []string{"account", "address"} {
		t.Run(by, func(t *testing.T) {
			w := newWorld(t, ways(fair))
			holder := w.holder("holder", "/locks/x", "/locks/other")
			open := func(i int) *lock.Session {
				if by == "account" {
					return w.openAt("b", fmt.Sprint("10.0.", i/256, ".", i%256))
				}
				return w.openAt(fmt.Sprint("b", i), "10.0.0.1")
			}
			c := w.openAt("c", "192.0.2.7")
			w.polls(c, "/locks/other", 2, 50*time.Second)
			var all []*lock.Session
			for i := range lock.MaxPolls + 10 {
				all = append(all, open(i))
			}
			for _, some := range [][]*lock.Session{all[:lock.MaxPolls], all[lock.MaxPolls:]} {
				for _, s := range some {
					w.refused(s, "/locks/x", lock.ErrHeld)
				}
				w.clock.Advance(10 * time.Second)
				for _, s := range some {
					w.refused(s, "/locks/x", lock.ErrHeld)
				}
			}
			w.wanted("/locks/x", lock.MaxPolls)
			w.release(holder, "/locks/other", nil)
			w.refused(holder, "/locks/other", lock.ErrHeld)
			w.acquire(c, "/locks/other")
		})
	}
}

// Who has a nonce is known by that; others by their session, and when that has ended by account and address.
func TestWhoThePollerIs(t *testing.T) {
	for _, test := range []struct {
		name  string
		nonce string // of the first session
		ended bool   // it has ended
		again lock.Owner
		same  bool
	}{
		{"the same job", "job", false, lock.Owner{Account: "b", Address: "192.0.2.9", Nonce: "job"}, true},
		{"the nonce of another account", "job", false, lock.Owner{Account: "c", Address: "192.0.2.2", Nonce: "job"}, false},
		{"another job", "job", true, lock.Owner{Account: "b", Address: "192.0.2.2", Nonce: "other"}, false},
		{"without its nonce", "job", true, lock.Owner{Account: "b", Address: "192.0.2.2"}, false},
		{"connects anew", "", true, lock.Owner{Account: "b", Address: "192.0.2.2"}, true},
		{"a second connection", "", false, lock.Owner{Account: "b", Address: "192.0.2.2"}, false},
		{"from elsewhere", "", true, lock.Owner{Account: "b", Address: "192.0.2.3"}, false},
		{"somebody else", "", true, lock.Owner{Account: "c", Address: "192.0.2.2"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, ways(fair))
			holder := w.holder("a", "/locks/x")
			one, two := w.Open(lock.Owner{Account: "b", Address: "192.0.2.2", Nonce: test.nonce}), w.Open(test.again)
			w.polls(one, "/locks/x", 1, 0)
			if test.ended {
				w.end(one)
			}
			w.polls(two, "/locks/x", 1, 0)
			if !test.same {
				w.wanted("/locks/x", 0)
				return
			}
			w.wanted("/locks/x", 1)
			w.end(two)
			w.release(holder, "/locks/x", nil)
			w.refused(w.open("newcomer"), "/locks/x", lock.ErrHeld)
			w.acquire(w.Open(test.again), "/locks/x")
		})
	}
}

func TestClientsThatLookTheSameShareTheEarlierPlace(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		w := newWorld(t, ways(fair))
		w.holder("a", "/locks/x")
		both := []*lock.Session{w.open("b"), w.open("b")}
		w.polls(both[0], "/locks/x", 2, 10*time.Second)
		w.polls(w.open("c"), "/locks/x", 2, time.Second)
		w.polls(both[1], "/locks/x", 2, time.Second)
		for _, i := range order {
			w.end(both[i])
		}
		wantText(t, w.polls(w.open("b"), "/locks/x", 1, 0), "held by a@192.0.2.1 for 12s; place 1 of 2 in the queue, expires in 59m48s")
	}
}

func TestWhoAdoptsALockLeavesTheQueue(t *testing.T) {
	w := newWorld(t, ways(fair))
	w.acquire(w.job("a", "job"), "/locks/x")
	again := w.open("a")
	w.polls(again, "/locks/x", 2, time.Second)
	w.ok(again.SetNonce("job"))
	w.acquire(again, "/locks/x")
	w.wanted("/locks/x", 0)
	w.release(again, "/locks/x", nil)
	w.holder("newcomer", "/locks/x")
}

func TestPollersAndWaitersShareOneQueue(t *testing.T) {
	w := newWorld(t, ways(lock.Contention{Queue: lock.QueueFair, QueueHold: 15 * time.Second, Wait: 10 * time.Minute}))
	s := w.holder("a", "/locks/x")
	poller, later := w.open("poller"), w.open("later")
	w.polls(poller, "/locks/x", 2, time.Second)
	x := w.waits("b", "/locks/x")
	wantText(t, w.polls(later, "/locks/x", 1, 0), "held by a@192.0.2.1 for 1s; 2 in the queue, expires in 59m59s")
	wantText(t, w.polls(later, "/locks/x", 1, 0), "held by a@192.0.2.1 for 1s; place 3 of 3 in the queue, expires in 59m59s")
	w.release(s, "/locks/x", nil)
	x.stillWaits()
	wantText(t, w.polls(later, "/locks/x", 1, 0), "others came earlier, poller@192.0.2.1 is next; place 3 of 3 in the queue")
	w.acquire(poller, "/locks/x")
	w.release(poller, "/locks/x", nil)
	w.refused(later, "/locks/x", lock.ErrHeld)
	x.gets()
	w.refused(poller, "/locks/x", lock.ErrHeld) // at the end now
	w.release(x.s, "/locks/x", nil)
	w.acquire(later, "/locks/x")
}

// A waiter whose time is over becomes one that polls. If that is one too many of its account, the oldest is forgotten, and its
// turn may pass to that very waiter.
func TestATimedOutWaiterMayGetTheTurnOfTheOneThatIsForgotten(t *testing.T) {
	c := lock.Contention{Queue: lock.QueueFair, QueueHold: time.Hour, Limit: 2}
	w := newWorld(t, lock.Rule{Match: "/slots/*", Contention: &c})
	holder, first := w.open("a"), w.open("b")
	w.acquire(holder, "/slots/held")
	w.acquire(holder, "/slots/g")
	w.polls(first, "/slots/1", 2, 50*time.Second)
	waiter := w.open("b")
	waiter.SetWait(time.Second)
	x := w.waitsIn(waiter, "/slots/2")
	for range lock.MaxPolls - 1 {
		w.polls(w.open("b"), "/slots/held", 2, time.Microsecond)
	}
	w.release(holder, "/slots/g", nil)
	var queued *lock.QueuedError
	if err := w.refused(w.openAt("c", "192.0.2.3"), "/slots/3", lock.ErrHeld); !errors.As(err, &queued) { // it is kept for the first
		t.Errorf("refused with %v", err)
	}
	w.clock.Advance(time.Second)
	w.Expire(ctx)
	wantText(t, x.fails(lock.ErrHeld), "waited 1s: others came earlier, b@192.0.2.1 is next; place 2 of 2 in the queue")
	w.acquire(waiter, "/slots/2")
}

// So may it if what is forgotten is its own job's, which has waited beside and polls now.
func TestATimedOutWaiterMayGetTheTurnOfItsOwnJob(t *testing.T) {
	w := newWorld(t, ways(fair))
	s := w.holder("a", "/locks/x")
	one, two := w.job("b", "job"), w.job("b", "job")
	one.SetWait(time.Second)
	two.SetWait(2 * time.Second)
	x, y := w.waitsIn(one, "/locks/x"), w.waitsIn(two, "/locks/x")
	w.clock.Advance(time.Second)
	w.Expire(ctx)
	x.fails(lock.ErrHeld)
	w.release(s, "/locks/x", nil)
	w.clock.Advance(time.Second)
	w.Expire(ctx)
	y.fails(lock.ErrHeld)
	w.refused(w.open("c"), "/locks/x", lock.ErrHeld) // it is kept for the job
	w.acquire(two, "/locks/x")
}
