package lock

import "slices"

// The functions of this file update the counters and indexes of a State. apply and its parts call them, and the table calls markDirty.

// unlink removes a hold from its node and its session.
func (st *State) unlink(h *liveHold) {
	n, s := h.node, h.session
	i := slices.Index(n.holds, h)
	n.holds = slices.Delete(n.holds, i, i+1)
	st.timers.remove(&h.timer)
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
func (st *State) link(h *liveHold) {
	s := h.session
	if s.holds == nil {
		s.holds = make(map[Name]*liveHold)
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

// accountOf returns the account. It adds a new one if necessary.
func (st *State) accountOf(name string) *account {
	a := st.accounts[name]
	if a == nil {
		a = &account{sessions: make(map[*sessionState]struct{})}
		st.accounts[name] = a
	}
	return a
}

// sessionOf returns the session of a hold. A session that is missing has ended, before a restart or without holds; sessionOf adds it as
// closed at the time.
func (st *State) sessionOf(o Owner, at Time) *sessionState {
	if s := st.sessions[o.Session]; s != nil {
		return s
	}
	s := &sessionState{owner: o, network: NetworkOf(o.Address), closed: true, closedAt: at}
	st.sessions[o.Session] = s
	return s
}

// joinPool adds a waiter to the queue of the limit of its name.
func (st *State) joinPool(w *waiter) {
	w.pool = st.poolOf(w.node.name)
	if w.pool != nil {
		st.pools[w.pool.key] = w.pool
		w.pool.queue = insertByTicket(w.pool.queue, w)
	}
}

// inForce reports whether the pool belongs to the current rules.
func (st *State) inForce(p *pool) bool { return p != nil && st.pools[p.key] == p }

// countIn adds a taken node to the count of its pool.
func (st *State) countIn(n *node) {
	if n.pool = st.poolOf(n.name); n.pool != nil {
		st.pools[n.pool.key] = n.pool
		n.pool.taken++
	}
}

// addNode returns the node of the name. It adds the node and those above it if necessary.
func (st *State) addNode(name Name) *node {
	if n, ok := st.nodes[name]; ok {
		return n
	}
	n := &node{name: name, parent: st.addNode(name.Parent())}
	n.timer.node = n
	st.nodes[name] = n
	if n.parent.children == nil {
		n.parent.children = make(map[Name]*node)
	}
	n.parent.children[name] = n
	return n
}

// prune removes a node without content, and those above it. The fixed prefixes of rules stay: nearly every lock lies below one, and would make
// its node again.
func (st *State) prune(n *node) {
	for n.parent != nil && len(n.holds) == 0 && n.claim == nil && n.pins == 0 && len(n.children) == 0 &&
		n.delay == 0 && n.blocked == nil && len(n.queue)+len(n.places) == 0 && st.nodes[n.name] == n && !st.rules.isPrefix(n.name) {
		delete(st.nodes, n.name)
		delete(n.parent.children, n.name)
		st.timers.remove(&n.timer)
		n = n.parent
	}
}

// recount updates the counters of the nodes above n and of its pool.
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
		st.vacated = append(st.vacated, p)
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

// markDirty makes serveQueuesLocked serve the queue of the node.
func (st *State) markDirty(n *node) { st.dirty = append(st.dirty, n) }

// reoffer makes the table offer the node and the names below it to waiting sessions again, in the order of the first session of each queue.
// It also wakes the decisions that wait for the node. Call it when a write or a claim no longer excludes the names.
func (st *State) reoffer(n *node) {
	st.vacancies.Add(1)
	st.markDirty(n)
	if len(n.children) == 0 {
		return
	}
	var below []*node
	for q := range st.queues {
		if q != n && q.name.Within(n.name) {
			below = append(below, q)
		}
	}
	slices.SortFunc(below, func(a, b *node) int { return byTicket(a.queue[0], b.queue[0]) })
	st.dirty = append(st.dirty, below...)
}
