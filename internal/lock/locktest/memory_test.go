package locktest

import (
	"context"
	"errors"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestMemoryInjectedErrorsChangeNothing(t *testing.T) {
	m, boom := NewMemory(), errors.New("boom")
	m.Inject(func(c lock.Change) error {
		if c.Name == "/bad" {
			return boom
		}
		return nil
	})
	f := &fixture{Moves{TB: t}, m}
	if _, err := f.Commit(m, "/bad", 0, hold("ada")); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	f.holders("/bad")
	f.must("/good", 0, hold("ada"))
	m.Inject(nil)
	f.must("/bad", 0, hold("ada"))
}

func TestMemoryLostRepliesLeaveTheChange(t *testing.T) {
	m := NewMemory()
	m.InjectAfter(func(lock.Change) error { return lock.ErrUncertain })
	f := &fixture{Moves{TB: t}, m}
	if _, err := f.Commit(m, "/a", 0, hold("ada")); !errors.Is(err, lock.ErrUncertain) {
		t.Errorf("got %v", err)
	}
	f.holders("/a", "ada")
}

func TestMemoryTellsEveryWatchOfOutsiders(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m := NewMemory()
	watches := [2]func() lock.Event{}
	for i := range watches {
		events := m.Watch(ctx)
		watches[i] = func() (got lock.Event) {
			for got = range events {
				break
			}
			return got
		}
	}
	f := &fixture{Moves{TB: t}, m}
	token := f.must("/a", 0, hold("ada"))
	want := m.Outside("/a", lock.CauseHostMade, hold("host"))
	if want.Record.Revision <= token || want.Record.Holds[0].Token != want.Record.Revision {
		t.Errorf("got %+v after revision %d", want, token)
	}
	for _, next := range watches {
		if got := next(); got.Cause != lock.CauseHostMade || got.Record.Revision != want.Record.Revision {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	f.conflict("/a", token)
	if gone := m.Outside("/a", lock.CauseHostGone); len(gone.Record.Holds) != 0 {
		t.Errorf("got %+v", gone)
	}
	f.must("/a", 0, hold("ada"))
}
