package lock

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// expireBatch is how many names Expire takes from the agenda, and ends, at a time.
const expireBatch = 256

// maxBackoff is the longest that a hold that could not be ended is left alone.
const maxBackoff = time.Minute

// askAgain is how long after a moment when nothing could be changed it is tried again.
const askAgain = time.Second

// Expire ends every hold whose time is over: older than its max_age, idle for longer than its
// max_idle, or past its grace. A lock that is older than its
// age ends together with its members, these first. One that is idle or past its grace waits for its members, and one under
// which somebody publishes waits for that: Expire itself waits
// for neither, and Changed tells when it is their time. A hold that the store cannot end
// (ErrNotEmpty: somebody put a file into its directory) stands, is logged once, and is tried
// again after a second, two, four, and so on up to a minute. What it ended is logged. While [Options.Valid] returns an error
// nothing ends.
//
// It waits for the store. One that hangs for some names holds up no others: several calls may run at a time.
//
// The cost grows with what ends, not with what is held.
func (t *Table) Expire(ctx context.Context) {
	for ctx.Err() == nil {
		names := t.due(t.valid() == nil)
		if len(names) == 0 {
			return
		}
		var ending sync.WaitGroup
		for _, n := range names {
			ending.Go(func() { t.expireName(ctx, n, false) }) // an error is logged, and the name stays on the agenda
		}
		ending.Wait()
	}
}

// ExpireName is Expire of one name. It waits for a change of that under way.
func (t *Table) ExpireName(ctx context.Context, n Name) { t.expireName(ctx, n, true) } // an error is logged

// due sees to those that wait and poll, and, if they may end, takes names from the agenda whose time has come. Each of
// them is to be handed to expireName, which puts it back if need be.
func (t *Table) due(mayEnd bool) []Name {
	now := t.clock.Now().Boot
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tickLocked(now)
	var names []Name
	for mayEnd && len(names) < expireBatch {
		at := t.names.pop(now)
		if at == nil {
			break
		}
		names = append(names, at.name.name)
	}
	return names
}

func sortDeepestFirst(names []Name) {
	slices.SortStableFunc(names, func(a, b Name) int { return cmp.Compare(b.Depth(), a.Depth()) })
}

// expireName ends what is over of one name, and before it the members that end with it: nobody keeps a lock beyond its age
// by another one below it. If something is in the way that is
// to pass by itself, the end of that puts the name back on the agenda; with wait set it waits for a
// change under way. A lock whose member could not end with it is looked at again in a second.
func (t *Table) expireName(ctx context.Context, n Name, wait bool) error {
	for _, member := range t.overdueMembers(n) {
		t.expireHolds(ctx, member, false) // as above
	}
	return t.expireHolds(ctx, n, wait)
}

// expireHolds ends one hold of the name after the other that is over.
func (t *Table) expireHolds(ctx context.Context, n Name, wait bool) error {
	for {
		ended, err := t.expireOne(ctx, n, wait)
		if !ended || err != nil {
			return err
		}
	}
}

// overdueMembers returns the members of a lock that is older than its age.
func (t *Table) overdueMembers(group Name) []Name {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.nodes[group]
	if e == nil || e.below == 0 || !t.tooOldLocked(e) {
		return nil
	}
	var names []Name
	var walk func(*node)
	walk = func(e *node) {
		for c := range e.children {
			if c.occupied {
				names = append(names, c.name)
			}
			if c.below > 0 {
				walk(c)
			}
		}
	}
	walk(e)
	sortDeepestFirst(names)
	return names
}

// tooOldLocked reports whether the last hold of e is older than its age.
func (t *Table) tooOldLocked(e *node) bool {
	if e.doing != idle || e.pins > 0 || len(e.holds) != 1 {
		return false
	}
	at, cause := e.holds[0].latest()
	return cause == CauseExpire && at <= t.clock.Now().Boot
}

// expireOne ends one hold of the name that is over; false: there is none that can end now.
func (t *Table) expireOne(ctx context.Context, n Name, wait bool) (bool, error) {
	var h *held
	var why reason
	err := t.change(ctx, n, func(now Instant) (*change, <-chan struct{}, error) {
		h = nil
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
		over, because := t.overLocked(e, now.Boot)
		if over == nil || e.kept() {
			t.armLocked(e)
			t.pruneLocked(e)
			return nil, nil, nil
		}
		h, why = over, because
		return e.endOf(h, why), nil, nil
	})
	switch {
	case err == nil && h != nil:
		return true, nil
	case err == nil || ctx.Err() != nil:
		return false, nil
	}
	if t.noteFailure(n, err) == 1 && !isSuspended(err) {
		t.log.LogAttrs(ctx, slog.LevelWarn, "lock not ended though its time is over; it is tried again",
			slog.String("lock", string(n)), slog.Any("err", err))
	}
	return false, err
}

// overLocked returns a hold of e that is to end now, and why: its time is over, or a lock above it is older than its age.
func (t *Table) overLocked(e *node, now time.Duration) (*held, reason) {
	for _, h := range e.holds {
		if at, cause := t.deadlineLocked(h); at <= now {
			return h, reason{cause: cause, late: now - at}
		}
	}
	if len(e.holds) == 0 || e.failure.until > now {
		return nil, reason{}
	}
	for above := e.parent; above != nil; above = above.parent {
		if t.tooOldLocked(above) {
			return e.holds[0], reason{cause: CauseExpire, note: "with its group", limit: above.holds[0].Rule.MaxAge}
		}
	}
	return nil, reason{}
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

// noteFailure notes that a hold of the name could not be ended, and when to try again. It returns how often it has failed.
func (t *Table) noteFailure(n Name, err error) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.nodes[n]
	if e == nil || len(e.holds) == 0 || e.doing != idle {
		return 1
	}
	wait := askAgain
	if !isSuspended(err) {
		wait = min(time.Second<<min(e.failure.tries, 10), maxBackoff)
		e.failure.tries++
	}
	e.failure.until = t.clock.Now().Boot + wait
	t.armLocked(e)
	return e.failure.tries
}

// NextExpiry says in what time Expire has something to look at, 0 if it has now; false if
// nothing that is held ends by itself. It and Changed are for one goroutine.
func (t *Table) NextExpiry() (in time.Duration, ok bool) {
	var suspended time.Duration // until then nothing ends
	if t.valid() != nil {
		suspended = t.clock.Now().Boot + askAgain
	}
	t.mu.Lock()
	t.awaited = min(max(t.names.next(), suspended), t.wanting.next())
	due := t.awaited
	t.mu.Unlock()
	if due == neverEnds {
		return 0, false
	}
	return max(due-t.clock.Now().Boot, 0), true
}

// Changed yields a value when something is to end sooner than NextExpiry said last.
func (t *Table) Changed() <-chan struct{} { return t.changed }
