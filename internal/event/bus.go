package event

import (
	"sync"
	"time"
)

// maxQueued bounds the events that wait for the sinks.
const maxQueued = 100_000

// gather is how long a Bus lets events come together before it hands them on: a line of the log for each lock that is taken
// costs a busy server much less when a hundred lines are written at once.
const gather = 5 * time.Millisecond

// Sink is called with events as they come, one or many at a time, by one goroutine. It must not keep others waiting for
// long, and not keep the slice.
type Sink func([]Event)

// Bus hands events to sinks. It is for use by several goroutines.
type Bus struct {
	sinks   []Sink
	done    chan struct{}
	closing chan struct{} // closed by Close

	mu      sync.Mutex
	more    sync.Cond
	queue   []Event
	dropped uint64
	closed  bool
}

// NewBus starts a bus. Call Close to end it.
func NewBus(sinks ...Sink) *Bus {
	b := &Bus{sinks: sinks, done: make(chan struct{}), closing: make(chan struct{})}
	b.more.L = &b.mu
	go b.run()
	return b
}

// Publish hands an event to the sinks. It fills in the time if there is none, and never waits. A nil Bus has no sinks.
func (b *Bus) Publish(e Event) {
	if b == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
	case len(b.queue) >= maxQueued:
		b.dropped++
	default:
		if b.queue = append(b.queue, e); len(b.queue) == 1 {
			b.more.Signal()
		}
	}
}

// Dropped returns how many events the sinks have not seen, since they were too slow.
func (b *Bus) Dropped() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}

// Close waits until the sinks have seen every event. Events that are published later are ignored. A nil Bus may be closed,
// and every Bus again.
func (b *Bus) Close() {
	if b == nil {
		return
	}
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
	}
	b.more.Signal()
	b.mu.Unlock()
	<-b.done
}

// run calls the sinks until the bus is closed and its queue empty.
func (b *Bus) run() {
	defer close(b.done)
	var batch []Event
	for {
		batch = b.next(batch[:0])
		if len(batch) == 0 {
			return
		}
		for _, sink := range b.sinks {
			sink(batch)
		}
	}
}

// next waits for events and takes them all, leaving an empty slice for the next ones. It takes none if there will be none.
func (b *Bus) next(empty []Event) []Event {
	if b.wait() {
		select {
		case <-time.After(gather):
		case <-b.closing:
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.queue
	b.queue = empty
	return taken
}

// wait returns when there is an event; false: there will be none.
func (b *Bus) wait() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) == 0 && !b.closed {
		b.more.Wait()
	}
	return len(b.queue) > 0
}
