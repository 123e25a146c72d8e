package event

import (
	"sync"
	"time"
)

// maxQueued bounds the events that wait for the sinks.
const maxQueued = 100_000

// gather is how long a Bus collects events before it calls the sinks: one write of a hundred lines of the log costs a busy server much
// less than a hundred writes.
const gather = 5 * time.Millisecond

// Sink is called with one or more events, by one goroutine. It must return soon, and not keep the slice.
type Sink func([]Event)

// Bus passes events to sinks. Several goroutines may use it.
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

// Publish queues an event for the sinks, with the present time if it has none. It never waits. A nil Bus has no sinks.
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

// Dropped returns the number of events that were lost because the sinks were too slow.
func (b *Bus) Dropped() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}

// Close returns after the sinks got every event. Later events are ignored. Close may be called again, and on a nil Bus.
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

// next waits for events and returns all of them; none: the bus is closed. The slice becomes the new queue.
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

// wait waits for an event. It returns false if the bus is closed and the queue empty.
func (b *Bus) wait() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) == 0 && !b.closed {
		b.more.Wait()
	}
	return len(b.queue) > 0
}
