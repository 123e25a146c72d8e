package web

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
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

// Whatever changes between two looks, each view shows what it would show if it were opened then.
func TestChangesLeadToWhatAFullLookShows(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	h := &house{}
	kept := New(Options{Source: h})
	var views []view
	for _, filter := range []string{"", "/locks/", "7", "joe", "/locks/1", "nothing"} {
		for page := 1; page <= 2; page++ {
			for _, sort := range []string{"", "-name", "holder", "-since", "expires", "-waiting"} {
				views = append(views, view{filter, page, page == 2, sort})
			}
		}
	}
	for _, v := range views {
		kept.board.open(v)
	}
	held := make(map[string]status.Lock)
	for round := range 20 {
		for range random.IntN(60) {
			name := fmt.Sprintf("/locks/%d", random.IntN(300))
			switch l, ok := held[name]; {
			case !ok:
				held[name] = status.Lock{Name: name, Token: random.Uint64N(1000), Holder: []string{"joe", "ann"}[random.IntN(2)], Expires: status.Time{Time: time.Unix(1e9, 0)}}
			case random.IntN(3) == 0:
				l.Waiting, l.Expires.Time = random.IntN(2), l.Expires.Add(time.Duration(random.IntN(3))*time.Minute)
				held[name] = l
			default:
				delete(held, name)
			}
		}
		h.locks = nil
		for _, l := range held {
			h.locks = append(h.locks, l)
			if l.Token%5 == 0 {
				l.Token, l.Shared, l.Holder = l.Token+5000, true, "ben"
				h.locks = append(h.locks, l)
			}
		}
		slices.SortFunc(h.locks, func(a, b status.Lock) int { return strings.Compare(a.Name, b.Name) })
		kept.board.mu.Lock()
		kept.board.lookLocked()
		kept.board.mu.Unlock()
		anew := New(Options{Source: h})
		for _, v := range views {
			if got, want := kept.board.shows(t, v), anew.board.openView(t, v); got != want {
				t.Fatalf("round %d, %+v: it shows\n%s\nwant\n%s", round, v, got, want)
			}
		}
	}
}

func TestPagesLookTogetherAndLeaveTheServerTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ took, least time.Duration }{{0, refresh}, {200 * time.Millisecond, 2 * time.Second}} {
			h := &house{slow: c.took}
			s := New(Options{Source: h})
			for i := range 100 {
				s.board.open(view{Filter: fmt.Sprint(i), Page: 1})
			}
			const minute = time.Minute
			h.looks = 0
			for began := time.Now(); time.Since(began) < minute; time.Sleep(refresh) {
				s.Sink([]event.Event{{Kind: event.Acquire}})
				s.board.tick()
			}
			if most := int(minute/c.least) + 1; h.looks < most/2 || h.looks > most {
				t.Errorf("looks that take %v: %d in a minute, want %d at most", c.took, h.looks, most)
			}
		}
	})
}

// A page that was opened just before something changes shows it at the next look, and who has changed something sees it at once.
func TestWhatWasSeenBeforeAChangeIsLookedAtAgain(t *testing.T) {
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
		s.board.forget()
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
		if took := time.Since(began); took < rest*10*time.Millisecond {
			t.Errorf("pages that took 10 ms to open were opened in %v", took)
		}
		s.opening <- struct{}{} // when the last one has rested
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if s.open(ctx, view{Page: 1}) == nil {
			t.Error("a client that is gone gets its turn")
		}
	})
}
