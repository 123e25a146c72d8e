package lock

import (
	"context"
	"slices"
)

// SetRules replaces the rules. Locks that are held follow the new ones in all fields of a Rule before it returns: the next Expire ends a
// lock that is too old now. Limits that a client asked for stay. A held lock that no rule matches any more keeps its old one. It goes
// through the names a few at a time, so that it delays no other caller; locks with a limit are granted when it is over.
func (t *Table) SetRules(ctx context.Context, rules *Rules) {
	t.reload.Lock()
	defer t.reload.Unlock()
	t.follow(ctx, ruled, volatile{rules: rules})
	for names := range slices.Chunk(t.names(t.nodes, func(*node) bool { return true }), followBatch) {
		t.follow(ctx, followed, volatile{pins: names})
	}
	t.follow(ctx, followed, volatile{})
}

// followBatch is how many names follow a reload at a time.
const followBatch = 64

// follow takes one step of a reload.
func (t *Table) follow(ctx context.Context, kind Kind, v volatile) {
	t.decide(ctx, func(now Instant, out *outcome) {
		out.records = append(out.records, Record{Kind: kind, At: now, volatile: v})
	})
}

// applyRules puts rules in force for all decisions. What is held, and the limits, follow name by name, see follow.
func (st *State) applyRules(rules *Rules, at Instant) {
	if !slices.EqualFunc(rules.automatic, st.rules.automatic, (*pattern).sameLock) { // the looks of jobs that run are not known
		st.floor = floor{until: later(at.Boot, rememberJob)}
	}
	st.rules, st.reloading = rules, true
	st.pools = make(map[poolKey]*pool)
}

// follow has a name follow the rules in force. A hold that no rule matches keeps its own.
func (st *State) follow(n *node, at Instant) {
	if rule := st.rules.find(n.name); rule != nil {
		for _, h := range n.holds {
			if h.Rule.MaxIdle == 0 {
				h.idleFrom = at.Boot // no sign of life was counted before
			}
			h.Rule = &rule.Rule
			st.arm(h)
		}
	}
	if n.counted && !st.inForce(n.pool) {
		st.countIn(n)
	}
	for _, p := range n.queue {
		if !st.inForce(p.pool) {
			st.pool(p)
		}
	}
	st.touch(n)
}

// applyFollowed ends a reload: the limits are known, and the sessions that wait for them go on.
func (st *State) applyFollowed() {
	st.reloading = false
	for _, p := range st.pools {
		for _, waiting := range p.queue {
			st.touch(waiting.node)
		}
	}
	st.touch(st.nodes["/"])
}
