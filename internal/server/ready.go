package server

import (
	"context"
	"errors"
	"sync"
	"time"
)

// readyWithin limits the time of a check.
const readyWithin = 2 * time.Second

var errDiskHangs = errors.New("the disk does not answer")

// readiness checks whether a lock can be granted. One check runs at a time, so a disk that hangs blocks one goroutine, however many callers ask.
type readiness struct {
	check func() error
	group *sync.WaitGroup // of the goroutine that checks

	mu      sync.Mutex
	running *checking // nil: no check runs
}

type checking struct {
	done chan struct{}
	err  error // once done is closed
}

// ask returns nil if a lock can be granted.
func (r *readiness) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	c := r.begin()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return errDiskHangs
	}
}

// begin starts a check, or returns the one that runs.
func (r *readiness) begin() *checking {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		c := &checking{done: make(chan struct{})}
		r.running = c
		r.group.Go(func() {
			c.err = r.check()
			r.mu.Lock()
			r.running = nil
			r.mu.Unlock()
			close(c.done)
		})
	}
	return r.running
}
