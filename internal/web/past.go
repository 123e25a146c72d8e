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
	lastEvents   = 100  // of each group
	mostRefusals = 1000 // that count in the last hour
	sampleEvery  = 10 * time.Second
	samples      = 360 // an hour
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
	mu       sync.Mutex
	count    uint64 // of events so far
	events   [groups][]numbered
	refusals []event.Event // the oldest first
	free     []float64     // hand-over times since the last sample, in seconds
	points   []point
}

// numbered is an event with its place in the order of all events.
type numbered struct {
	event.Event
	number uint64
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
		p.count++
		g := groupOf(e.Kind)
		p.events[g] = newest(append(p.events[g], numbered{e, p.count}), lastEvents)
		if g == ofRefusals {
			p.refusals = newest(append(p.refusals, e), mostRefusals)
		}
		if e.Kind == event.Acquire && e.Waited > 0 && len(p.free) < 10_000 {
			p.free = append(p.free, e.Free.Seconds())
		}
	}
}

// newest removes the oldest elements of a list that is longer than most.
func newest[T any](all []T, most int) []T {
	return slices.Delete(all, 0, max(0, len(all)-most))
}

// last returns the events of some groups, the newest first.
func (p *past) last(of ...group) []event.Event {
	p.mu.Lock()
	var all []numbered
	for _, g := range of {
		all = append(all, p.events[g]...)
	}
	p.mu.Unlock()
	slices.SortFunc(all, func(a, b numbered) int { return cmp.Compare(b.number, a.number) })
	list := make([]event.Event, len(all))
	for i, e := range all {
		list[i] = e.Event
	}
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

// refused returns the names with the most refusals since a moment.
func (p *past) refused(since time.Time) []refusal {
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
