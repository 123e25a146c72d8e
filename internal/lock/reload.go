package lock

import (
	"maps"
	"slices"
)

// SetRules replaces the rules. When it returns, all held locks follow the new rules, so the next Expire ends locks that are too old now.
// Limits that clients set stay. A held lock without a new rule keeps its old one. SetRules changes a few names at a time, so that other
// callers wait only shortly; grants under a limit wait for its end.
func (t *Table) SetRules(rules *Rules) {
	t.reload.Lock()
	defer t.reload.Unlock()
	t.beginReload(rules)
	for names := range slices.Chunk(t.namesWhere(t.allNodes, func(*node) bool { return true }), followBatch) {
		t.follow(names)
	}
	t.endReload()
}

// followBatch is the number of names that follow a reload at a time.
const followBatch = 64

// beginReload makes all decisions use the rules. Holds and limits follow name by name, see follow.
func (t *Table) beginReload(rules *Rules) {
	now := t.beginChange()
	defer t.endChange(now)
	st := t.st
	st.rules, st.reloading = rules, true
	st.pools = make(map[poolKey]*pool)
}

// follow makes names follow the current rules.
func (t *Table) follow(names []Name) {
	now := t.beginChange()
	defer t.endChange(now)
	for _, name := range names {
		if n := t.st.nodes[name]; n != nil {
			t.st.follow(n, now)
		}
	}
}

// follow makes a name follow the current rules. A hold without a new rule keeps its old one.
func (st *State) follow(n *node, at Instant) {
	if rule := st.rules.find(n.name); rule != nil {
		for _, h := range n.holds {
			if h.Rule.MaxIdle == 0 {
				h.idleFrom = at.Boot // no signs of life were counted before
			}
			h.Rule = &rule.holdRule
			st.arm(h)
		}
	}
	if n.counted && !st.inForce(n.pool) {
		st.countIn(n)
	}
	for _, w := range n.queue {
		if !st.inForce(w.pool) {
			st.joinPool(w)
		}
	}
	st.markDirty(n)
}

// endReload ends a reload: the counts of limits are complete, so their queues are served.
func (t *Table) endReload() {
	now := t.beginChange()
	defer t.endChange(now)
	st := t.st
	st.reloading = false
	st.vacated = slices.AppendSeq(st.vacated, maps.Values(st.pools))
	st.markDirty(st.nodes["/"])
}
