package lock

import (
	"context"
	"time"
)

// Run keeps the clock exact, and serves the queues that could not be served at once, until ctx ends; then it returns nil.
func (t *Table) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			t.clock.Exact()
		case <-t.retry:
		}
		t.serveStuck(ctx)
	}
}

// serveStuck waits up to a second for room in the log if queues are stuck, and then serves them.
func (t *Table) serveStuck(ctx context.Context) {
	t.mu.Lock()
	stuck, token := len(t.stuck) > 0, t.nextLocked()
	t.mu.Unlock()
	if !stuck || t.valid() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if t.log.MakeRoom(ctx, token) != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.stuck {
		if n := t.st.nodes[name]; n != nil {
			t.st.touch(n)
		}
	}
	clear(t.stuck)
	t.settleLocked(t.clock.Now())
}
