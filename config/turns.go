package config

import (
	"container/heap"
	"context"
	"sync"
)

// turns lets a few at a time compute a slow hash. Who waits with the fewest failures is next, and of those who came
// first.
type turns struct {
	mu      sync.Mutex
	free    int
	came    uint64 // how many have had to wait so far
	waiting waiters
}

// waiter waits for its turn.
type waiter struct {
	failures int
	number   uint64
	turn     chan struct{} // closed when it has come
	index    int           // in waiters; -1: no longer
}

// take waits for a turn, until ctx ends. Then it returns the cause.
func (t *turns) take(ctx context.Context, failures int) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	t.came++
	w := &waiter{failures: failures, number: t.came, turn: make(chan struct{})}
	heap.Push(&t.waiting, w)
	t.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.index < 0 { // its turn came meanwhile
		t.pass()
	} else {
		heap.Remove(&t.waiting, w.index)
	}
	return context.Cause(ctx)
}

// done ends a turn.
func (t *turns) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
}

// pass gives the turn to the next one. Called with mu held.
func (t *turns) pass() {
	if len(t.waiting) == 0 {
		t.free++
		return
	}
	close(heap.Pop(&t.waiting).(*waiter).turn)
}

// waiters is a heap.Interface.
type waiters []*waiter

func (w waiters) Len() int { return len(w) }

func (w waiters) Less(i, j int) bool {
	if w[i].failures != w[j].failures {
		return w[i].failures < w[j].failures
	}
	return w[i].number < w[j].number
}

func (w waiters) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index, w[j].index = i, j
}

func (w *waiters) Push(x any) {
	added := x.(*waiter)
	added.index = len(*w)
	*w = append(*w, added)
}

func (w *waiters) Pop() any {
	last := len(*w) - 1
	removed := (*w)[last]
	removed.index = -1
	(*w)[last] = nil
	*w = (*w)[:last]
	return removed
}
