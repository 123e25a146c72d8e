package lock

import "slices"

// search looks for a chain of waits that leads back to a session.
type search struct {
	table *Table
	back  *Session
	seen  map[*Session]bool
	chain []Link
}

// deadlockLocked says why the session would wait for ever for the lock: because who holds it waits or polls
// for what the session holds, or for what somebody holds who does, and so on. nil: it would not. Who holds a lock with an
// age or an idle time loses it in the end; that is no way out of a deadlock, only its price.
func (s *Session) deadlockLocked(n Name, rule Rule, c *Contention) error {
	look := search{table: s.table, back: s, seen: make(map[*Session]bool)}
	if !look.stuck(n, rule, c) {
		return nil
	}
	return &DeadlockError{Chain: look.chain}
}

// stuck reports whether the name never comes free before the session lets something go. Of holders who
// share a lock each one counts; of those who fill a limit all must be stuck.
func (l *search) stuck(n Name, rule Rule, c *Contention) bool {
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

// holderStuck reports whether the holder is the session or waits for it. What the chain then has is the way there.
func (l *search) holderStuck(h *held) bool {
	l.chain = append(l.chain, Link{Name: h.node.name, Holder: h.Owner})
	if l.back.standingLocked(h) >= byNonce {
		return true
	}
	if s := h.session; s != nil && !s.closed && !l.seen[s] {
		l.seen[s] = true
		for _, en := range s.entries {
			if i, ok := l.table.rules.find(en.name); ok && en.ticket > 0 && l.stuck(en.name, l.table.rules.rules[i], l.table.rules.ways[i]) {
				return true
			}
		}
	}
	l.chain = l.chain[:len(l.chain)-1]
	return false
}
