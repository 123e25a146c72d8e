package event

import (
	"sync"
	"time"
)

// maxQueued bounds the events that wait for the sinks.
const maxQueued = 100_000

// batchDelay is the time in which a Bus collects events before it calls the sinks. One write of a hundred lines costs less than a hundred writes.
const batchDelay = 5 * time.Millisecond

// Sink is called with one or more events, by one goroutine. It must return soon, and not keep the slice.
type Sink func([]Event)

// Bus passes events to sinks. Several goroutines may use it.
type Bus struct {
	sinks   []Sink
	wake    chan struct{} // has a message if the queue has events
	closing chan struct{} // closed by Close
	done    chan struct{} // closed when the sinks have all events

	mu      sync.Mutex
	queue   []Event
	dropped uint64
	closed  bool
}

// NewBus starts a bus. Call Close to end it.
func NewBus(sinks ...Sink) *Bus {
	b := &Bus{sinks: sinks, wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{})}
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
			b.wake <- struct{}{} // run takes the message before the queue, so there is room for it
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
	b.mu.Unlock()
	<-b.done
}

// run calls the sinks until the bus is closed and its queue is empty.
func (b *Bus) run() {
	defer close(b.done)
	var batch []Event
	for open := true; open; {
		select {
		case <-b.wake:
			select {
			case <-time.After(batchDelay):
			case <-b.closing:
			}
		case <-b.closing:
			open = false
		}
		b.mu.Lock()
		batch, b.queue = b.queue, batch[:0]
		b.mu.Unlock()
		if len(batch) > 0 {
			for _, sink := range b.sinks {
				sink(batch)
			}
		}
	}
}
