package lock

import (
	"context"
	"errors"
	"sync"
)

// persistWorkers is how many records are written at a time when many change, so
// that they share the store's syncs.
const persistWorkers = 16

// SetRules puts other rules in force. Locks that are held follow those at once in max_age,
// max_idle, on_disconnect and grace, so that a shorter age may end some now (the next Expire does);
// one that its client asked to be shorter stays that short. What else a rule says stays as
// granted, and a held lock that no rule matches any more keeps its old one. Then the changes are
// written to the store; an error says that some could not be, and they hold good until a restart.
func (t *Table) SetRules(ctx context.Context, r *Rules) error {
	t.reloading.Lock()
	defer t.reloading.Unlock()
	old, changed, busy := t.swapRules(r)
	return errors.Join(
		t.persist(ctx, changed, CauseRules),
		t.each(busy, func(n Name) error { return t.followLater(ctx, n, old) }),
	)
}

// swapRules has all holds follow the rules but those that change right now. It returns the
// names of those that this changed, and of those that it passed over.
func (t *Table) swapRules(r *Rules) (old *Rules, changed, busy []Name) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, t.rules = t.rules, r
	t.requeueLocked()
	for n, e := range t.nodes {
		switch {
		case !e.occupied:
		case e.doing != idle:
			busy = append(busy, n)
		case t.followLocked(e, old):
			changed = append(changed, n)
		}
	}
	return old, changed, busy
}

// followLater has the holds of one name follow the rules once no change is under way.
func (t *Table) followLater(ctx context.Context, n Name, old *Rules) error {
	changed := false
	err := t.when(ctx, func() <-chan struct{} {
		e := t.nodes[n]
		if e != nil && e.doing != idle {
			return e.wait()
		}
		changed = e != nil && t.followLocked(e, old)
		return nil
	})
	if !changed {
		return err
	}
	return t.persistName(ctx, n, CauseRules)
}

// followLocked has the holds of e, which is not busy, follow the rules. It reports
// whether that changed anything.
func (t *Table) followLocked(e *node, old *Rules) bool {
	rule, ok := t.rules.For(e.name)
	if !ok {
		return false
	}
	was, known := old.For(e.name)
	changed := false
	for _, h := range e.holds {
		limits := rule
		if known && shorter(h.Rule.MaxAge, was.MaxAge) != was.MaxAge { // its client asked for it
			limits.MaxAge = shorter(h.Rule.MaxAge, rule.MaxAge)
		}
		if released := h.Rule.OnDisconnect == ReleaseOnDisconnect; known && released && releasedAfter(was, h.Rule.Grace) != was { // so did it here
			limits = releasedAfter(limits, h.Rule.Grace)
		}
		hold := h.Hold
		if hold.Rule = withLimits(hold.Rule, limits); hold.Rule == h.Rule {
			continue
		}
		if h.Rule.MaxIdle == 0 {
			h.idleFrom = t.clock.Now().Boot // nobody looked for signs of life before
		}
		t.replaceLocked(h, hold)
		changed = true
	}
	if changed {
		t.armLocked(e)
	}
	return changed
}

// withLimits returns the rule with the limits of another one that a held lock follows.
func withLimits(rule, limits Rule) Rule {
	rule.MaxAge, rule.MaxIdle = limits.MaxAge, limits.MaxIdle
	rule.OnDisconnect, rule.Grace = limits.OnDisconnect, limits.Grace
	return rule
}

// persist writes the names as the table has them to the store.
func (t *Table) persist(ctx context.Context, names []Name, cause Cause) error {
	return t.each(names, func(n Name) error { return t.persistName(ctx, n, cause) })
}

func (t *Table) persistName(ctx context.Context, n Name, cause Cause) error {
	return t.change(ctx, n, func(Instant) (*change, <-chan struct{}, error) {
		e := t.nodes[n]
		switch {
		case e == nil || e.doing == idle && len(e.holds) == 0:
			return nil, nil, nil
		case e.doing != idle:
			return nil, e.wait(), nil
		}
		return &change{node: e, doing: changing, next: e.standing(nil), why: reason{cause: cause}}, nil, nil
	})
}

// each calls f for all names, several at a time, and returns the errors. It stops when nothing may be changed any more.
func (t *Table) each(names []Name, f func(Name) error) error {
	var workers sync.WaitGroup
	places := make(chan struct{}, persistWorkers)
	errs := make([]error, len(names)+1)
	for i, n := range names {
		if errs[len(names)] = t.valid(); errs[len(names)] != nil {
			break
		}
		places <- struct{}{}
		workers.Go(func() {
			errs[i] = f(n)
			<-places
		})
	}
	workers.Wait()
	return errors.Join(errs...)
}
