package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// A change of a name has three steps, and [Table.change] takes them one after the other:
//
//	begin   under Table.mu: may it be? If so the name is busy from now on, and nobody else begins a change of it.
//	store   Store.Commit, with no lock held.
//	finish  under Table.mu: the name is as the store has it, whoever waited is woken, unused names are forgotten.
//
// What only reads, or changes nothing that the store has, has the first step alone.

// change is one change of a name, from its begin to its finish.
type change struct {
	node   *node
	doing  doing
	next   []Hold // what is to stand
	why    reason
	drains bool        // publications under way end first
	done   func(Token) // called in the last step with the revision, if the store made the change; nil: nothing to do
	over   func()      // called in the last step whatever came of it; nil: nothing to do
}

// begin is the first step, called with Table.mu held. It returns a change to make; or what to wait for before it is
// called again; or an error; or nothing, when there is nothing to be changed.
type begin func(now Instant) (c *change, wait <-chan struct{}, err error)

// reason says why a record changes.
type reason struct {
	cause Cause
	by    Owner
	note  string
	limit time.Duration // the age that was exceeded, if that is another lock's

	waited time.Duration // of a grant: how long its client had waited in the queue
	late   time.Duration // of an end by time: how long after it
}

// takes reports whether a hold that ends for the reason was taken away from its holder. Where the
// host has made a directory, it has removed the one that was there.
func (r reason) takes() bool {
	switch r.cause {
	case CauseExpire, CauseIdle, CauseBreak, CauseDisconnect, CauseHostGone, CauseHostMade, CauseUnknown:
		return true
	}
	return false
}

const (
	// retries bounds how often a change begins anew because somebody outside of the table
	// changed the record at the same time.
	retries = 16
	// linger is how long a name is remembered after a conflict or an uncertain change: what the store has comes by Watch, too,
	// and must be known to be old by then.
	linger = time.Minute
	// rereadTimeout bounds how long the store is asked what became of an uncertain change.
	rereadTimeout = 5 * time.Second
)

// change makes one change of a name. The error is that of begin, of ctx, or of the store.
func (t *Table) change(ctx context.Context, n Name, first begin) error {
	for range retries {
		if err := t.valid(); err != nil {
			return err
		}
		if err := t.clearUp(ctx, n); err != nil {
			return err
		}
		c, err := t.begin(ctx, first)
		switch {
		case err != nil: // what was seen of the lock may be old if the server may not say so any more
			return cmp.Or(t.valid(), err)
		case c == nil:
			return nil
		}
		var r result
		if r.err = t.drain(ctx, c); r.err == nil {
			r = t.commit(ctx, c)
		}
		t.finish(c, r)
		switch {
		case r.err == nil:
			return t.confirm(c)
		case !errors.Is(r.err, ErrConflict):
			return r.err
		}
	}
	return ErrConflict
}

// clearUp asks the store for a name of which nobody knows who holds it.
func (t *Table) clearUp(ctx context.Context, n Name) error {
	var e *node
	err := t.when(ctx, func() <-chan struct{} {
		switch e = t.nodes[n]; {
		case e == nil || e.unsettled == nil:
			e = nil
		case e.doing != idle:
			return e.wait()
		default:
			e.doing = changing
			t.names.remove(&e.alarm)
		}
		return nil
	})
	if e == nil || err != nil {
		return err
	}
	record := t.reread(ctx, n)
	t.mu.Lock()
	defer t.mu.Unlock()
	if record != nil {
		t.putLocked(e, t.reportedLocked(*record), *e.unsettled)
	}
	t.settleLocked(e)
	if e.unsettled != nil {
		return errUnsettled
	}
	return nil
}

// errUnsettled is for who would change something by a hold of which nobody knows whether it stands.
var errUnsettled = &SuspendedError{Reason: "the store does not tell yet who holds the lock"}

// confirm says whether a client may be told of a change that was made. Who holds a lock may have changed since, by another server.
func (t *Table) confirm(c *change) error {
	switch c.why.cause {
	case CauseAcquire, CauseAdopt, CauseRenew:
		if err := t.valid(); err != nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			c.untoldLocked()
			return fmt.Errorf("%w: %v", ErrUncertain, err) // not a SuspendedError: something was changed
		}
	}
	return nil
}

