package web

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
)

const (
	lastEvents  = 100  // of each group
	maxRefusals = 1000 // that count in the last hour
	sampleEvery = 10 * time.Second
	samples     = 360 // an hour
)

// group is a group of events. Each has its own memory, so that logins and transfers do not displace the events of locks.
type group int

const (
	ofLocks group = iota
	ofRefusals
	ofFiles
	ofLogins
	ofServer
	groups
)

// groupOf returns the group of a kind of events.
func groupOf(k event.Kind) group {
	switch k {
	case event.Refuse, event.Protect, event.Job:
		return ofRefusals
	case event.Publish, event.Discard, event.Unconfirmed:
		return ofFiles
	case event.Login, event.LoginFailed:
		return ofLogins
	case event.Reload, event.Cluster:
		return ofServer
	}
	return ofLocks
}

// past contains the events and samples that the page shows.
type past struct {
	mu        sync.Mutex
	events    [groups][]event.Event
	refusals  []event.Event // the oldest first
	handOvers []float64     // hand-over times since the last sample, in seconds
	points    []point
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
			continue // there may be many, and they change no lock
		}
		g := groupOf(e.Kind)
		p.events[g] = newest(append(p.events[g], e), lastEvents)
		if g == ofRefusals {
			p.refusals = newest(append(p.refusals, e), maxRefusals)
		}
		if e.Kind == event.Acquire && e.Waited > 0 && len(p.handOvers) < 10_000 {
			p.handOvers = append(p.handOvers, e.Free.Seconds())
		}
	}
}

// newest removes the oldest elements of a list that is longer than most.
func newest[T any](all []T, most int) []T {
	return slices.Delete(all, 0, max(0, len(all)-most))
}

// last returns the events of some groups, the newest first.
func (p *past) last(of ...group) (list []event.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range of {
		list = append(list, p.events[g]...)
	}
	slices.Reverse(list) // so that events of one moment stay in their order
	slices.SortStableFunc(list, func(a, b event.Event) int { return b.Time.Compare(a.Time) })
	return list
}

// refusal summarizes the refusals of one lock or file.
type refusal struct {
	Name   string
	Count  int
	Last   time.Time
	Client string // of the last one
	Reason string
}

// topRefusals returns the names with the most refusals since a moment.
func (p *past) topRefusals(since time.Time) []refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	byName := make(map[string]refusal)
	for _, e := range p.refusals {
		if e.Time.Before(since) {
			continue
		}
		name := subject(e)
		byName[name] = refusal{name, byName[name].Count + 1, e.Time, client(e), e.Reason}
	}
	all := slices.Collect(maps.Values(byName))
	slices.SortFunc(all, func(a, b refusal) int { return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name)) })
	return all[:min(len(all), shownAttention)]
}

// sample adds a point to the chart.
func (s *Server) sample(now time.Time) {
	next := point{at: now, handOver: -1}
	next.held, next.waiting = s.o.Source.Count()
	p := &s.past
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.handOvers) > 0 {
		slices.Sort(p.handOvers)
		next.handOver = p.handOvers[len(p.handOvers)/2]
		p.handOvers = p.handOvers[:0]
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
