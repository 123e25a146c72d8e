//go:build linux

package etcd

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// A process that reads the history sees an entry soon, also when nothing else is written.
func TestHistoryIsWrittenWithinASecond(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	s.release(active, s.acquire(active, "/a_lock"))
	s.until("it is written", func() bool { return slices.Equal(s.causes(c), []lock.Cause{lock.CauseAcquire, lock.CauseRelease}) })
	s.acquire(active, "/b_lock")
	s.resign(active)
	if got := s.causes(c); len(got) != 3 {
		t.Errorf("after the end of the term it is %v", got)
	}
}

func TestSweepRemovesOldHistory(t *testing.T) {
	s := newScene(t, 1)
	o := s.options()
	o.HistoryAge = time.Hour
	c := s.open(o)
	active := s.campaign(c)
	names := func() (all []lock.Name) {
		for entry, err := range c.entries(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, entry.Name)
		}
		return all
	}
	sweep := func() {
		t.Helper()
		if err := active.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var want []lock.Name
	for i := range 9 {
		name := lock.Name(fmt.Sprintf("/%d_lock", i))
		s.acquire(active, name)
		if err := active.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.clock.Advance(10 * time.Minute)
		want = append(want, name)
	}
	active.halt() // its lease may be over by its clock
	sweep()
	if got := names(); !slices.Equal(got, want[4:]) {
		t.Errorf("by age: %q stay", got)
	}
	c.o.HistorySize = active.Size()/2 + 20 // chunks differ by a few bytes
	sweep()
	if got := names(); !slices.Equal(got, want[7:]) || active.Size() > c.o.HistorySize {
		t.Errorf("by size: %q stay, %d bytes", got, active.Size())
	}
	size := active.Size()
	s.resign(active)
	next := s.campaign(c)
	if next.Size() > size || next.Size() == 0 {
		t.Errorf("the next term counts %d bytes, not %d", next.Size(), size)
	}
	if got := len(s.holds(c)); got != len(want) {
		t.Errorf("%d locks are held, want %d", got, len(want))
	}
}
