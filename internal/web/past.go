package web

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
)

const (
	lastEvents  = 100
	sampleEvery = 10 * time.Second
	samples     = 360 // an hour
)

// past is what the page remembers.
type past struct {
	mu     sync.Mutex
	events []event.Event // the oldest first
	free   []float64     // hand-over times since the last sample, in seconds
	points []point
}

// point is one sample of the chart.
type point struct {
	at            time.Time
	held, waiting int
	handOver      float64 // median since the sample before, in seconds; negative: there was none
}

func (p *past) add(batch []event.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range batch {
		if e.Kind == event.Download {
			continue // there may be many, and they change nothing
		}
		p.events = append(p.events, e)
		if e.Kind == event.Acquire && e.Waited > 0 && len(p.free) < 10_000 {
			p.free = append(p.free, e.Free.Seconds())
		}
	}
	if more := len(p.events) - lastEvents; more > 0 {
		p.events = slices.Delete(p.events, 0, more)
	}
}

// last returns the last events, the newest first.
func (p *past) last() []event.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Clone(p.events)
	slices.Reverse(all)
	return all
}

// sample takes one for the chart.
func (s *Server) sample(now time.Time) {
	next := point{at: now, handOver: -1}
	next.held, next.waiting = s.o.Source.Count()
	p := &s.past
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) > 0 {
		slices.Sort(p.free)
		next.handOver = p.free[len(p.free)/2]
		p.free = p.free[:0]
	}
	if len(p.points) >= samples {
		p.points = slices.Delete(p.points, 0, len(p.points)-samples+1)
	}
	p.points = append(p.points, next)
}

// chart answers with the columns of the chart: seconds since 1970, locks held, clients waiting, hand-over in milliseconds.
func (s *Server) chart(w http.ResponseWriter, _ *http.Request) {
	s.past.mu.Lock()
	points := slices.Clone(s.past.points)
	s.past.mu.Unlock()
	columns := [4][]any{{}, {}, {}, {}}
	for _, p := range points {
		var handOver any // null: none
		if p.handOver >= 0 {
			handOver = p.handOver * 1000
		}
		for i, v := range []any{p.at.Unix(), p.held, p.waiting, handOver} {
			columns[i] = append(columns[i], v)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(columns) // the client is gone
}
