package lock

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"
)

// linger is how long a name is remembered after the store told of a change from outside by a
// conflict: the same change comes by Watch, too, and must be known to be old by then.
const linger = time.Minute

// retries bounds how often an operation begins anew because somebody outside of the table
// changed the record at the same time.
const retries = 16

// rereadTimeout bounds how long the store is asked what became of an uncertain change.
const rereadTimeout = 5 * time.Second

// reason says why a record changes.
type reason struct {
	cause Cause
	by    Owner
	note  string
}

// takes reports whether a hold that ends for the reason was taken away from its holder. Where the
// host has made a directory, it has removed the one that was there.
func (r reason) takes() bool {
	switch r.cause {
	case CauseExpire, CauseIdle, CauseBreak, CauseDisconnect, CauseHostGone, CauseHostMade:
		return true
	}
	return false
}

// waitLocked lets go of the mutex until something about e has changed or ctx ended. The
// caller must look the name up again.
func (t *Table) waitLocked(ctx context.Context, e *node) error {
	if e.wait == nil {
		e.wait = make(chan struct{})
	}
	return t.waitForLocked(ctx, e.wait)
}

func (t *Table) waitForLocked(ctx context.Context, ch <-chan struct{}) error {
	t.mu.Unlock()
	defer t.mu.Lock()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// quietLocked waits until no change of the name is under way. It returns nil
// without an error if nothing is known of the name.
func (t *Table) quietLocked(ctx context.Context, n Name) (*node, error) {
	for {
		e := t.nodes[n]
		if e == nil || !e.busy {
			return e, nil
		}
		if err := t.waitLocked(ctx, e); err != nil {
			return nil, err
		}
	}
}

// commitLocked has the store put next in place of what stands of e, which must be busy. It
// lets go of the mutex meanwhile. Whatever comes of it, e then agrees with
// the store as far as that is known. The revision is 0 with an error.
func (t *Table) commitLocked(ctx context.Context, e *node, next []Hold, why reason) (Token, error) {
	change := Change{Name: e.name, If: e.revision, Holds: next, Cause: why.cause, By: why.by, Note: why.note}
	t.mu.Unlock()
	revision, err := t.store.Commit(ctx, change)
	t.mu.Lock()
	var conflict *ConflictError
	switch {
	case err == nil:
		record := Record{Name: e.name, Revision: revision, Holds: next}
		if len(next) == 0 {
			record.Revision = 0
		}
		t.putLocked(e, record, why)
		return revision, nil
	case errors.As(err, &conflict):
		t.putLocked(e, t.reportedLocked(conflict.Record), reason{cause: CauseHostGone})
		e.lingerTo = t.clock.Now().Boot + linger
	case errors.Is(err, ErrUncertain):
		t.rereadLocked(ctx, e, next, why)
	}
	return 0, err
}

// rereadLocked finds out what became of a change with an uncertain result. A grant that nobody
// can tell of stands, so that nobody else gets the lock early; the next change of it runs into
// a conflict if it does not.
func (t *Table) rereadLocked(ctx context.Context, e *node, next []Hold, why reason) {
	n := e.name
	t.mu.Unlock()
	record, found, err := t.find(ctx, n)
	t.mu.Lock()
	switch {
	case found:
		t.putLocked(e, t.reportedLocked(record), why)
	case len(next) == 0 && err == nil:
		t.putLocked(e, Record{Name: n}, why)
	case len(next) > 0:
		known := e.revision
		t.putLocked(e, Record{Name: n, Holds: next}, why) // a new hold has no token then
		e.revision = known
	}
}

func (t *Table) find(ctx context.Context, n Name) (Record, bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rereadTimeout)
	defer cancel()
	for record, err := range t.store.All(ctx) {
		if err != nil {
			return Record{}, false, err
		}
		if record.Name == n {
			return record, true, nil
		}
	}
	return Record{}, false, nil
}

