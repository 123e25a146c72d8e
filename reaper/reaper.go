// Package reaper ends locks whose time is over, and runs sweeps for leftovers.
//
// A [Reaper] is a loop around a [Table], which ends locks, and any number of [Sweeper], which remove leftovers. It decides nothing itself.
//
// Guarantees: a lock ends as soon as its time is over and never before, also if the table's next expiry moves to an earlier time. After a
// suspend of the machine, which timers do not count, it ends within a second of waking up. The table ends a hold by its token, so no newer
// hold ends by mistake. A disk that hangs under one lock, or in one sweep, delays the others by a second at most.
//
// Caveats: a lock that the table cannot end (members, a publication under way, a directory that cannot be removed) ends when the table can.
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

// Table is a lock table, such as *lock.Table.
type Table interface {
	// Expire ends the locks whose time is over, and records each end in the log.
	Expire(ctx context.Context)
	// NextExpiry returns the time until Expire has something to do; false if nothing ends by itself.
	NextExpiry() (in time.Duration, ok bool)
	// Changed yields a value when that time has become shorter.
	Changed() <-chan struct{}
}

var _ Table = (*lock.Table)(nil)

// Sweeper removes leftovers: of failed uploads, of locks, of the history.
type Sweeper interface {
	Sweep(ctx context.Context) error
}

// The times of a reaper.
const (
	// recheck is the longest sleep while a lock can expire: timers stand still in a suspend of the machine. It is also the longest wait
	// for the end of one lock.
	recheck = time.Second
	// sweepEvery is the time between two sweeps.
	sweepEvery = time.Minute
)

// Reaper ends locks whose time is over, and runs sweeps. Table is needed.
type Reaper struct {
	Table    Table
	Sweepers []Sweeper
	Log      *slog.Logger // nil: nothing is logged
}

// Run works until ctx ends. It waits for the ends and sweeps that it began, and then returns nil. It expires and sweeps once at the start. Each
// later sweep begins a minute after the one before began, or at once if that took longer. A sweep that fails is logged and tried again at its
// next time. No sweep delays another one, nor the end of a lock.
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
		ended := make(chan struct{})
		running.Go(func() {
			defer close(ended)
			r.Table.Expire(ctx)
		})
		select {
		case <-ended:
		case <-time.After(recheck):
		}
		if in, ok := r.Table.NextExpiry(); ok {
			timer.Reset(min(in, recheck))
		} else {
			timer.Stop()
		}
	}
}

// sweep runs a sweeper once a minute.
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
