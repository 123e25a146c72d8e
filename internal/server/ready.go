package server

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/singleflight"
)

// readyWithin limits the time of a check.
const readyWithin = 2 * time.Second

var errNoAnswer = errors.New("the disk or etcd does not answer")

// readiness checks whether a lock can be granted. One check runs at a time, so a disk that hangs blocks one goroutine, however many callers wait.
type readiness struct {
	check   func() error
	running singleflight.Group
}

// await waits for a check, and returns nil if a lock can be granted.
func (r *readiness) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	select {
	case done := <-r.running.DoChan("", func() (any, error) { return nil, r.check() }):
		return done.Err
	case <-ctx.Done():
		return errNoAnswer
	}
}
