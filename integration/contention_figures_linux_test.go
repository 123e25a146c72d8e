package integration

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// The figures of contention. They are for a machine that does nothing else:
//
//	go test ./integration -count=1 -long -v -run TestFigureContention

// handOvers measures from one holder's RMD to the 257 of the next.
type handOvers struct {
	mu       sync.Mutex
	released time.Time // when the last holder sent its RMD
	took     []time.Duration
	left     int
}

// got notes a grant and reports whether to go on.
func (h *handOvers) got(at time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.released.IsZero() {
		h.took = append(h.took, at.Sub(h.released))
	}
	h.left--
	return h.left > 0
}

func (h *handOvers) releases() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.released = time.Now()
}

// waits has a session wait for the lock, again and again, and hold it for long enough that all others wait again.
func (h *handOvers) waits(c *session) error {
	defer c.conn.Close()
	if r, err := c.try("SITE WAIT 100"); err != nil || r.code != 200 {
		return fmt.Errorf("SITE WAIT: %v, %w", r, err)
	}
	for goOn := true; goOn; {
		r, err := c.try("MKD /locks/job")
		at := time.Now()
		if err != nil || r.code != 257 {
			return fmt.Errorf("MKD: %v, %v", r, err)
		}
		goOn = h.got(at)
		time.Sleep(2 * time.Millisecond)
		h.releases()
		if r, err = c.try("RMD /locks/job"); err != nil || r.code != 250 {
			return fmt.Errorf("RMD: %v, %v", r, err)
		}
	}
	return nil
}

func TestFigureContentionHandOver(t *testing.T) {
	figure(t)
	const waiters, times = 16, 3000
	for _, tc := range []struct{ directories, durable bool }{{true, true}, {false, true}, {true, false}, {false, false}} {
		name := fmt.Sprintf("directories=%v,durable=%v", tc.directories, tc.durable)
		t.Run(name, func(t *testing.T) {
			s := startServer(t, fmt.Sprintf("[locks]\ndirectories = %v\ndurable = %v\n", tc.directories, tc.durable)+hour)
			h := &handOvers{left: times}
			var all sync.WaitGroup
			for range waiters + 1 {
				c := s.session(account)
				all.Go(func() {
					if err := h.waits(c); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if t.Failed() {
				return
			}
			p50, p99, most := quantiles(h.took)
			t.Logf("%s: from RMD to the next 257, %d waiters, %d times: p50 %v, p99 %v, max %v", name, waiters, len(h.took), p50, p99, most)
			within(t, "p50", p50, time.Millisecond)
		})
	}
}

func TestFigureContentionProcessorTimeOfWaiters(t *testing.T) {
	figure(t)
	const connections, measured = 1000, 5 * time.Second
	s := startServer(t, "[ftp]\nmax_connections_per_address = 0\n"+hour)
	holder := s.session("other")
	holder.want(257, "MKD /locks/job")
	var all []*session
	for range connections {
		all = append(all, s.session(account))
	}
	time.Sleep(2 * time.Second) // the collector's work on what was garbage
	idle := s.load(t, measured)
	for _, c := range all {
		c.want(200, "SITE WAIT 600")
		if err := c.send("MKD /locks/job"); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "all of them wait", func() bool {
		return strings.Contains(holder.want(211, "SITE LOCK INFO /locks/job").text, fmt.Sprintf(" %d in the queue", connections))
	})
	time.Sleep(2 * time.Second)
	waiting := s.load(t, measured)
	t.Logf("%d connections over %v: %.3f%% of one processor when idle, %.3f%% when all wait for one lock", connections, measured, 100*idle, 100*waiting)
	if waiting > idle+0.01 && !raceEnabled {
		t.Errorf("%d who wait cost %.2f%% of a processor more than idle ones", connections, 100*(waiting-idle))
	}
}
