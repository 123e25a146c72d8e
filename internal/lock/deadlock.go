package lock

import "slices"

// search looks for a chain of waits that leads back to a session.
type search struct {
	table *Table
	back  *Session
	seen  map[*Session]bool
	chain []Link // from the session backwards; only what is stuck is in it
}

// deadlockLocked says why the session would wait for ever for the lock: because who holds it waits or polls
// for what the session holds, or for what somebody holds who does, and so on. nil: it would not. Who holds a lock with an
// age or an idle time loses it in the end; that is no way out of a deadlock, only its price.
func (s *Session) deadlockLocked(n Name, rule *Rule, c *Contention) error {
	look := search{table: s.table, back: s}
	if !look.stuck(n, rule, c) {
		return nil
	}
	slices.Reverse(look.chain)
	return &DeadlockError{Chain: look.chain}
}

// stuck reports whether the name never comes free before the session lets something go. Of holders who
// share a lock each one counts; of those who fill a limit all must be stuck.
func (l *search) stuck(n Name, rule *Rule, c *Contention) bool {
	e := l.table.nodes[n]
	if e != nil && len(e.holds) > 0 {
		return slices.ContainsFunc(e.holds, l.holderStuck)
	}
	if c.Limit == 0 {
		return false
	}
	home, match := homeOf(n, rule, c)
	return l.fullyStuck(l.table.nodes[home], match, c.Limit)
}

func (l *search) fullyStuck(home *node, match string, limit int) bool {
	if home == nil {
		return false
	}
	taken, length := 0, len(l.chain)
	for child := home.child; child != nil; child = child.next {
		if len(child.holds) == 0 || !child.under(l.table, match) {
			continue
		}
		taken++
		l.chain = l.chain[:length]
		if !slices.ContainsFunc(child.holds, l.holderStuck) {
			return false
		}
	}
	return taken >= limit
}

// holderStuck reports whether the holder is the session or waits for it.
func (l *search) holderStuck(h *held) bool {
	stuck := l.back.standingLocked(h) >= byNonce || h.session != nil && !h.session.closed && l.waitsInVain(h.session)
	if stuck {
		l.chain = append(l.chain, Link{Name: h.node.name, Holder: h.Owner})
	}
	return stuck
}

// waitsInVain reports whether the session has a place in a queue for something that never comes free.
func (l *search) waitsInVain(s *Session) bool {
	if len(s.entries) == 0 || l.seen[s] {
		return false
	}
	if l.seen == nil {
		l.seen = make(map[*Session]bool)
	}
	l.seen[s] = true
	rules := l.table.rules
	for _, en := range s.entries {
		if i, ok := rules.find(en.name); ok && en.ticket > 0 && l.stuck(en.name, &rules.rules[i], rules.ways[i]) {
			return true
		}
	}
	return false
}
