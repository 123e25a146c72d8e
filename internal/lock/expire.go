package lock

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"
)

// expireBatch is how many names Expire takes from the agenda at a time.
const expireBatch = 256

// maxBackoff is the longest that a hold that could not be ended is left alone.
const maxBackoff = time.Minute

// Expire ends every hold whose time is over: older than its max_age, idle for longer than its
// max_idle, or past its grace. Members end before the lock that they are below; one with members that
// live on waits for them, and one under which somebody publishes waits for that: Expire itself waits
// for neither, and Changed tells when it is their time. A hold that the store cannot end
// (ErrNotEmpty: somebody put a file into its directory) stands, is logged once, and is tried
// again after a second, two, four, and so on up to a minute. It returns what it ended; each is logged.
//
// The cost grows with what ends, not with what is held.
func (t *Table) Expire(ctx context.Context) []Ended {
	var all []Ended
	for ctx.Err() == nil {
		names := t.due()
		if len(names) == 0 {
			break
		}
		for _, n := range names {
			ended, _ := t.expireName(ctx, n, false) // it is logged, and stays on the agenda
			all = append(all, ended...)
		}
	}
	return all
}

// due sees to those that wait and poll, and takes names from the agenda whose time has come, the deepest first. Each of
// them is to be handed to expireName, which puts it back if need be.
func (t *Table) due() []Name {
	now := t.clock.Now().Boot
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tickLocked(now)
	var names []Name
	for len(names) < expireBatch {
		at := t.names.pop(now)
		if at == nil {
			break
		}
		names = append(names, at.name.name)
	}
	sortDeepestFirst(names)
	return names
}

func sortDeepestFirst(names []Name) {
	slices.SortStableFunc(names, func(a, b Name) int { return cmp.Compare(b.Depth(), a.Depth()) })
}

// expireName ends what is over of one name. If something is in the way that is
// to pass by itself, the end of that puts the name back on the agenda; with wait set it waits for a
// change under way.
func (t *Table) expireName(ctx context.Context, n Name, wait bool) (ended []Ended, err error) {
	for {
		one, err := t.expireOne(ctx, n, wait)
		if one == nil || err != nil {
			t.logFailure(ctx, n, err)
			return ended, unlessTold(err)
		}
		ended = append(ended, *one)
		t.logEnd(ctx, n, one.Hold, reason{cause: one.Cause})
	}
}

// failedAgain wraps the error of an end that failed before, so that it is not logged again.
type failedAgain struct{ error }

func unlessTold(err error) error {
	if again, ok := err.(failedAgain); ok {
		return again.error
	}
	return err
}

func (t *Table) logFailure(ctx context.Context, n Name, err error) {
	if _, again := err.(failedAgain); err == nil || again || errors.Is(err, ctx.Err()) {
		return
	}
	t.log.LogAttrs(ctx, slog.LevelWarn, "lock not ended though its time is over; it is tried again",
		slog.String("name", string(n)), slog.Any("error", err))
}

// expireOne ends one hold of the name that is over; nil: there is none that can end now.
func (t *Table) expireOne(ctx context.Context, n Name, wait bool) (*Ended, error) {
	var ended *Ended
	err := t.change(ctx, func(now Instant) (*change, <-chan struct{}, error) {
		ended = nil
		e := t.nodes[n]
		switch {
		case e == nil:
			return nil, nil, nil
		case e.doing != idle && wait:
			return nil, e.wait(), nil
		case e.doing != idle: // the end of that puts it back
			return nil, nil, nil
		}
		t.endDelaysLocked(e, now.Boot)
		h, cause := t.overLocked(e, now.Boot)
		if h == nil || e.kept() {
			t.armLocked(e)
			t.pruneLocked(e)
			return nil, nil, nil
		}
		ended = &Ended{Name: n, Hold: h.Hold, Cause: cause, Held: now.Boot - h.Acquired.Boot}
		return e.endOf(h, reason{cause: cause}), nil, nil
	})
	switch {
	case err == nil:
		return ended, nil
	case ctx.Err() != nil:
		return nil, nil
	}
	return nil, t.failed(n, err)
}

// overLocked returns a hold of e that is to end now.
func (t *Table) overLocked(e *node, now time.Duration) (*held, Cause) {
	for _, h := range e.holds {
		if at, cause := t.deadlineLocked(h); at <= now {
			return h, cause
		}
	}
	return nil, ""
}

// endDelaysLocked ends what keeps e without a holder.
func (t *Table) endDelaysLocked(e *node, now time.Duration) {
	if e.delayedTo <= now {
		e.delayedTo = 0
	}
	if e.lingerTo <= now {
		e.lingerTo = 0
	}
	t.offerLocked(e)
}

// failed notes that a hold of the name could not be ended, and when to try again.
func (t *Table) failed(n Name, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.nodes[n]
	if e == nil || len(e.holds) == 0 || e.doing != idle {
		return err
	}
	wait := min(time.Second<<min(e.failure.tries, 10), maxBackoff)
	e.failure.tries++
	e.failure.until = t.clock.Now().Boot + wait
	t.armLocked(e)
	if e.failure.tries > 1 {
		return failedAgain{err}
	}
	return err
}

// NextExpiry says in what time Expire has something to look at, 0 if it has now; false if
// nothing that is held ends by itself. It and Changed are for one goroutine.
func (t *Table) NextExpiry() (in time.Duration, ok bool) {
	t.mu.Lock()
	t.awaited = min(t.names.next(), t.wanting.next())
	due := t.awaited
	t.mu.Unlock()
	if due == neverEnds {
		return 0, false
	}
	return max(due-t.clock.Now().Boot, 0), true
}

// Changed yields a value when something is to end sooner than NextExpiry said last.
func (t *Table) Changed() <-chan struct{} { return t.changed }
