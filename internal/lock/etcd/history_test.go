//go:build linux

package etcd

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// history are the causes and tokens of what happened to a name.
func (s *scene) history(c *Cluster, name lock.Name) (all []lock.Entry) {
	s.Helper()
	for entry, err := range c.History(s.Context(), name) {
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, entry)
	}
	return all
}

func TestHistoryTellsWhatHappened(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	const name = "/%a \xff\"_lock"
	token := s.Acquire(active, name, "ada")
	s.Acquire(active, name+"2", "ben")
	p := lock.Publication{Lock: name, Token: token, By: locktest.Ada, File: "/a.tsv", Bytes: 3, SHA256: "ba78", Note: "done"}
	if err := active.Published(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	s.clock.Advance(time.Minute)
	s.Release(active, name, token)
	got := s.history(c, name)
	if len(got) != 3 || got[0].Cause != lock.CauseAcquire || got[1].Cause != lock.CausePublish || got[2].Cause != lock.CauseRelease {
		t.Fatalf("got %+v", got)
	}
	if e := got[0]; e.Name != name || e.Token != token || len(e.Holds) != 1 || e.Holds[0].Token != token || e.By != locktest.Ada || e.At.Wall.IsZero() {
		t.Errorf("the acquire: %+v", e)
	}
	if e := got[1]; e.Token != token || e.File != p.File || e.Bytes != 3 || e.SHA256 != p.SHA256 || e.Note != p.Note || len(e.Holds) != 0 {
		t.Errorf("the publication: %+v", e)
	}
	if e := got[2]; e.Token <= token || len(e.Holds) != 0 || e.Held.Round(time.Minute) != time.Minute {
		t.Errorf("the release: %+v", e)
	}
	if got := s.history(c, "/a.tsv"); len(got) != 1 || got[0].By != locktest.Ada {
		t.Errorf("of the file: %+v", got)
	}
}

func TestOldHistoryGoes(t *testing.T) {
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
		s.Acquire(active, name, "ada")
		s.clock.Advance(10 * time.Minute)
		want = append(want, name)
	}
	active.halt() // its lease may be over by its clock
	sweep()
	if got := names(); !slices.Equal(got, want[4:]) {
		t.Errorf("by age: %q stay", got)
	}
	c.o.HistorySize = active.Size()/2 + 100 // lines differ by a few bytes
	sweep()
	if got := names(); !slices.Equal(got, want[7:]) || active.Size() > c.o.HistorySize {
		t.Errorf("by size: %q stay, %d bytes", got, active.Size())
	}
	size := active.Size()
	if err := active.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := s.campaign(c)
	if next.Size() > size || next.Size() == 0 {
		t.Errorf("the next term counts %d bytes, not %d", next.Size(), size)
	}
	if got := len(s.Records(next)); got != len(want) {
		t.Errorf("%d locks are held, want %d", got, len(want))
	}
}

// What is not settled is settled by its line: it stays, though there are too many bytes, or all lines are too old.
func TestSweepSparesWhatIsNotSettled(t *testing.T) {
	for _, byAge := range []bool{false, true} {
		t.Run(fmt.Sprint("by age=", byAge), func(t *testing.T) {
			s := newScene(t, 1)
			o := s.options()
			if o.HistorySize = 1; byAge {
				o.HistorySize, o.HistoryAge = 0, time.Hour
			}
			c := s.open(o)
			active := s.campaign(c)
			active.halt() // its lease is over by its clock
			s.Acquire(active, "/a_lock", "ada")
			w := &write{name: "/b_lock", value: encodeEntry(lock.Entry{Cause: lock.CauseAcquire, Name: "/b_lock", Note: "b", At: s.clock.Now()}, 0)}
			active.place(w)
			if a := active.try(t.Context(), w); a.outcome != made {
				t.Fatal(a)
			}
			s.Acquire(active, "/c_lock", "ada")
			s.clock.StepWall(2 * time.Hour)
			if err := active.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if a := active.settle(t.Context(), w); a.outcome != made {
				t.Error("its line is gone")
			}
			active.placed(w)
			if err := active.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := s.lines(c); len(got) != 0 {
				t.Errorf("%v stay", got)
			}
		})
	}
}

// The next server has removed the line by which a server that was replaced would find out what became of its change.
func TestAChangeWhoseLineWasRemovedIsNotCalledUndone(t *testing.T) {
	s := newScene(t, 1)
	o := s.options()
	o.HistorySize = 1
	c := s.open(o)
	before := s.campaign(c)
	s.Acquire(before, "/a_lock", "ada")
	w := &write{name: "/b_lock", value: encodeEntry(lock.Entry{Cause: lock.CauseAcquire, Name: "/b_lock", Note: "b"}, 0)}
	before.place(w)
	if a := before.try(t.Context(), w); a.outcome != made {
		t.Fatal(a)
	}
	before.halt()
	if err := c.revoke(t.Context(), before.lease); err != nil {
		t.Fatal(err)
	}
	next := s.campaign(c)
	s.Acquire(next, "/c_lock", "ben")
	if err := next.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Acquire(next, "/d_lock", "ben")
	if a := before.settle(t.Context(), w); a.outcome != unknown {
		t.Errorf("settled as %d", a.outcome)
	}
	if a := before.try(t.Context(), w); a.outcome != unknown {
		t.Errorf("sent again it has come to %d", a.outcome)
	}
}
