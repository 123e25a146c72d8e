package web

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/status"
)

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

// TestAChangeUpdatesOpenPages: an open page receives a change within a second, and the browser that made it at once.
func TestAChangeUpdatesOpenPages(t *testing.T) {
	inABubble(t, func(t *testing.T, s *Server, p pipes) {
		h := s.o.Source.(*house)
		client := p.dial("192.0.2.1")
		defer client.Close()
		_ = client.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(client, "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		got, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(got.Body)
		next := func() (received map[string]string) {
			for lines.Scan() {
				if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
					if err := json.Unmarshal([]byte(data), &received); err != nil {
						t.Fatal(err)
					}
					return received
				}
			}
			t.Fatal("the stream ended: ", lines.Err())
			return nil
		}
		if first := next(); len(first) != len(parts) || !strings.Contains(first["locks"], "No lock is held") {
			t.Errorf("%q at first", first)
		}
		h.set(status.Lock{Name: "/a_lock", Token: 7})
		began := time.Now()
		s.Sink([]event.Event{{Kind: event.Acquire, Lock: "/a_lock", Token: 7}})
		second := next()
		if !strings.Contains(second["locks"], "/a_lock") || !strings.Contains(second["events"], "acquire") || second["sessions"] != "" || time.Since(began) > time.Second {
			t.Errorf("%q after %v", second, time.Since(began))
		}
		h.set(status.Lock{Name: "/b_lock", Token: 8})
		s.board.invalidate()
		v := view{Page: 1}
		s.board.open(v)
		if all, _, err := s.board.now(v); err != nil || !strings.Contains(string(all[locksPart].html), "/b_lock") {
			t.Errorf("the browser that has changed something receives %v, %v", all[locksPart], err)
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
	})
}
