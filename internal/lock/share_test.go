package lock_test

import (
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

var together = lock.Contention{ReadersShare: true, Wait: time.Minute, QueueHold: 15 * time.Second}

func (w *world) reader(account string) *lock.Session {
	s := w.open(account)
	s.SetReader(true)
	return s
}

// heldBy checks who holds the lock, the oldest first. The store must agree.
func (w *world) heldBy(n lock.Name, accounts ...string) {
	w.t.Helper()
	status, _ := w.Get(n)
	stored := w.stored(n)
	if len(status.Holds) != len(accounts) || len(stored.Holds) != len(accounts) {
		w.t.Fatalf("%s has %d holds, %d stored, want %v", n, len(status.Holds), len(stored.Holds), accounts)
	}
	for i, a := range accounts {
		if status.Holds[i].Owner.Account != a || stored.Holds[i].Token != status.Holds[i].Token {
			w.t.Fatalf("%s: hold %d is of %s, want %s", n, i, status.Holds[i].Owner, a)
		}
	}
}

func TestWhoHoldsALockTogether(t *testing.T) {
	for _, test := range []struct {
		name         string
		c            lock.Contention
		first, other func(*world) *lock.Session
		shared       bool
	}{
		{"two readers", together,
			func(w *world) *lock.Session { return w.reader("a") }, func(w *world) *lock.Session { return w.reader("b") }, true},
		{"a writer after a reader", together,
			func(w *world) *lock.Session { return w.reader("a") }, func(w *world) *lock.Session { return w.open("b") }, false},
		{"a reader after a writer", together,
			func(w *world) *lock.Session { return w.open("a") }, func(w *world) *lock.Session { return w.reader("b") }, false},
		{"readers where they do not", lock.Contention{},
			func(w *world) *lock.Session { return w.reader("a") }, func(w *world) *lock.Session { return w.reader("b") }, false},
		{"two of the list", lock.Contention{Shared: []string{"a", "b"}},
			func(w *world) *lock.Session { return w.open("a") }, func(w *world) *lock.Session { return w.open("b") }, true},
		{"one that is not on the list", lock.Contention{Shared: []string{"a"}, ReadersShare: true},
			func(w *world) *lock.Session { return w.open("a") }, func(w *world) *lock.Session { return w.reader("b") }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, ways(test.c))
			first, other := test.first(w), test.other(w)
			if h := w.acquire(first, "/locks/x"); test.shared && !h.Shared {
				t.Error("it is not marked as shared")
			}
			if !test.shared {
				w.refused(other, "/locks/x", lock.ErrHeld)
				return
			}
			w.acquire(other, "/locks/x")
			w.heldBy("/locks/x", "a", "b")
			w.release(first, "/locks/x", nil)
			w.heldBy("/locks/x", "b")
			w.release(first, "/locks/x", lock.ErrNotYours)
			w.release(other, "/locks/x", nil)
			w.holds("/locks/x", "")
		})
	}
}

func TestAReaderHoldsItOnce(t *testing.T) {
	w := newWorld(t, ways(lock.Contention{ReadersShare: true}))
	s := w.reader("a")
	w.acquire(s, "/locks/x")
	w.refused(s, "/locks/x", lock.ErrHeld)
	w.heldBy("/locks/x", "a")
}

func TestAWaitingWriterStopsNewReaders(t *testing.T) {
	w := newWorld(t, ways(together))
	one, two := w.reader("r1"), w.reader("r2")
	w.acquire(one, "/locks/x")
	w.acquire(two, "/locks/x")
	writer := w.waits("w", "/locks/x")
	third, fourth := w.waitsIn(w.reader("r3"), "/locks/x"), w.waitsIn(w.reader("r4"), "/locks/x")
	last := w.waits("last", "/locks/x")
	err := w.refused(w.reader("r5"), "/locks/x", lock.ErrHeld)
	wantText(t, err, "others came earlier, w@192.0.2.1 is next; 4 in the queue")
	w.release(one, "/locks/x", nil)
	writer.stillWaits()
	w.release(two, "/locks/x", nil)
	third.stillWaits()
	writer.gets()
	w.release(writer.s, "/locks/x", nil)
	last.stillWaits()
	fourth.gets() // both are called
	third.gets()
	w.heldBy("/locks/x", "r4", "r3")
	w.release(third.s, "/locks/x", nil)
	last.stillWaits()
	w.release(fourth.s, "/locks/x", nil)
	last.gets()
}

