package lock

import "slices"

// SetRules replaces the rules. Locks that are held follow the new ones in all fields of a Rule before it returns: the next Expire ends a
// lock that is too old now. Limits that a client set stay. A held lock that no rule matches any more keeps its old one. It goes
// through the names a few at a time, so that it delays no other caller; locks with a limit are granted when it is over.
func (t *Table) SetRules(rules *Rules) {
	t.reload.Lock()
	defer t.reload.Unlock()
	t.do(func(st *State, now Instant) { st.applyRules(rules, now) })
	for names := range slices.Chunk(t.names(t.nodes, func(*node) bool { return true }), followBatch) {
		t.do(func(st *State, now Instant) { st.applyFollow(names, now) })
	}
	t.do(func(st *State, _ Instant) { st.applyFollowed() })
}

// followBatch is how many names follow a reload at a time.
const followBatch = 64

// applyRules puts rules in force for all decisions. Holds and limits follow name by name, see follow.
func (st *State) applyRules(rules *Rules, at Instant) {
	if !slices.EqualFunc(rules.automatic, st.rules.automatic, (*pattern).sameLock) { // the looks of jobs that run are not known
		st.floor = floor{until: later(at.Boot, rememberJob)}
	}
	st.rules, st.reloading = rules, true
	st.pools = make(map[poolKey]*pool)
}

// applyFollow has names follow the rules in force.
func (st *State) applyFollow(names []Name, at Instant) {
	for _, name := range names {
		if n := st.nodes[name]; n != nil {
			st.follow(n, at)
		}
	}
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
