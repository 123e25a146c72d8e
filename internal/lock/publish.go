package lock

import (
	"context"
	"slices"
)

// Publish runs fn while the hold with the token stands: whatever ends the hold waits for fn. So a
// write under the lock and the check that the lock is still there are one step. It
// returns ErrStale, and fn does not run, if the token does not stand, or if the hold's time is
// over and its end only waits for others that publish; else what fn returns. Several may publish
// under one hold at once; other names do not wait. Keep slow work out of fn, and do not use
// the table for the same name in it.
func (t *Table) Publish(ctx context.Context, n Name, token Token, fn func() error) error {
	e, err := t.pin(ctx, n, token)
	if err != nil {
		return err
	}
	defer t.unpin(e)
	return fn()
}

func (t *Table) pin(ctx context.Context, n Name, token Token) (*node, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, err := t.quietLocked(ctx, n)
	if err != nil {
		return nil, err
	}
	if e == nil || e.draining || e.byToken(token) == nil {
		return nil, ErrStale
	}
	e.pins++
	return e, nil
}

func (t *Table) unpin(e *node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.pins--; e.pins > 0 {
		return
	}
	e.wake()
	t.armLocked(e)
	t.pruneLocked(e)
}

// Exclude runs fn while nothing is held at or below the names and nothing can be granted there:
// for the removal and renaming of directories that are no locks. It waits for changes under way.
// If something is held it returns a *HeldError that says what, and fn does not run;
// else what fn returns. Grants wait for fn, so it must be quick, and must not acquire there.
func (t *Table) Exclude(ctx context.Context, names []Name, fn func() error) error {
	names = slices.Clone(names)
	if err := t.exclude(ctx, names); err != nil {
		return err
	}
	defer t.include(names)
	return fn()
}

func (t *Table) exclude(ctx context.Context, names []Name) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := 0; i < len(names); {
		e := t.nodes[names[i]].occupiedWithin()
		switch {
		case e == nil:
			i++
		case e.busy:
			if err := t.waitLocked(ctx, e); err != nil {
				return err
			}
			i = 0 // the mutex was let go of
		default:
			err := t.heldErrorLocked(e, t.clock.Now())
			err.Below = e.name != names[i]
			return err
		}
	}
	for _, n := range names {
		t.excludeLocked(n)
	}
	return nil
}

func (t *Table) excludeLocked(n Name) {
	x := t.excluded[n]
	if x == nil {
		x = &exclusion{over: make(chan struct{})}
		t.excluded[n] = x
	}
	x.users++
}

func (t *Table) include(names []Name) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range names {
		x := t.excluded[n]
		if x.users--; x.users == 0 {
			delete(t.excluded, n)
			close(x.over)
		}
	}
}
