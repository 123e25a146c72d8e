// Package reaper ends locks that are over and has left-overs removed.
//
// A [Reaper] is a loop around a [Table], which knows what is over, and a [Sweeper],
// which knows what is left over. It decides nothing itself.
//
// What is promised: a lock is ended as soon as its time is over and never before, also
// if the table's next expiry moves to an earlier time; after a suspend of the machine, which timers
// do not count, within a second of waking up. The table ends a hold by its token, so nothing newer ends by mistake. A disk
// or a mount that hangs under one lock, or in one sweep, holds up the others for a second at most.
//
// What is not: a lock that the table cannot end (members, a publication under way, a file in its
// directory) is ended when the table can.
//
// Start reading at [Reaper.Run].
package reaper

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Table is what a reaper needs of a lock table. *lock.Table is one.
type Table interface {
	// Expire ends what is over now, and records each end in the log.
	Expire(ctx context.Context)
	// NextExpiry says when Expire has something to look at; false if nothing ends by itself.
	NextExpiry() (in time.Duration, ok bool)
	// Changed yields a value when that has become earlier.
	Changed() <-chan struct{}
}

var _ Table = (*lock.Table)(nil)

// Sweeper removes what is left over: of uploads that came to nothing, of locks, of the history.
type Sweeper interface {
	Sweep(ctx context.Context) error
}

// How often a reaper looks.
const (
	// recheck is the longest sleep while a lock can expire: timers stand still in a suspend of the machine. It is also how
	// long the end of one lock is waited for.
	recheck = time.Second
	// sweepEvery is the time between two sweeps.
	sweepEvery = time.Minute
)

// Reaper ends locks that are over and has left-overs removed. Table is needed.
type Reaper struct {
	Table    Table
	Sweepers []Sweeper
	Log      *slog.Logger // nil: nothing is logged
}

// Run works until ctx ends and what it has begun is over, and then returns nil. It expires and sweeps once at the start; later
// sweeps come a minute after the one before. A sweep that fails is logged and tried again
// at its next time. No sweep holds up another one, nor the end of a lock.
func (r *Reaper) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for _, s := range r.Sweepers {
		running.Go(func() { r.sweep(ctx, s) })
	}
	r.reap(ctx, &running)
	return nil
}

// reap expires locks when they are due. An end that hangs is left to its goroutine, and the others go on.
func (r *Reaper) reap(ctx context.Context, running *sync.WaitGroup) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.Table.Changed():
		}
		over := make(chan struct{})
		running.Go(func() {
			defer close(over)
			r.Table.Expire(ctx)
		})
		select {
		case <-over:
		case <-time.After(recheck):
		}
		if in, ok := r.Table.NextExpiry(); ok {
			timer.Reset(min(in, recheck))
		} else {
			timer.Stop()
		}
	}
}

// sweep has a sweeper sweep again and again.
func (r *Reaper) sweep(ctx context.Context, s Sweeper) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil && r.Log != nil {
			r.Log.LogAttrs(ctx, slog.LevelWarn, "a sweep has failed; it is tried again in a minute", slog.Any("err", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
