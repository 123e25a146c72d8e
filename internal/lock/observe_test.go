package lock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// observed makes the world's log keep what the table tells, a line for each.
func (w *world) observed() (lines *[]string) {
	lines = new([]string)
	w.observe = func(o lock.Observation) {
		what := "granted"
		if o.Ended {
			what = "ended"
		}
		line := fmt.Sprintf("%s %s %s by %s token %d", what, o.Name, o.Cause, o.Hold.Owner.Account, o.Hold.Token)
		for _, d := range []struct {
			name string
			is   time.Duration
		}{{"waited", o.Waited}, {"free", o.Free}, {"held", o.Held}, {"late", o.Late}} {
			if d.is > 0 {
				line += fmt.Sprintf(" %s %v", d.name, d.is)
			}
		}
		*lines = append(*lines, line)
	}
	return lines
}

func TestGrantsAndEndsAreObservedInOrder(t *testing.T) {
	w := newWorld(t, ways(usual))
	lines := w.observed()
	a := w.holder("a", "/locks/x")
	x := w.waits("x", "/locks/x")
	w.clock.Advance(3 * time.Second)
	w.release(a, "/locks/x", nil)
	w.clock.Advance(2 * time.Millisecond)
	x.gets()
	w.refused(a, "/locks/x", lock.ErrHeld)
	w.clock.Advance(time.Hour + time.Second)
	w.Expire(ctx)
	job := w.job("j", "word")
	w.acquire(job, "/locks/y")
	w.acquire(w.job("j", "word"), "/locks/y") // adopts it: no end
	w.ok(w.breaks("/locks/y", lock.Owner{Account: "root"}, "stuck"))
	want := []string{
		"granted /locks/x acquire by a token 1",
		"ended /locks/x release by a token 1 held 3s",
		"granted /locks/x acquire by x token 3 waited 3.002s free 2ms",
		"ended /locks/x expire by x token 3 held 1h0m1s late 1s",
		"granted /locks/y acquire by j token 5",
		"granted /locks/y adopt by j token 6",
		"ended /locks/y break by j token 6",
	}
	if !slices.Equal(*lines, want) {
		t.Errorf("observed\n%q, want\n%q", *lines, want)
	}
}

func TestTheQueueAndTheCountsAreSeen(t *testing.T) {
	w := newWorld(t, ways(lock.Contention{Wait: 30 * time.Second, Queue: lock.QueueFair, QueueHold: 15 * time.Second, Members: lock.MembersAnyone}))
	seen := func(holds, waiting int, queue string) {
		t.Helper()
		if got := w.Count(); got != (lock.Count{Holds: holds, Waiting: waiting}) {
			t.Errorf("%+v, want %d and %d", got, holds, waiting)
		}
		got := ""
		for _, q := range w.Queue("/locks/x") {
			got += fmt.Sprint(q.Owner.Account, " ", q.Polls, ";")
		}
		if got != queue {
			t.Errorf("the queue is %s, want %s", got, queue)
		}
	}
	a := w.open("a")
	seen(0, 0, "")
	w.acquire(a, "/locks/x")
	x := w.waits("x", "/locks/x")
	poller := w.open("p")
	poller.SetWait(0)
	w.refused(poller, "/locks/x", lock.ErrHeld)
	w.clock.Advance(time.Second)
	w.refused(poller, "/locks/x", lock.ErrHeld)
	seen(1, 2, "x false;p true;")
	w.reload(ways(lock.Contention{Wait: 30 * time.Second, Members: lock.MembersAnyone}))
	seen(1, 1, "x false;") // no places are kept any more
	w.release(a, "/locks/x", nil)
	x.gets()
	seen(1, 0, "")
	w.release(x.s, "/locks/x", nil)
	seen(0, 0, "")
}
