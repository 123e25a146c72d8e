package lock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// deadlocks has the session try, by waiting if the rule has it wait, and be told of a deadlock.
func (w *world) deadlocks(s *lock.Session, n lock.Name, text string) {
	w.t.Helper()
	_, waiting, err := s.AcquireOrWait(ctx, n, func() {})
	var deadlock *lock.DeadlockError
	if waiting != nil || !errors.As(err, &deadlock) || !errors.Is(err, lock.ErrHeld) {
		w.t.Fatalf("waits %v, error %v", waiting != nil, err)
	}
	wantText(w.t, err, text)
}

func TestTwoThatWaitForEachOther(t *testing.T) {
	w := newWorld(t, ways(usual))
	a, b := w.holder("a", "/locks/1"), w.holder("b", "/locks/2")
	x := w.waitsIn(a, "/locks/2")
	w.deadlocks(b, "/locks/1", "deadlock: /locks/1 is held by a@192.0.2.1, who waits for /locks/2, which is yours")
	x.Withdraw()
	w.waitsIn(b, "/locks/1")
}

func TestTwoThatPollForEachOther(t *testing.T) {
	w := newWorld(t, ways(fair))
	a, b := w.holder("a", "/locks/1"), w.holder("b", "/locks/2")
	w.polls(b, "/locks/1", 1, 0)
	if err := w.polls(a, "/locks/2", 2, time.Second); errors.As(err, new(*lock.DeadlockError)) { // with one that tried once only
		t.Error(err)
	}
	w.deadlocks(b, "/locks/1", "deadlock: /locks/1 is held by a@192.0.2.1, who waits for /locks/2, which is yours")
	w.refused(a, "/locks/2", lock.ErrHeld)
	w.release(b, "/locks/2", nil)
	w.acquire(a, "/locks/2")
}

func TestACycleOfThree(t *testing.T) {
	w := newWorld(t, ways(usual))
	a, b, c := w.holder("a", "/locks/1"), w.holder("b", "/locks/2"), w.holder("c", "/locks/3")
	w.waitsIn(a, "/locks/2")
	w.waitsIn(b, "/locks/3")
	w.waits("d", "/locks/1") // no part of it
	w.deadlocks(c, "/locks/1", "deadlock: /locks/1 is held by a@192.0.2.1, who waits for /locks/2, which is held by b@192.0.2.1, who waits for /locks/3, which is yours")
}

func TestADeadlockWithOneOfSeveralReaders(t *testing.T) {
	w := newWorld(t, ways(together))
	one, two, writer := w.reader("r1"), w.reader("r2"), w.open("w")
	w.acquire(one, "/locks/1")
	w.acquire(two, "/locks/1")
	w.acquire(writer, "/locks/2")
	w.waitsIn(two, "/locks/2")
	w.deadlocks(writer, "/locks/1", "deadlock: /locks/1 is held by r2@192.0.2.1, who waits for /locks/2, which is yours")
}

func TestAFullLimitIsADeadlockOnlyIfAllItsHoldersWait(t *testing.T) {
	w := newWorld(t, slots(2), ways(usual))
	a, b, c := w.holder("a", "/slots/p/1"), w.holder("b", "/slots/p/2"), w.holder("c", "/locks/x")
	w.waitsIn(a, "/locks/x")
	x := w.waitsIn(c, "/slots/p/3") // b may give its place back
	x.Withdraw()
	w.waitsIn(b, "/locks/x")
	var deadlock *lock.DeadlockError
	if _, _, err := c.AcquireOrWait(ctx, "/slots/p/3", func() {}); !errors.As(err, &deadlock) {
		t.Errorf("error %v", err)
	}
}

func TestADeadlockIsSeenThroughTheNonce(t *testing.T) {
	w := newWorld(t, ways(usual))
	a, again, b := w.job("a", "job"), w.job("a", "job"), w.open("b")
	w.acquire(a, "/locks/1")
	w.acquire(b, "/locks/2")
	w.waitsIn(b, "/locks/1")
	w.deadlocks(again, "/locks/2", "deadlock: /locks/2 is held by b@192.0.2.1, who waits for /locks/1, which is yours")
}

// A deadlock that a grant makes is seen by the next try of who got it, and by others not taken for theirs.
func TestADeadlockThatAGrantMakes(t *testing.T) {
	w := newWorld(t, ways(fair))
	a, b, other := w.open("a"), w.open("b"), w.open("other")
	w.acquire(a, "/locks/1")
	w.acquire(other, "/locks/2")
	w.polls(b, "/locks/1", 2, time.Second)
	w.polls(b, "/locks/2", 2, time.Second)
	a.SetWait(time.Minute)
	w.waitsIn(a, "/locks/2")
	w.release(other, "/locks/2", nil)
	w.acquire(b, "/locks/2")
	if err := w.refused(other, "/locks/2", lock.ErrHeld); errors.As(err, new(*lock.DeadlockError)) {
		t.Error(err)
	}
	w.deadlocks(b, "/locks/1", "deadlock: /locks/1 is held by a@192.0.2.1, who waits for /locks/2, which is yours")
}
