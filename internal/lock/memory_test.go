package lock

import (
	"context"
	"time"
)

// memoryLog is a Log in memory, for one goroutine. Load applies the records, as a start does.
type memoryLog struct {
	records []Record
	full    bool // no room for grants
}

func (l *memoryLog) Load(context.Context) (Loaded, error) {
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
	return !l.full
}

func (l *memoryLog) MakeRoom(context.Context, Token) error {
	if l.full {
		return ErrFull
	}
	return nil
}

func (l *memoryLog) Append(records []Record) Position {
	for _, r := range records {
		if r.Kind == 0 {
			panic("a volatile record in the log")
		}
		r.claim, r.waiter = nil, nil
		l.records = append(l.records, r)
	}
	return Position(len(l.records))
}

func (l *memoryLog) Wait(context.Context, Position, bool) error { return nil }

// testClock is a clock that a test moves.
type testClock struct {
	now Instant
}

func newTestClock() *testClock {
	return &testClock{now: Instant{Wall: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), Boot: time.Hour}}
}

func (c *testClock) Now() Instant {
	return c.now
}

func (c *testClock) Exact() Instant { return c.Now() }

func (c *testClock) step(d time.Duration) {
	c.now.Wall, c.now.Boot = c.now.Wall.Add(d), c.now.Boot+d
}

func mustRules(rules ...Rule) *Rules {
	r, err := NewRules(rules)
	if err != nil {
		panic(err)
	}
	return r
}
