package journal

import (
	"errors"
	"iter"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// stopped takes the state directory of the scene, which no server uses.
func (s *scene) stopped() *Stopped {
	s.Helper()
	if err := os.MkdirAll(s.state, 0o700); err != nil {
		s.Fatal(err)
	}
	stopped, err := OpenStopped(s.state, s.clock, s.clock.boot)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { stopped.Close() })
	return stopped
}

// collect collects a history.
func collect(t *testing.T, history iter.Seq2[lock.Entry, error]) (entries []lock.Entry) {
	t.Helper()
	for e, err := range history {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

// lived returns a state directory of some starts: two locks are held, and others were.
func lived(t *testing.T) *scene {
	s := newScene(t)
	for range 3 {
		l := s.mustOpen()
		s.release(l, s.acquire(l, "/gone_lock"))
		l.Close()
	}
	l := s.mustOpen()
	h := s.acquire(l, "/a_lock")
	s.acquire(l, "/b_lock")
	h.Directory.Inode = 5
	s.commit(l, lock.Record{Kind: lock.Changed, Cause: lock.CauseDirectory, Hold: h, By: h.Owner, At: s.clock.Now()})
	s.commit(l, lock.Record{
		Kind: lock.Published, Cause: lock.CausePublish, Hold: h, By: h.Owner, At: s.clock.Now(),
		File: &lock.Publication{Path: "/a.tsv", Bytes: 7, SHA256: "00"},
	})
	l.Close()
	return s
}

// A move keeps holds, numbers and history, also if it is broken off at first.
func TestAMove(t *testing.T) {
	from, to := lived(t), newScene(t)
	to.clock = from.clock
	loaded, history, err := from.stopped().Export()
	if err != nil {
		t.Fatal(err)
	}
	if names(loaded) != "/a_lock /b_lock" || loaded.Holds[0].Directory.Inode != 5 || loaded.Last != 5 || loaded.Start != 4 {
		t.Errorf("exported %+v", loaded)
	}
	before := collect(t, history)
	if len(before) != 9 {
		t.Errorf("%d entries", len(before))
	}
	stopped := to.stopped()
	broken := errors.New("broken off")
	err = stopped.Import(loaded, func(yield func(lock.Entry, error) bool) { _ = yield(before[0], nil) && yield(lock.Entry{}, broken) })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if err := stopped.Import(loaded, history); err != nil {
		t.Fatal(err)
	}
	if err := stopped.Import(loaded, history); err == nil || !strings.Contains(err.Error(), "has locks already") {
		t.Errorf("twice: %v", err)
	}
	stopped.Close()
	l := to.mustOpen()
	if got := l.loaded; got.Last != 5 || got.Start != 5 || !reflect.DeepEqual(got.Holds, loaded.Holds) {
		t.Errorf("got  %+v\nwant %+v", got, loaded)
	}
	if after := collect(t, History(to.state, "")); !reflect.DeepEqual(before, after) {
		t.Errorf("the history was\n%+v and is\n%+v", before, after)
	}
}

func TestNoServerStartsWhereTheLocksHaveMovedAway(t *testing.T) {
	s := lived(t)
	stopped := s.stopped()
	loaded, history, err := stopped.Export()
	if err != nil {
		t.Fatal(err)
	}
	entries := collect(t, history)
	aside, err := stopped.Retire(time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(aside + "/00000001.jsonl"); err != nil {
		t.Error(err)
	}
	if _, _, err := stopped.Export(); err == nil || !strings.Contains(err.Error(), aside) {
		t.Errorf("Export: %v", err)
	}
	stopped.Close()
	if _, err := s.open(); err == nil || !strings.Contains(err.Error(), "have moved to another log") {
		t.Errorf("Open: %v", err)
	}
	stopped = s.stopped()
	err = stopped.Import(loaded, func(yield func(lock.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	stopped.Close()
	if l := s.mustOpen(); s.held(l) != "/a_lock /b_lock" {
		t.Errorf("held %s", s.held(l))
	}
}