func TestReadersGoOnWhenTheWriterGivesUp(t *testing.T) {
	w := newWorld(t, ways(together))
	w.acquire(w.reader("r1"), "/locks/x")
	writer := w.waits("w", "/locks/x")
	reader := w.waitsIn(w.reader("r2"), "/locks/x")
	writer.Withdraw()
	reader.gets()
	w.heldBy("/locks/x", "r1", "r2")
}

func TestASharedLockIsKeptForReadersThatPoll(t *testing.T) {
	w := newWorld(t, ways(lock.Contention{ReadersShare: true, Queue: lock.QueueFair, QueueHold: 15 * time.Second}))
	s := w.open("a")
	w.acquire(s, "/locks/x")
	one, two, writer := w.reader("r1"), w.reader("r2"), w.open("w")
	for range 2 {
		w.clock.Advance(time.Second)
		w.polls(one, "/locks/x", 1, 0)
		w.polls(two, "/locks/x", 1, 0)
		w.polls(writer, "/locks/x", 1, 0)
	}
	w.release(s, "/locks/x", nil)
	w.acquire(two, "/locks/x")
	w.refused(w.reader("r3"), "/locks/x", lock.ErrHeld)
	w.acquire(one, "/locks/x")
	w.refused(writer, "/locks/x", lock.ErrHeld)
}

func TestSharedHoldsIdleUntilTheLastOfThem(t *testing.T) {
	rule := ways(lock.Contention{ReadersShare: true})
	rule.MaxIdle = time.Minute
	w := newWorld(t, rule)
	one, two := w.reader("a"), w.reader("b")
	w.acquire(one, "/locks/x")
	w.acquire(two, "/locks/x")
	w.clock.Advance(40 * time.Second)
	two.Touch()
	wantText(t, w.refused(w.open("c"), "/locks/x", lock.ErrHeld), "held by a@192.0.2.1 for 40s, expires in 59m20s or 1m0s after its last sign of life")
	if status, _ := w.Get("/locks/x"); status.Remaining != time.Minute || status.Idle != time.Minute {
		t.Errorf("%+v", status)
	}
}

// RMD of a shared lock ends the session's own hold, else the account's oldest whose session has ended.
func TestWhichSharedHoldAReleaseEnds(t *testing.T) {
	w := newWorld(t, ways(lock.Contention{ReadersShare: true}))
	one, two, three := w.reader("a"), w.reader("a"), w.reader("a")
	first, second, third := w.acquire(one, "/locks/x"), w.acquire(two, "/locks/x"), w.acquire(three, "/locks/x")
	stands := func(want ...lock.Hold) {
		t.Helper()
		status, _ := w.Get("/locks/x")
		if len(status.Holds) != len(want) {
			t.Fatalf("%d holds", len(status.Holds))
		}
		for i := range want {
			if status.Holds[i].Token != want[i].Token {
				t.Fatalf("hold %d has token %d, want %d", i, status.Holds[i].Token, want[i].Token)
			}
		}
	}
	newer := w.reader("a")
	w.release(newer, "/locks/x", lock.ErrNotYours) // all their sessions live
	w.end(two)
	w.end(one)
	w.release(three, "/locks/x", nil)
	stands(first, second)
	w.release(newer, "/locks/x", nil)
	stands(second)
	w.release(newer, "/locks/x", nil)
	stands()
	_ = third
}

func TestSharedHoldsSurviveARestartAsShared(t *testing.T) {
	w := newWorld(t, ways(together))
	w.acquire(w.reader("a"), "/locks/x")
	w.start(ways(together))
	w.acquire(w.reader("b"), "/locks/x")
	w.refused(w.open("c"), "/locks/x", lock.ErrHeld)
	w.heldBy("/locks/x", "a", "b")
}

