//go:build linux

package etcd

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestHistoryIsWrittenWithinASecond(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	s.release(active, s.acquire(active, "/a_lock"))
	s.until("it is written", func() bool { return slices.Equal(s.history(c), []string{"acquire /a_lock", "release /a_lock"}) })
	s.acquire(active, "/b_lock")
	s.resign(active)
	if got := s.history(c); len(got) != 3 {
		t.Errorf("after the end of the term it is %v", got)
	}
}

func TestSweepRemovesOldHistory(t *testing.T) {
	s := newScene(t, 1)
	o := s.options()
	o.HistoryAge = time.Hour
	c := s.open(o)
	active := s.campaign(c)
	sweep := func() {
		t.Helper()
		if err := active.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for i := range 9 {
		name := lock.Name(fmt.Sprintf("/%d_lock", i))
		s.acquire(active, name)
		if err := active.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.clock.Advance(10 * time.Minute)
		want = append(want, "acquire "+string(name))
	}
	active.halt() // its lease may be over by its clock
	sweep()
	if got := s.history(c); !slices.Equal(got, want[4:]) {
		t.Errorf("after a sweep by age: %q", got)
	}
	c.o.HistorySize = active.Size()/2 + 20 // chunks differ by a few bytes
	sweep()
	if got := s.history(c); !slices.Equal(got, want[7:]) || active.Size() > c.o.HistorySize {
		t.Errorf("after a sweep by size: %q, %d bytes", got, active.Size())
	}
	size := active.Size()
	s.resign(active)
	next := s.campaign(c)
	if next.Size() > size || next.Size() == 0 {
		t.Errorf("the next term counts %d bytes, not %d", next.Size(), size)
	}
}
