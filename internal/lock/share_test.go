package lock_test

import (
	"slices"
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

func TestWhoHoldsALockTogether(t *testing.T) {
	for _, test := range []struct {
		name         string
		c            lock.Contention
		first, other func(w *world, account string) *lock.Session
		shared       bool
	}{
		{"two readers", together, (*world).reader, (*world).reader, true},
		{"a writer after a reader", together, (*world).reader, (*world).open, false},
		{"a reader after a writer", together, (*world).open, (*world).reader, false},
		{"readers where they do not", lock.Contention{}, (*world).reader, (*world).reader, false},
		{"two of the list", lock.Contention{Shared: []string{"a", "b"}}, (*world).open, (*world).open, true},
		{"one that is not on the list", lock.Contention{Shared: []string{"a"}, ReadersShare: true}, (*world).open, (*world).reader, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, ways(test.c))
			first, other := test.first(w, "a"), test.other(w, "b")
			w.acquire(first, "/locks/x")
			if !test.shared {
				w.refused(other, "/locks/x", lock.ErrHeld)
				return
			}
			w.start(ways(test.c)) // they share it over a restart, too
			first, other = test.first(w, "a"), test.other(w, "b")
			w.acquire(other, "/locks/x")
			w.refused(other, "/locks/x", lock.ErrHeld) // once is enough
			w.heldBy("/locks/x", "a", "b")
			w.release(first, "/locks/x", nil)
			w.heldBy("/locks/x", "b")
			w.release(first, "/locks/x", lock.ErrNotYours)
			w.release(other, "/locks/x", nil)
			w.holds("/locks/x", "")
		})
	}
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
	s := w.holder("a", "/locks/x")
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
	one, two, three, newer := w.reader("a"), w.reader("a"), w.reader("a"), w.reader("a")
	first, second := w.acquire(one, "/locks/x"), w.acquire(two, "/locks/x")
	w.acquire(three, "/locks/x")
	w.release(newer, "/locks/x", lock.ErrNotYours) // all their sessions live
	w.end(two)
	w.end(one)
	for _, by := range []struct {
		session *lock.Session
		left    []lock.Hold
	}{{three, []lock.Hold{first, second}}, {newer, []lock.Hold{second}}, {newer, nil}} {
		w.release(by.session, "/locks/x", nil)
		status, _ := w.Get("/locks/x")
		if !slices.EqualFunc(status.Holds, by.left, func(a, b lock.Hold) bool { return a.Token == b.Token }) {
			t.Fatalf("it is held by %+v, want %+v", status.Holds, by.left)
		}
	}
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
	w.pass(50*time.Second, "/locks/x")
	w.heldBy("/locks/x", "b", "d")
	w.release(two, "/locks/x", nil)
	w.pass(time.Minute, "/locks/x")
	w.empty()
}

func TestAReaderWhoJoinsDoesNotEndTheDelay(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/locks/**", LockDelay: 5 * time.Second, Contention: &together})
	one, two, three := w.reader("a"), w.reader("b"), w.reader("c")
	w.acquire(one, "/locks/x")
	lost := w.acquire(two, "/locks/x")
	w.ok(w.Break(ctx, "/locks/x", lost.Token, lock.Owner{}, ""))
	w.acquire(three, "/locks/x")
	w.release(three, "/locks/x", nil)
	w.release(one, "/locks/x", nil)
	wantText(t, w.refused(w.open("w"), "/locks/x", lock.ErrHeld), "kept back for 5s after it was taken away")
	w.pass(5 * time.Second)
	w.holder("w", "/locks/x")
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
	w.acquire(s, "/locks/x")
	w.ok(s.Undo(ctx, "/locks/x", first.Token)) // the client was not told of the last one
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
