package lock

import (
	"cmp"
	"slices"
)

// The functions of this file update the counters and indexes of a State when its nodes change. Only apply calls them.

// unlink removes a hold from its node and its session.
func (st *State) unlink(h *hold) {
	n, s := h.node, h.session
	i := slices.Index(n.holds, h)
	n.holds = slices.Delete(n.holds, i, i+1)
	st.agenda.remove(&h.alarm)
	if s.holds[h.Name] == h {
		delete(s.holds, h.Name)
	}
	a := st.accounts[s.owner.Account]
	a.holds--
	if len(s.holds) == 0 {
		delete(a.sessions, s)
		if s.closed {
			a.ended--
			delete(st.sessions, s.owner.Session)
		}
	}
}

// link adds a hold to its session and account.
func (st *State) link(h *hold) {
	s := h.session
	if s.holds == nil {
		s.holds = make(map[Name]*hold)
	}
	s.holds[h.Name] = h
	a := st.accountOf(s.owner.Account)
	a.holds++
	if _, ok := a.sessions[s]; !ok {
		a.sessions[s] = struct{}{}
		if s.closed {
			a.ended++
		}
	}
}

// accountOf returns the account, new if need be.
func (st *State) accountOf(name string) *account {
	a := st.accounts[name]
	if a == nil {
		a = &account{sessions: make(map[*session]struct{})}
		st.accounts[name] = a
	}
	return a
}

// sessionOf returns the session of a hold. One that is not known has ended: before a restart, or when it had no holds. It counts as closed at that time.
func (st *State) sessionOf(o Owner, at Time) *session {
	if s := st.sessions[o.Session]; s != nil {
		return s
	}
	s := &session{owner: o, closed: true, closedAt: at}
	st.sessions[o.Session] = s
	return s
}

// pool adds a place to the queue of the limit that its name counts in.
func (st *State) pool(p *place) {
	p.pool = st.poolOf(p.node.name)
	if p.pool != nil {
		st.pools[p.pool.key] = p.pool
		i, _ := slices.BinarySearchFunc(p.pool.queue, p, func(a, b *place) int { return cmp.Compare(a.ticket, b.ticket) })
		p.pool.queue = slices.Insert(p.pool.queue, i, p)
	}
}

// inForce reports whether a pool is one of the rules in force.
func (st *State) inForce(p *pool) bool { return p != nil && st.pools[p.key] == p }

// countIn counts a node that is taken in its pool.
func (st *State) countIn(n *node) {
	if n.pool = st.poolOf(n.name); n.pool != nil {
		st.pools[n.pool.key] = n.pool
		n.pool.taken++
	}
}

// grow returns the node of the name, new if need be.
func (st *State) grow(name Name) *node {
	if n, ok := st.nodes[name]; ok {
		return n
	}
	n := &node{name: name, parent: st.grow(name.Parent())}
	n.alarm.node = n
	st.nodes[name] = n
	if n.parent.children == nil {
		n.parent.children = make(map[Name]*node)
	}
	n.parent.children[name] = n
	return n
}

// prune forgets a node that nothing needs any more, and those above it. The fixed prefixes of rules stay.
func (st *State) prune(n *node) {
	for n.parent != nil && len(n.holds) == 0 && n.claim == nil && n.pins == 0 && len(n.children) == 0 &&
		n.delay == 0 && n.blocked == nil && len(n.queue) == 0 && st.nodes[n.name] == n && !st.rules.isPrefix(n.name) {
		delete(st.nodes, n.name)
		delete(n.parent.children, n.name)
		st.agenda.remove(&n.alarm)
		n = n.parent
	}
}

// recount updates the counters of the nodes above n and of its limit.
func (st *State) recount(n *node) {
	taken := n.taken()
	if taken == n.counted {
		return
	}
	n.counted = taken
	if taken {
		st.countIn(n)
		for p := n.parent; p != nil; p = p.parent {
			p.below++
		}
		return
	}
	if p := n.pool; p != nil {
		n.pool = nil
		p.taken--
		for _, waiting := range p.queue {
			st.touch(waiting.node)
		}
		st.dropPool(p)
	}
	for p := n.parent; p != nil; p = p.parent {
		p.below--
		st.armAll(p)
	}
}

func (st *State) dropPool(p *pool) {
	if p.taken == 0 && len(p.queue) == 0 && st.inForce(p) {
		delete(st.pools, p.key)
	}
}

// touch notes that the node changed, so that a session that waits for it may get it.
func (st *State) touch(n *node) { st.touched = append(st.touched, n) }

// unbar touches the node and all below it, after the end of what kept them from being granted.
func (st *State) unbar(n *node) {
	st.unbars.Add(1)
	st.touchBelow(n)
}

func (st *State) touchBelow(n *node) {
	st.touch(n)
	for _, c := range n.children {
		st.touchBelow(c)
	}
}
