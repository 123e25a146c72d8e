package config

import (
	"context"
	"slices"
	"sync"
)

// turns lets a few at a time compute a slow hash. Who waits with the fewest failures is next, and of those who came
// first.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []*waiter // in the order in which they came
}

// waiter waits for its turn.
type waiter struct {
	failures int
	turn     chan struct{} // closed when it has come
}

// take waits for a turn, until ctx ends. Then it returns the cause.
func (t *turns) take(ctx context.Context, failures int) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	w := &waiter{failures, make(chan struct{})}
	t.waiting = append(t.waiting, w)
	t.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else { // its turn came meanwhile
		t.pass()
	}
	return context.Cause(ctx)
}

// done ends a turn.
func (t *turns) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
}

// pass gives the turn to the next one. Called with mu held. They are at most as many as connections that are not logged in, so to
// look at all takes a fraction of a hash.
func (t *turns) pass() {
	if len(t.waiting) == 0 {
		t.free++
		return
	}
	next := 0
	for i, w := range t.waiting {
		if w.failures < t.waiting[next].failures {
			next = i
		}
	}
	close(t.waiting[next].turn)
	t.waiting = slices.Delete(t.waiting, next, next+1)
}