// untoldLocked marks the hold that a grant has made, or may have, and of which its client is not told.
func (c *change) untoldLocked() {
	if c.doing != granting {
		return
	}
	granted := c.next[len(c.next)-1]
	for _, h := range c.node.holds {
		h.untold = h.untold || h.Owner == granted.Owner && h.Acquired.Wall.Equal(granted.Acquired.Wall)
	}
}

// begin takes the first step, as often as there is something to wait for.
func (t *Table) begin(ctx context.Context, first begin) (c *change, err error) {
	werr := t.when(ctx, func() (wait <-chan struct{}) {
		if c, wait, err = first(t.clock.Now()); c != nil {
			c.node.doing = c.doing
			t.names.remove(&c.node.alarm)
			t.countLocked(c.node)
		}
		return wait
	})
	if werr != nil {
		return nil, werr
	}
	return c, err
}

// when calls try with the mutex held, until it returns nothing to wait for. It waits without the mutex.
func (t *Table) when(ctx context.Context, try func() (wait <-chan struct{})) error {
	locked := func() <-chan struct{} {
		t.mu.Lock()
		defer t.mu.Unlock()
		return try()
	}
	for {
		wait := locked()
		if wait == nil {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// drain waits for the publications under way, if the change has to. No new ones begin during a change.
func (t *Table) drain(ctx context.Context, c *change) error {
	if !c.drains {
		return nil
	}
	return t.when(ctx, func() <-chan struct{} {
		if c.node.pins == 0 {
			return nil
		}
		return c.node.wait()
	})
}

// result is what came of the second step.
type result struct {
	err      error
	revision Token
	record   *Record // what stands now, where that is not what the change wanted; nil: nobody knows, or as before
	cause    Cause   // of a conflict
}

// commit has the store make the change. Of an uncertain one it finds out what became of it.
func (t *Table) commit(ctx context.Context, c *change) (r result) {
	e := c.node // the change is the only one that writes its revision
	r.revision, r.err = t.store.Commit(ctx, Change{
		Name: e.name, If: e.revision, Holds: c.next, Cause: c.why.cause, By: c.why.by, Note: c.why.note,
	})
	var conflict *ConflictError
	switch {
	case errors.As(r.err, &conflict):
		r.record, r.cause = &conflict.Record, cmp.Or(conflict.Cause, CauseUnknown)
		if r.cause == CauseUnknown && e.unsettled == nil {
			t.log.LogAttrs(ctx, slog.LevelWarn, "the store has something else of a lock than this server knew; what the store has counts",
				slog.String("lock", string(e.name)), slog.Uint64("known", uint64(e.revision)),
				slog.Uint64("stored", uint64(conflict.Record.Revision)), slog.Int("holds", len(conflict.Record.Holds)))
		}
	case errors.Is(r.err, ErrUncertain):
		r.record = t.reread(ctx, e.name)
	}
	return r
}

// reread asks the store for a record, which has no holds if the store has none; nil: it does not tell.
func (t *Table) reread(ctx context.Context, n Name) *Record {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rereadTimeout)
	defer cancel()
	record, err := t.store.Get(ctx, n)
	if err != nil {
		return nil
	}
	return &record
}

// finish takes the third step.
func (t *Table) finish(c *change, r result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := c.node
	switch {
	case r.err == nil:
		record := Record{Name: e.name, Revision: r.revision, Holds: c.next}
		if len(c.next) == 0 {
			record.Revision = 0
		}
		t.putLocked(e, record, c.why)
		if c.done != nil {
			c.done(r.revision)
		}
	case errors.Is(r.err, ErrConflict):
		if r.record != nil {
			t.putLocked(e, t.reportedLocked(*r.record), reason{cause: r.cause})
		}
		e.lingerTo = t.clock.Now().Boot + linger
	case errors.Is(r.err, ErrUncertain):
		t.putUncertainLocked(c, r.record)
		e.lingerTo = t.clock.Now().Boot + linger
	}
	if c.over != nil {
		c.over()
	}
	t.settleLocked(e)
}

// putUncertainLocked takes over what the store told of a name after an uncertain change; nil: it did not tell. A grant
// of which nobody can tell stands, so that nobody else gets the lock early, until the store tells by Watch, or somebody wants the name.
func (t *Table) putUncertainLocked(c *change, record *Record) {
	e := c.node
	defer c.untoldLocked()
	if record != nil {
		t.putLocked(e, t.reportedLocked(*record), c.why)
		return
	}
	if len(c.next) > 0 {
		known := e.revision
		t.putLocked(e, Record{Name: e.name, Holds: c.next}, c.why) // a new hold has no token then
		e.revision = known
	}
	e.unsettled = &c.why
}

// settleLocked ends what made e busy, and draws the consequences of what it has become.
func (t *Table) settleLocked(e *node) {
	e.doing = idle
	if event := e.outside; event != nil {
		e.outside = nil
		t.applyLocked(e, *event)
	}
	t.countLocked(e)
	t.offerLocked(e)
	t.armLocked(e)
	e.wake()
	e.wakeLeavers()
	t.pruneLocked(e)
}

// putLocked makes e what the record says. Holds without a token get its revision.
func (t *Table) putLocked(e *node, record Record, why reason) {
	e.revision, e.newest, e.unsettled = record.Revision, max(e.newest, record.Revision), nil
	for i := 0; i < len(e.holds); {
		if h := e.holds[i]; !slices.ContainsFunc(record.Holds, h.same) {
			e.holds = slices.Delete(e.holds, i, i+1)
			t.goneLocked(e, h, why)
			continue
		}
		i++
	}
	for _, hold := range record.Holds {
		i := slices.IndexFunc(e.holds, func(h *held) bool { return h.same(hold) })
		if hold.Token == 0 {
			hold.Token = record.Revision
		}
		if i < 0 {
			h := t.addLocked(e, hold)
			t.grantedLocked(h, why)
			continue
		}
		t.replaceLocked(e.holds[i], hold)
	}
}

// same reports whether a hold of the store is h. The token tells, but for a hold
// whose grant was uncertain: that has none.
func (h *held) same(hold Hold) bool {
	if h.Token != 0 {
		return h.Token == hold.Token
	}
	return h.Owner == hold.Owner && h.Acquired.Wall.Equal(hold.Acquired.Wall)
}

// addLocked adds a hold that is new to the table.
func (t *Table) addLocked(e *node, hold Hold) *held {
	h := &held{Hold: hold, node: e, session: t.holderLocked(hold), idleFrom: hold.Acquired.Boot}
	if h.session == nil || h.session.closed {
		h.idleFrom = t.clock.Now().Boot // nobody saw its signs of life until now
	}
	e.holds = append(e.holds, h)
	if len(e.holds) == 1 { // a delay is for a session that would hold it alone
		e.delayedTo = 0
	}
	t.count.Holds++
	t.linkLocked(h)
	t.markEndLocked(h)
	return h
}

// replaceLocked gives a hold that stands new contents.
func (t *Table) replaceLocked(h *held, hold Hold) {
	if hold.Renewed != h.Renewed {
		h.node.failure, h.undelivered = failure{}, 0
	}
	h.Hold = hold
	t.markEndLocked(h)
}

// goneLocked draws the consequences of the end of a hold that is not in e.holds any more.
func (t *Table) goneLocked(e *node, h *held, why reason) {
	t.unlinkLocked(h)
	e.failure = failure{}
	t.count.Holds--
	now := t.clock.Now()
	if h.Token == 0 && why.cause != CauseRelease { // nobody knows whether it ever stood
		why = reason{cause: CauseUndo}
	}
	t.endedLocked(h, why, now)
	if !why.takes() {
		return
	}
	if h.Rule.LockDelay > 0 && !h.Host() && why.cause != CauseUnknown {
		e.delayedTo = later(now.Boot, h.Rule.LockDelay)
	}
	if s := h.session; s != nil && !s.closed {
		s.loseLocked(e.name, h.Hold, why, now)
	}
}

// endOf is the change that ends one hold of e.
func (e *node) endOf(h *held, why reason) *change {
	if len(e.holds) == 1 {
		return &change{node: e, doing: ending, why: why, drains: true}
	}
	return &change{node: e, doing: changing, next: e.standing(h), why: why, drains: true}
}