func TestSharedHoldsEndOneByOne(t *testing.T) {
	rule := lock.Rule{Match: "/locks/**", MaxAge: time.Minute, OnDisconnect: lock.ReleaseOnDisconnect, LockDelay: 5 * time.Second, Contention: &together}
	w := newWorld(t, rule)
	one, two, three := w.reader("a"), w.reader("b"), w.reader("c")
	w.acquire(one, "/locks/x")
	w.clock.Advance(10 * time.Second)
	w.acquire(two, "/locks/x")
	w.acquire(three, "/locks/x")
	w.end(three)
	w.heldBy("/locks/x", "a", "b")
	w.acquire(w.reader("d"), "/locks/x") // lock_delay is for those who would be alone with it
	w.clock.Advance(50 * time.Second)
	w.expires("/locks/x")
	w.heldBy("/locks/x", "b", "d")
	w.release(two, "/locks/x", nil)
	w.clock.Advance(time.Minute)
	w.expires("/locks/x")
	w.empty()
}

func TestAReaderWhoJoinsDoesNotEndTheDelay(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/locks/**", LockDelay: 5 * time.Second, Contention: &together})
	one, two, three := w.reader("a"), w.reader("b"), w.reader("c")
	w.acquire(one, "/locks/x")
	lost := w.acquire(two, "/locks/x")
	if err := w.Break(ctx, "/locks/x", lost.Token, lock.Owner{}, ""); err != nil {
		t.Fatal(err)
	}
	w.acquire(three, "/locks/x")
	w.release(three, "/locks/x", nil)
	w.release(one, "/locks/x", nil)
	wantText(t, w.refused(w.open("w"), "/locks/x", lock.ErrHeld), "kept back for 5s after it was taken away")
	w.clock.Advance(5 * time.Second)
	w.expires()
	w.acquire(w.open("w"), "/locks/x")
}

func TestAdoptionKeepsAHoldShared(t *testing.T) {
	w := newWorld(t, ways(lock.Contention{ReadersShare: true}))
	one := w.job("a", "job")
	one.SetReader(true)
	w.acquire(one, "/locks/x")
	w.acquire(w.reader("b"), "/locks/x")
	two := w.job("a", "job")
	two.SetReader(true)
	if h := w.acquire(two, "/locks/x"); !h.Shared {
		t.Error("it is not shared any more")
	}
	w.heldBy("/locks/x", "b", "a")
}

func TestTheHolderTakesItAgain(t *testing.T) {
	w := newWorld(t, ways(lock.Contention{Reentrant: true}))
	s, other := w.open("a"), w.open("b")
	first := w.acquire(s, "/locks/x")
	w.clock.Advance(30 * time.Minute)
	again := w.acquire(s, "/locks/x")
	if again.Token != first.Token || again.Renewed.Boot != first.Renewed.Boot+30*time.Minute {
		t.Errorf("taken again: %+v", again)
	}
	w.acquire(s, "/locks/x")
	w.refused(other, "/locks/x", lock.ErrHeld)
	for _, want := range []int{2, 1, 0} {
		w.holds("/locks/x", "a")
		left, _, err := s.ReleaseOrWait(ctx, "/locks/x", nil)
		if left != want || err != nil {
			t.Errorf("%d releases to go, want %d; %v", left, want, err)
		}
	}
	w.holds("/locks/x", "")
	w.acquire(other, "/locks/x")
}

func TestAnUndeliveredSecondGrantLeavesTheFirst(t *testing.T) {
	w := newWorld(t, ways(lock.Contention{Reentrant: true}))
	s := w.open("a")
	h := w.acquire(s, "/locks/x")
	w.acquire(s, "/locks/x")
	if err := s.Undo(ctx, "/locks/x", h.Token); err != nil {
		t.Fatal(err)
	}
	w.holds("/locks/x", "a")
	if err := s.Undo(ctx, "/locks/x", h.Token); err != nil {
		t.Fatal(err)
	}
	w.holds("/locks/x", "")
}
