//go:build linux

package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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

// A server that is killed right after a 257 has not written the entry of the grant.
func TestTheNextTermWritesLostEntriesOfGrants(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	h := s.acquire(active, "/a_lock")
	s.acquire(active, "/b_lock")
	if err := active.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.release(active, h) // the last chunk may have no grant
	if err := active.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := s.history(c)
	end := c.keys.chunk(active.nextOffset.Load())
	for _, name := range []lock.Name{"/c_lock", "/d_lock"} {
		s.acquire(active, name)
		want = append(want, "acquire "+string(name))
	}
	active.halt()
	active.Close()
	s.must(c, func(ctx context.Context, client *clientv3.Client) error { // in case that a beat was due
		_, err := client.Delete(ctx, end, clientv3.WithRange(clientv3.GetPrefixRangeEnd(c.keys.history())))
		return errors.Join(err, c.revoke(ctx, active.lease))
	})
	for range 2 {
		active = s.campaign(c)
		if _, err := active.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := active.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.history(c); !slices.Equal(got, want) {
			t.Errorf("the history of term %d is %q, want %q", active.Generation(), got, want)
		}
		s.resign(active)
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
