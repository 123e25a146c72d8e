package event

import (
	"sync"
	"time"
)

// maxQueued bounds the events that wait for the sinks.
const maxQueued = 100_000

// Sink is called with every event, by one goroutine. It must not keep others waiting for long.
type Sink func(Event)

// Bus hands events to sinks. It is for use by several goroutines.
type Bus struct {
	sinks []Sink
	done  chan struct{}

	mu      sync.Mutex
	more    sync.Cond
	queue   []Event
	dropped uint64
	closed  bool
}

// NewBus starts a bus. Call Close to end it.
func NewBus(sinks ...Sink) *Bus {
	b := &Bus{sinks: sinks, done: make(chan struct{})}
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
		b.queue = append(b.queue, e)
		b.more.Signal()
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
	b.closed = true
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
		if batch == nil {
			return
		}
		for _, e := range batch {
			for _, sink := range b.sinks {
				sink(e)
			}
		}
	}
}

// next waits for events and takes them all, leaving an empty slice for the next ones; nil: there will be none.
func (b *Bus) next(empty []Event) []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) == 0 {
		if b.closed {
			return nil
		}
		b.more.Wait()
	}
	taken := b.queue
	b.queue = empty
	return taken
}
