package lock

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// expireBatch is the number of decisions that Expire makes, and of directories that it removes, at a time.
const expireBatch = 64

// Expire ends each hold that is older than its max_age, idle for longer than its max_idle, or past its grace, and ends waits whose time is
// over. The members of a lock end before it: at its max_age always; at its max_idle if none shows signs of life; after a disconnect if
// none belongs to an open session. A hold stands if its directory cannot be removed. Expire logs that once, and tries again after one
// second, two, four, and so on up to a minute. While [Options.Valid] returns an error nothing ends.
//
// It waits for the disk. Several calls may run at a time. The cost grows with the number of ends, not with that of holds.
func (t *Table) Expire(ctx context.Context) {
	for ctx.Err() == nil && t.checkValid() == nil {
		claims, more := t.decideDue()
		var work sync.WaitGroup
		for _, c := range claims {
			work.Go(func() { t.endExpired(ctx, c) })
		}
		work.Wait()
		if !more && len(claims) == 0 {
			return
		}
	}
}

// decideDue makes at most expireBatch decisions that are due, and returns the claims of the directories to remove. more reports whether further
// decisions may be due.
func (t *Table) decideDue() (claims []*claim, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	for range expireBatch {
		t.out.reset()
		if !t.st.next(now, &t.out) {
			return claims, false
		}
		if t.out.claim != nil {
			claims = append(claims, t.out.claim)
		}
		t.commitLocked(&t.out)
		t.serveQueuesLocked(now)
	}
	return claims, true
}

// endExpired removes the directory of an expired hold.
func (t *Table) endExpired(ctx context.Context, c *claim) {
	_, err := t.complete(ctx, c)
	if err == nil {
		return
	}
	t.mu.Lock()
	h := t.st.nodes[c.record.Hold.Name].byToken(c.record.Hold.Token)
	first := h != nil && h.failures == 1
	t.mu.Unlock()
	if first {
		t.logger.LogAttrs(ctx, slog.LevelWarn, "cannot end an expired lock; the server tries again",
			slog.String("lock", string(c.record.Hold.Name)), slog.Any("err", err))
	}
}

// NextExpiry returns the time until the next call of Expire is due, 0 if it is due now; false if nothing expires. NextExpiry and Changed
// are for one goroutine.
func (t *Table) NextExpiry() (in time.Duration, ok bool) {
	suspended := t.checkValid() != nil
	now := t.clock.Now().Boot
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.st.timers.next()
	if suspended && due != never {
		due = max(due, now+retryAfter)
	}
	t.nextWake = due
	if due == never {
		return 0, false
	}
	return max(due-now, 0), true
}

// Changed has a value when something expires before the time that NextExpiry returned last.
func (t *Table) Changed() <-chan struct{} { return t.changed }

// Run keeps the clock exact and serves the unserved queues. It returns nil when ctx ends.
func (t *Table) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			t.clock.Exact()
		case <-t.serveLater:
		}
		t.serveUnserved(ctx)
	}
}
