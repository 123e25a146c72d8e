package lock

import (
	"context"
	"sync"
	"time"
)

// memoryLog is a Log in memory.
type memoryLog struct {
	mu      sync.Mutex
	records []Record
	full    bool // no room for grants

	impatient bool // MakeRoom returns at once
}

func (l *memoryLog) Load(context.Context) (Loaded, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := newState(mustRules(), false)
	for i := range l.records {
		if l.records[i].Kind != Published {
			st.apply(&l.records[i])
		}
	}
	loaded := Loaded{Last: st.last, Start: 1}
	for _, n := range st.nodes {
		for _, h := range n.holds {
			loaded.Holds = append(loaded.Holds, h.Hold)
		}
	}
	return loaded, nil
}

func (l *memoryLog) Room(Token) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.full
}

// MakeRoom waits as the journal does while a disk is full.
func (l *memoryLog) MakeRoom(ctx context.Context, _ Token) error {
	wait := time.Second / 2
	if l.impatient {
		wait = 0
	}
	for !l.Room(0) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			return ErrFull
		}
	}
	return nil
}

func (l *memoryLog) setFull(full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = full
}

func (l *memoryLog) Append(records []Record) Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		if r.Kind == 0 {
			panic("a volatile record in the log")
		}
		r.claim, r.place, r.view, r.turn = nil, nil, nil, 0
		l.records = append(l.records, r)
	}
	return Position(len(l.records))
}

func (l *memoryLog) Wait(context.Context, Position, bool) error { return nil }

// testClock is a clock that tests move.
type testClock struct {
	mu  sync.Mutex
	now Instant
}

func newTestClock() *testClock {
	return &testClock{now: Instant{Wall: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), Boot: time.Hour}}
}

func (c *testClock) Now() Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) Exact() Instant { return c.Now() }

func (c *testClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.Wall, c.now.Boot = c.now.Wall.Add(d), c.now.Boot+d
}

func mustRules(rules ...Rule) *Rules {
	r, err := NewRules(rules)
	if err != nil {
		panic(err)
	}
	return r
}
