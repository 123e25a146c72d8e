package lock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func slots(limit int) lock.Rule {
	return lock.Rule{Match: "/slots/*/*", MaxAge: time.Hour, Contention: &lock.Contention{
		Limit: limit, Wait: time.Minute, Queue: lock.QueueFair, QueueHold: 15 * time.Second, ReadersShare: true,
	}}
}

func TestSoManyLocksBelowOneDirectory(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/slots/p/free*"}, slots(2))
	s := w.holder("a", "/slots/p/free1", "/slots/p/1", "/slots/p/2", "/slots/p/free2") // those of another rule do not count
	b := w.open("b")
	wantText(t, w.refused(b, "/slots/p/3", lock.ErrHeld), "there may be 2 such locks, and so many are held")
	wantText(t, w.refused(b, "/slots/p/3", lock.ErrHeld), "there may be 2 such locks, and so many are held; place 1 of 1 in the queue")
	wantText(t, w.refused(b, "/slots/p/2", lock.ErrHeld), "held by a@192.0.2.1 for 0s; 1 in the queue, expires in 1h0m0s")
	w.acquire(b, "/slots/q/1") // another directory
	w.release(s, "/slots/p/1", nil)
	w.refused(w.open("newcomer"), "/slots/p/4", lock.ErrHeld)
	w.acquire(b, "/slots/p/3")
	w.refused(b, "/slots/p/4", lock.ErrHeld)
}

func TestAFreedPlaceGoesToTheFirstWhoCanUseIt(t *testing.T) {
	w := newWorld(t, slots(2))
	s := w.holder("a", "/slots/p/1", "/slots/p/2")
	same, other, third := w.waits("b", "/slots/p/2"), w.waits("c", "/slots/p/3"), w.waits("d", "/slots/p/4")
	w.wanted("/slots/p/1", 3)
	w.release(s, "/slots/p/1", nil)
	same.stillWaits() // its name is held
	third.stillWaits()
	other.gets()
	w.release(s, "/slots/p/2", nil)
	third.stillWaits()
	same.gets()
	w.release(other.s, "/slots/p/3", nil)
	third.gets()
	w.release(third.s, "/slots/p/4", nil)
	w.release(same.s, "/slots/p/2", nil)
	w.empty()
}

func TestReadersTogetherTakeOnePlace(t *testing.T) {
	w := newWorld(t, slots(1))
	one, two := w.reader("a"), w.reader("b")
	w.acquire(one, "/slots/p/1")
	w.acquire(two, "/slots/p/1")
	x := w.waitsIn(w.reader("c"), "/slots/p/2")
	w.release(one, "/slots/p/1", nil)
	x.stillWaits()
	w.release(two, "/slots/p/1", nil)
	x.gets()
}

func TestOnesOwnLocksThatFillTheLimitAreNoDeadlock(t *testing.T) {
	w := newWorld(t, slots(2))
	s := w.holder("a", "/slots/p/1", "/slots/p/2")
	s.SetWait(time.Hour) // it would wait for itself
	for range 2 {
		_, waiting, err := s.AcquireOrWait(ctx, "/slots/p/3", func() {})
		if waiting != nil || !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("it waits: %v", err)
		}
		wantText(t, err, "there may be 2 such locks, and so many are held")
	}
}

func TestALimitThatIsRaisedLetsOthersIn(t *testing.T) {
	w := newWorld(t, slots(1))
	w.holder("a", "/slots/p/1")
	x := w.waits("b", "/slots/p/2")
	w.reload(slots(2))
	x.gets()
}

func TestALimitThatIsMadeKeepsTheOrderOverNames(t *testing.T) {
	for range 10 { // the table goes through its names in any order
		w := newWorld(t, slots(0))
		s := w.open("a")
		var all []*waiter
		for _, n := range []lock.Name{"/slots/p/1", "/slots/p/2", "/slots/p/3"} {
			w.acquire(s, n)
		}
		for _, n := range []lock.Name{"/slots/p/2", "/slots/p/3", "/slots/p/1"} {
			all = append(all, w.waits("b", n))
		}
		w.reload(slots(1))
		for _, n := range []lock.Name{"/slots/p/1", "/slots/p/2", "/slots/p/3"} {
			w.release(s, n, nil)
		}
		for i, x := range all {
			for _, behind := range all[i+1:] {
				behind.stillWaits()
			}
			x.gets()
			w.release(x.s, x.name, nil)
		}
		w.empty()
	}
}
