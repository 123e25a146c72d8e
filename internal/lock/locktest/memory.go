package locktest

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Memory is a [lock.Store] that keeps everything in memory and forgets it with the process: the
// reference that says what the interface means, in as few lines as possible. Use [NewMemory].
type Memory struct {
	mu      sync.Mutex
	next    lock.Token
	records map[lock.Name]lock.Record
	before  func(lock.Change) error
	after   func(lock.Change) error
	outside map[lock.Name]lock.Cause // of names that somebody else changed last

	watchers lock.Watchers
}

var _ lock.Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{records: make(map[lock.Name]lock.Record), outside: make(map[lock.Name]lock.Cause)}
}

// Inject has f called at the start of every Commit, before anything is looked at; nil ends that. An
// error of f is what Commit returns, and then nothing has changed. f runs without any lock of
// the store held, so it may wait, or call the store.
func (m *Memory) Inject(f func(lock.Change) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before = f
}

// InjectAfter has f called at the end of every Commit that succeeded; nil ends that. An error of
// f is what Commit returns though the change was made: the lost reply of a store far away.
// It should match [lock.ErrUncertain].
func (m *Memory) InjectAfter(f func(lock.Change) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.after = f
}

// Outside replaces the holds of a name as somebody else would who shares the store (another server,
// a program on the host): whatever stands now, and every Watch yields it. Holds with Token 0
// get the new revision. It returns the event.
func (m *Memory) Outside(name lock.Name, cause lock.Cause, holds ...lock.Hold) lock.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	event := lock.Event{Record: clone(m.setLocked(name, holds)), Cause: cause}
	m.outside[name] = cause
	m.watchers.Tell(event)
	return event
}

// Tell has every Watch yield the record of a name as it is, as a store does that has found out what became of a change. It
// returns the event.
func (m *Memory) Tell(name lock.Name, cause lock.Cause) lock.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	record, held := m.records[name]
	if !held {
		m.next++
		record = lock.Record{Name: name, Revision: m.next}
	}
	event := lock.Event{Record: clone(record), Cause: cause}
	m.watchers.Tell(event)
	return event
}

// Commit implements [lock.Store].
func (m *Memory) Commit(ctx context.Context, change lock.Change) (lock.Token, error) {
	before, after := m.hooks()
	if before != nil {
		if err := before(change); err != nil {
			return 0, err
		}
	}
	token, err := m.commit(ctx, change)
	if err == nil && after != nil {
		err = after(change)
	}
	if err != nil {
		return 0, err
	}
	return token, nil
}

func (m *Memory) hooks() (before, after func(lock.Change) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.before, m.after
}

func (m *Memory) commit(ctx context.Context, change lock.Change) (lock.Token, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	record := m.records[change.Name]
	if record.Revision != change.If {
		record.Name = change.Name
		return 0, &lock.ConflictError{Record: clone(record), Cause: m.outside[change.Name]}
	}
	delete(m.outside, change.Name)
	return m.setLocked(change.Name, change.Holds).Revision, nil
}

// setLocked replaces the holds of a name under a new revision. A name without holds is no record:
// it is forgotten, and the next change of it has If 0.
func (m *Memory) setLocked(name lock.Name, holds []lock.Hold) lock.Record {
	m.next++
	record := clone(lock.Record{Name: name, Revision: m.next, Holds: holds})
	for i := range record.Holds {
		if record.Holds[i].Token == 0 {
			record.Holds[i].Token = m.next
		}
	}
	if len(holds) == 0 {
		delete(m.records, name)
	} else {
		m.records[name] = record
	}
	return record
}

// Get implements [lock.Store].
func (m *Memory) Get(ctx context.Context, name lock.Name) (lock.Record, error) {
	if err := ctx.Err(); err != nil {
		return lock.Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	record := m.records[name]
	record.Name = name
	return clone(record), nil
}

// All implements [lock.Store]. The records are those of one moment.
func (m *Memory) All(ctx context.Context) iter.Seq2[lock.Record, error] {
	return func(yield func(lock.Record, error) bool) {
		for _, record := range m.snapshot() {
			if err := ctx.Err(); err != nil {
				yield(lock.Record{}, err)
				return
			}
			if !yield(record, nil) {
				return
			}
		}
	}
}

func (m *Memory) snapshot() []lock.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	records := make([]lock.Record, 0, len(m.records))
	for _, record := range m.records {
		records = append(records, clone(record))
	}
	return records
}

// Watch implements [lock.Store]. It counts from the call, not from the first turn of the loop.
func (m *Memory) Watch(ctx context.Context) iter.Seq[lock.Event] { return m.watchers.Watch(ctx) }

// clone copies the holds, so that neither side can change what the other one keeps.
func clone(record lock.Record) lock.Record {
	record.Holds = slices.Clone(record.Holds)
	return record
}
