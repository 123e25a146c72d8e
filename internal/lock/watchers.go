package lock

import (
	"context"
	"iter"
	"sync"
)

// Watchers are what a [Store] tells events to, and what its Watch is made of. The zero value is ready. They are for use by several
// goroutines, and take no other mutex.
type Watchers struct {
	mu     sync.Mutex
	all    map[*watcher]struct{}
	closed bool
}

// watcher is one Watch.
type watcher struct {
	end    func()
	bell   chan struct{} // holds at most one message
	events []Event       // that it has not yielded yet; guarded by Watchers.mu
}

// Tell has every Watch yield the event, in the order of the calls. It waits for nobody.
func (w *Watchers) Tell(event Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.all {
		one.events = append(one.events, event)
		select {
		case one.bell <- struct{}{}:
		default: // it rings already
		}
	}
}

// Watch yields what is told from the call on. It returns when ctx ends, or with Close.
func (w *Watchers) Watch(ctx context.Context) iter.Seq[Event] {
	ctx, end := context.WithCancel(ctx)
	one := &watcher{end: end, bell: make(chan struct{}, 1)}
	w.attach(one)
	context.AfterFunc(ctx, func() { w.detach(one) })
	return func(yield func(Event) bool) {
		defer end()
		for {
			for _, event := range w.untold(one) {
				if ctx.Err() != nil || !yield(event) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-one.bell:
			}
		}
	}
}

// Close ends every Watch, and those to come at once.
func (w *Watchers) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for one := range w.all {
		one.end()
	}
}

func (w *Watchers) attach(one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		one.end()
		return
	}
	if w.all == nil {
		w.all = make(map[*watcher]struct{})
	}
	w.all[one] = struct{}{}
}

func (w *Watchers) detach(one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, one)
}

func (w *Watchers) untold(one *watcher) []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := one.events
	one.events = nil
	return events
}
