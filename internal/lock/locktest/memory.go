package locktest

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Memory is a lock.Log in memory, for tests of packages that use a table. Several tables may use it one after the other, as after restarts of
// a server. Use NewMemory.
type Memory struct {
	mu      sync.Mutex
	holds   map[lock.Token]lock.Hold
	records []lock.Record
	last    lock.Token
	start   uint32
	full    bool
}

var _ lock.Log = (*Memory)(nil)

// NewMemory returns an empty log.
func NewMemory() *Memory { return &Memory{holds: make(map[lock.Token]lock.Hold)} }

// SetFull sets whether grants find no room.
func (m *Memory) SetFull(full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full = full
}

// Records returns everything that was appended.
func (m *Memory) Records() []lock.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.records)
}

// Load implements lock.Log.
func (m *Memory) Load(context.Context) (lock.Loaded, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.start++
	loaded := lock.Loaded{Last: m.last, Start: m.start}
	for _, h := range m.holds {
		loaded.Holds = append(loaded.Holds, h)
	}
	slices.SortFunc(loaded.Holds, func(a, b lock.Hold) int { return cmp.Compare(a.Token, b.Token) })
	return loaded, nil
}

// Room implements lock.Log.
func (m *Memory) Room(lock.Token) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.full
}

// MakeRoom implements lock.Log.
func (m *Memory) MakeRoom(context.Context, lock.Token) error {
	if m.Room(0) {
		return nil
	}
	return lock.ErrFull
}

// Append implements lock.Log.
func (m *Memory) Append(records []lock.Record) lock.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		m.records = append(m.records, r)
		m.last = max(m.last, r.Hold.Token)
		switch r.Kind {
		case lock.Granted, lock.Changed:
			delete(m.holds, r.Replaces)
			m.holds[r.Hold.Token] = r.Hold
		case lock.Ended:
			delete(m.holds, r.Hold.Token)
		}
	}
	return lock.Position(len(m.records))
}

// Wait implements lock.Log.
func (m *Memory) Wait(context.Context, lock.Position, bool) error { return nil }
