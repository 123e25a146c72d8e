package lock

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// expireBatch is how many decisions Expire makes, and how many directories it removes, at a time.
const expireBatch = 64

// Expire ends every hold whose time is over: older than its max_age, idle for longer than its
// max_idle, or past its grace, and ends the waiting of sessions that waited for long enough. The members of a lock
// end before it: all of them if it is too old; if it is idle, only if none shows signs of life; after a disconnect, only if none belongs to
// an open session. A hold whose directory cannot be removed stands. That is logged once, and tried again after a second, two, four, and
// so on up to a minute. While [Options.Valid] returns an error nothing ends.
//
// It waits for the disk. Several calls may run at a time. The cost grows with the number of ends, not with that of holds.
func (t *Table) Expire(ctx context.Context) {
	for ctx.Err() == nil && t.valid() == nil {
		tasks, more := t.due()
		var work sync.WaitGroup
		for _, c := range tasks {
			work.Go(func() { t.finish(ctx, c) })
		}
		work.Wait()
		if !more && len(tasks) == 0 {
			return
		}
	}
}

// due makes the decisions that are due now, at most expireBatch of them, and returns the directories that have to be removed for them.
// more reports whether there may be more to do.
func (t *Table) due() (tasks []*claim, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	for range expireBatch {
		t.out.reset()
		if !t.st.next(now, &t.out) {
			return tasks, false
		}
		if t.out.task != nil {
			tasks = append(tasks, t.out.task)
		}
		t.commitLocked(&t.out)
		t.settleLocked(now)
	}
	return tasks, true
}

// finish removes the directory of a hold whose time is over.
func (t *Table) finish(ctx context.Context, c *claim) {
	_, err := t.complete(ctx, c)
	if err == nil {
		return
	}
	t.mu.Lock()
	h := t.st.nodes[c.record.Hold.Name].byToken(c.record.Hold.Token)
	first := h != nil && h.failures == 1
	t.mu.Unlock()
	if first {
		t.logger.LogAttrs(ctx, slog.LevelWarn, "lock not ended though its time is over; the server tries again",
			slog.String("lock", string(c.record.Hold.Name)), slog.Any("err", err))
	}
}

// NextExpiry returns the time until Expire has something to do, 0 if it has now; false if
// nothing ends by itself. It and Changed are for one goroutine.
func (t *Table) NextExpiry() (in time.Duration, ok bool) {
	suspended := t.valid() != nil
	now := t.clock.Now().Boot
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.st.agenda.next()
	if suspended && due != never {
		due = max(due, now+askAgain)
	}
	t.awaited = due
	if due == never {
		return 0, false
	}
	return max(due-now, 0), true
}

// Changed yields a value when something ends sooner than NextExpiry returned last.
func (t *Table) Changed() <-chan struct{} { return t.changed }

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
