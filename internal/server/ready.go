package server

import (
	"context"
	"errors"
	"sync"
	"time"
)

// readyWithin bounds the answer to whether a lock can be granted.
const readyWithin = 2 * time.Second

var errDiskHangs = errors.New("the disk does not answer")

// readiness asks whether a lock can be granted. A disk that hangs holds up one goroutine, whoever asks and how often.
type readiness struct {
	check func() error
	group *sync.WaitGroup // that goroutine is one of it

	mu      sync.Mutex
	running *checking // nil: none
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

// begin begins a check, or joins the one that runs.
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
