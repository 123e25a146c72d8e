package lock

import (
	"slices"
	"time"
)

// want is the lock that a session tried for last in vain.
type want struct {
	name  Name
	since time.Duration // of its last try
	again bool          // it tried twice within a minute: it polls
}

// noteLocked notes a try in vain.
func (s *Session) noteLocked(n Name, now time.Duration) {
	again := s.wanted.name == n && later(s.wanted.since, remembered) > now
	s.wanted = want{name: n, since: now, again: again}
}

// maxSearch bounds the search for a deadlock: so many holds are looked at.
const maxSearch = 1000

// search looks for a chain of waits that leads back to a session.
type search struct {
	table *Table
	back  *Session
	now   time.Duration
	left  int // so many holds may still be looked at
	seen  map[*Session]bool
	chain []Link // from the session backwards; only what is stuck is in it
}

// deadlockLocked says why the session would wait for ever for the lock: because its holder waits or polls
// for what the session holds, or for what a session holds that does, and so on. nil: it would not. A holder that loses the lock
// by its age or idle time ends a deadlock, too, but only then. A session whose own locks fill the limit is told of the
// limit. A deadlock over more than maxSearch holds is not found.
func (s *Session) deadlockLocked(n Name, rule *compiledRule) error {
	if !s.holdsAnyLocked() {
		return nil
	}
	look := search{table: s.table, back: s, now: s.table.clock.Now().Boot, left: maxSearch, seen: make(map[*Session]bool)}
	if !look.stuck(n, rule) {
		return nil
	}
	if len(look.chain) == 1 { // it would wait for itself alone
		if limit := rule.contention.Limit; limit > 0 {
			return &LimitError{Refusal: Refusal{Name: n}, Limit: limit}
		}
		return nil
	}
	slices.Reverse(look.chain)
	return &DeadlockError{Chain: look.chain}
}

// holdsAnyLocked reports whether the session may speak for a hold as its own or by its nonce.
func (s *Session) holdsAnyLocked() bool {
	return len(s.holds) > 0 || s.owner.Nonce != "" && s.table.accounts[s.owner.Account] != nil
}

// stuck reports whether the name never comes free before the session lets something go. Of holders that
// share a lock each one counts; of those that fill a limit all must be stuck.
func (l *search) stuck(n Name, rule *compiledRule) bool {
	e := l.table.nodes[n]
	if e != nil && len(e.holds) > 0 {
		return slices.ContainsFunc(e.holds, l.holderStuck)
	}
	if rule.contention.Limit == 0 {
		return false
	}
	return l.fullyStuck(l.table.nodes[n.Parent()], l.table.pools[poolKey{n.Parent(), rule.Match}])
}

// fullyStuck reports whether all places of a pool are held by sessions that are stuck.
func (l *search) fullyStuck(home *node, p *pool) bool {
	if home == nil || p == nil || !p.full() {
		return false
	}
	length, longest := len(l.chain), []Link(nil)
	for child := range home.children {
		if child.pool != p {
			if l.left--; l.left < 0 {
				return false
			}
			continue
		}
		l.chain = l.chain[:length]
		if !slices.ContainsFunc(child.holds, l.holderStuck) {
			return false
		}
		if len(l.chain)-length > len(longest) {
			longest = slices.Clone(l.chain[length:])
		}
	}
	l.chain = append(l.chain[:length], longest...)
	return len(longest) > 0
}

// holderStuck reports whether the holder is the session or waits for it.
func (l *search) holderStuck(h *held) bool {
	if l.left--; l.left < 0 {
		return false
	}
	stuck := l.back.standingLocked(h) >= byNonce || h.session != nil && !h.session.closed && l.waitsInVain(h.session)
	if stuck {
		l.chain = append(l.chain, Link{Name: h.node.name, Holder: h.Owner})
	}
	return stuck
}

// waitsInVain reports whether the session waits or polls for something that never comes free.
func (l *search) waitsInVain(s *Session) bool {
	if l.seen[s] {
		return false
	}
	l.seen[s] = true
	for w := range s.waits {
		if !w.members && l.stuckFor(w.name) {
			return true
		}
	}
	return s.wanted.again && later(s.wanted.since, remembered) > l.now && l.stuckFor(s.wanted.name)
}

func (l *search) stuckFor(n Name) bool {
	rule := l.table.rules.find(n)
	return rule != nil && l.stuck(n, rule)
}