// putLocked makes e what the record says. Holds without a token get its revision.
func (t *Table) putLocked(e *node, record Record, why reason) {
	e.revision, e.newest = record.Revision, max(e.newest, record.Revision)
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
			t.addLocked(e, hold, nil)
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

// addLocked adds a hold that is new to the table. ghosts are the ended sessions that
// are known by their holds only; nil: it is the only one.
func (t *Table) addLocked(e *node, hold Hold, ghosts map[SessionID]*Session) *held {
	h := &held{Hold: hold, node: e, idleFrom: t.sinceLocked(hold)}
	h.session = t.holderLocked(hold, ghosts)
	e.holds = append(e.holds, h)
	if len(e.holds) == 1 {
		e.delayedTo = 0
	}
	h.linkLocked(t)
	t.orphanLocked(h)
	return h
}

// sinceLocked says from when on a new hold can have been idle: its grant; now for one
// that comes from a store, whose holder's signs of life nobody saw.
func (t *Table) sinceLocked(hold Hold) time.Duration {
	if _, ok := t.sessions[hold.Owner.Session]; ok || hold.Rule.MaxIdle == 0 {
		return hold.Acquired.Boot
	}
	return t.clock.Now().Boot
}

// replaceLocked gives a hold that stands new contents.
func (t *Table) replaceLocked(h *held, hold Hold) {
	h.idlesLocked(-1)
	h.node.draining = false
	if hold.Renewed != h.Renewed {
		h.node.failure = nil
	}
	h.Hold = hold
	h.idlesLocked(1)
	t.orphanLocked(h)
}

// goneLocked draws the consequences of the end of a hold that is not in e.holds any more.
func (t *Table) goneLocked(e *node, h *held, why reason) {
	h.unlinkLocked(t)
	e.draining, e.failure = false, nil
	if !why.takes() {
		return
	}
	now := t.clock.Now()
	if h.Rule.LockDelay > 0 && !h.Host() {
		e.delayedTo = now.Boot + h.Rule.LockDelay
	}
	if s := h.session; s != nil && !s.closed {
		s.loseLocked(e.name, h.Hold, why, now)
	}
}

// settleLocked ends what made e busy.
func (t *Table) settleLocked(e *node) {
	e.busy, e.ending, e.granting = false, false, false
	if event := e.outside; event != nil {
		e.outside = nil
		t.applyLocked(e, *event)
	}
	t.countLocked(e)
	t.passOnLocked(e)
	t.armLocked(e)
	e.wake()
	e.callLeavers()
	t.pruneLocked(e)
}

// endLocked ends one hold of e, which is not busy; its publications are waited for. The mutex is
// let go of meanwhile. ErrMembers: it is the last hold and there are locks below it.
func (t *Table) endLocked(ctx context.Context, e *node, h *held, why reason) error {
	last := len(e.holds) == 1
	if last && e.below > 0 {
		return ErrMembers
	}
	e.busy, e.ending = true, last
	t.agenda.remove(e)
	defer t.settleLocked(e)
	for e.pins > 0 {
		if err := t.waitLocked(ctx, e); err != nil {
			return err
		}
	}
	_, err := t.commitLocked(ctx, e, e.without(h), why)
	return err
}

// logEnd records the end of a hold: at Info if it was taken away, else at Debug.
func (t *Table) logEnd(ctx context.Context, n Name, h Hold, why reason) {
	level := slog.LevelDebug
	if why.takes() {
		level = slog.LevelInfo
	}
	if !t.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("name", string(n)), slog.String("cause", string(why.cause)),
		slog.String("holder", h.Owner.String()), slog.Duration("age", t.clock.Now().Boot-h.Acquired.Boot),
		slog.Uint64("token", uint64(h.Token)),
	}
	if why.by != (Owner{}) {
		attrs = append(attrs, slog.String("by", why.by.String()))
	}
	if why.note != "" {
		attrs = append(attrs, slog.String("note", why.note))
	}
	t.log.LogAttrs(ctx, level, "lock ended", attrs...)
}
