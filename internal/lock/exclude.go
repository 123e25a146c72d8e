package lock

import (
	"context"
	"slices"
)

// Exclude runs fn while nothing is held at or below the names and nothing can be granted there:
// for the removal and renaming of directories that are no locks. It waits for changes under way.
// If something is held it returns a *HeldError that says what, and fn does not run;
// else what fn returns. Grants wait for fn, so it must be quick, and must not acquire there.
func (t *Table) Exclude(ctx context.Context, names []Name, fn func() error) error {
	names = slices.Clone(names)
	var held *HeldError
	err := t.when(ctx, func() <-chan struct{} {
		for _, n := range names {
			e := t.nodes[n].occupiedWithin()
			switch {
			case e == nil:
			case e.doing != idle:
				return e.wait()
			default:
				held = t.heldErrorLocked(e, t.clock.Now())
				held.Below = e.name != n
				return nil
			}
		}
		for _, n := range names {
			t.excludeLocked(n)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case held != nil:
		return held
	}
	defer t.include(names)
	if err := t.valid(); err != nil {
		return err
	}
	return fn()
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
