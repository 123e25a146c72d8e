package web

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/status"
)

// openView opens a view and returns its locks as they are shown.
func (b *board) openView(t *testing.T, v view) string {
	t.Helper()
	b.open(v)
	return b.shows(t, v)
}

func (b *board) shows(t *testing.T, v view) string {
	t.Helper()
	all, _, err := b.now(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(all[locksPart].html)
}

func TestPagesShareUpdatesAndLeaveTheServerTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ took, least time.Duration }{{0, refresh}, {200 * time.Millisecond, 2 * time.Second}} {
			h := &house{slow: c.took}
			s := New(Options{Source: h})
			for i := range 100 {
				s.board.open(view{Filter: fmt.Sprint(i), Page: 1})
			}
			const minute = time.Minute
			h.updates = 0
			for began := time.Now(); time.Since(began) < minute; time.Sleep(refresh) {
				s.Sink([]event.Event{{Kind: event.Acquire}})
				s.board.tick()
			}
			if most := int(minute/c.least) + 1; h.updates < most/2 || h.updates > most {
				t.Errorf("updates that take %v: %d in a minute, want %d at most", c.took, h.updates, most)
			}
		}
	})
}

// TestAChangeUpdatesOpenPages: an open page shows a change at the next update, and the browser that made it at once.
func TestAChangeUpdatesOpenPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{}
		s := New(Options{Source: h})
		v := view{Page: 1}
		s.board.open(v)
		_, next, _ := s.board.now(v)
		h.locks = []status.Lock{{Name: "/a_lock", Token: 7}}
		s.Sink([]event.Event{{Kind: event.Acquire}})
		time.Sleep(refresh)
		s.board.tick()
		select {
		case <-next:
		default:
			t.Error("an open page is not told of a change")
		}
		if text := s.board.shows(t, v); !strings.Contains(text, "/a_lock") {
			t.Errorf("an open page shows %s", text)
		}
		h.locks[0].Name = "/b_lock"
		s.board.invalidate()
		if text := s.board.openView(t, view{Filter: "b", Page: 1}); !strings.Contains(text, "/b_lock") {
			t.Errorf("who has changed something sees %s", text)
		}
	})
}

func TestPagesAreOpenedOneAfterTheOtherAndLeaveTheServerTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Source: &house{slowQueue: 10 * time.Millisecond, locks: []status.Lock{{Name: "/a", Token: 1, Waiting: 1}}}})
		began, opened := time.Now(), make(chan error)
		for i := range 20 {
			go func() { opened <- s.open(t.Context(), view{Page: 1, Admin: i%2 == 0}) }()
		}
		for range 20 {
			if err := <-opened; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took < restFactor*10*time.Millisecond {
			t.Errorf("pages that took 10 ms to open were opened in %v", took)
		}
		s.pageTurn <- struct{}{} // when the last one has rested
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if s.open(ctx, view{Page: 1}) == nil {
			t.Error("a client that is gone gets its turn")
		}
	})
}
