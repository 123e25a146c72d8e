package lock

import (
	"slices"
	"time"
)

// opening says what can be had of a name.
type opening uint8

const (
	closed  opening = iota
	sharers         // those who share it may join the others
	open            // anybody
)

// openingLocked says what can be had of a name, whoever is in the queue.
func (t *Table) openingLocked(n Name, now time.Duration) opening {
	e := t.nodes[n]
	switch {
	case e == nil:
		return open
	case e.busy:
		return closed
	case len(e.holds) > 0 && e.isShared():
		return sharers
	case len(e.holds) > 0 || e.delayedTo > now:
		return closed
	}
	return open
}

// isShared reports whether all who hold e share it.
func (e *node) isShared() bool {
	return !slices.ContainsFunc(e.holds, func(h *held) bool { return !h.Shared })
}

// reckoning goes through a queue from its head and says of each whether it can have what it wants, with what
// those ahead of it have been promised taken away.
type reckoning struct {
	table *Table
	now   time.Duration
	free  int // places under the limit
	one   opening
	names map[Name]opening // without a limit there is one name only, and one has it once known is set
	known bool
}

const unlimited = int(^uint(0) >> 1)

func (t *Table) reckonLocked(home *node, q *queue, now time.Duration) reckoning {
	r := reckoning{table: t, now: now, free: unlimited}
	if q.limit > 0 {
		r.free = q.limit - t.takenLocked(home, q.match)
		r.names = make(map[Name]opening)
	}
	return r
}

// takenLocked counts the locks of the rule directly below home, those about to be granted included.
func (t *Table) takenLocked(home *node, match string) int {
	taken := 0
	if home == nil {
		return 0
	}
	for c := home.child; c != nil; c = c.next {
		if c.occupied && c.under(t, match) {
			taken++
		}
	}
	return taken
}

// under reports whether e is held, or about to be, under the rule with that match.
func (e *node) under(t *Table, match string) bool {
	if len(e.holds) > 0 {
		return e.holds[0].Rule.Match == match
	}
	i, ok := t.rules.find(e.name)
	return ok && t.rules.rules[i].Match == match
}

// admits reports whether the next one in the queue can have the name, and takes it away if so. Who cannot have
// it is in the way of all behind who want the same.
func (r *reckoning) admits(n Name, shared bool) bool {
	can, left := r.of(n), closed
	ok := can == open && r.free > 0 || can == sharers && shared
	if ok && can == open {
		r.free--
	}
	if ok && shared {
		left = sharers
	}
	if r.names == nil {
		r.one, r.known = left, true
	} else {
		r.names[n] = left
	}
	return ok
}

// of says what can be had of a name by the next one in the queue.
func (r *reckoning) of(n Name) opening {
	can, known := r.one, r.known
	if r.names != nil {
		can, known = r.names[n]
	}
	if !known {
		return r.table.openingLocked(n, r.now)
	}
	return can
}

// passOnLocked gives turns to those whose turn it is after something about e has changed.
func (t *Table) passOnLocked(e *node) {
	t.passLocked(e)
	if p := e.parent; p != nil && len(p.queues()) > 0 {
		t.passLocked(p)
		t.armLocked(p)
	}
}

// passLocked gives turns to those in the queues of home whose turn it is, and takes them from others. It
// leaves to the caller to arm and prune home.
func (t *Table) passLocked(home *node) {
	if len(home.queues()) == 0 {
		return
	}
	now := t.clock.Now().Boot
	left := slices.DeleteFunc(home.queues(), func(q *queue) bool {
		q.forgetLocked(now)
		r := t.reckonLocked(home, q, now)
		for _, en := range q.entries {
			if en.idles() {
				continue
			}
			en.setTurn(r.admits(en.name, en.shared), now)
		}
		return len(q.entries) == 0 && len(q.seen) == 0
	})
	home.want(left, home.leavers())
}

// idles reports whether nothing is ever kept for the entry.
func (en *entry) idles() bool { return en.waiting == nil && en.queue.hold == 0 }

// setTurn gives the entry its turn or takes it away. One that waits is called, and has it until it looks or
// withdraws; for one that polls it is kept for three of the intervals that it was seen to have.
func (en *entry) setTurn(turn bool, now time.Duration) {
	news := turn && !en.turn
	en.turn = turn
	switch {
	case !news:
	case en.waiting != nil:
		en.waiting.call(false)
	default:
		en.keptTo = later(now, min(max(3*min(en.gap, forgotten), leastKept), en.queue.hold))
	}
}

// aheadLocked reports whether the lock of n can be granted to one in that place of the queue, which may be nil;
// nil is behind everybody. Otherwise it returns who is in the way, nil if nobody in the queue is.
func (t *Table) aheadLocked(home *node, q *queue, n Name, shared bool, place *entry, now time.Duration) (ok bool, first *entry) {
	r := t.reckonLocked(home, q, now)
	for _, en := range q.entries {
		if en == place {
			break
		}
		if en.idles() {
			continue
		}
		if r.admits(en.name, en.shared); first == nil && (en.name == n || q.limit > 0) {
			first = en
		}
	}
	return r.admits(n, shared), first
}

// inTheWayLocked says why the session, in that place of the queue or behind everybody, cannot be granted the
// lock now; nil: it can. e is its node, which is not busy and may be nil.
func (s *Session) inTheWayLocked(n Name, e *node, rule *Rule, c *Contention, place *entry, now Instant) placed {
	t := s.table
	shared := s.sharesLocked(c)
	q := t.queueLocked(n, rule, c)
	where := q.place(place)
	if e != nil && len(e.holds) > 0 && (!shared || !e.isShared() || s.holdsLocked(e) != nil) {
		err := t.heldErrorLocked(e, now)
		err.Place = where
		return err
	}
	if e != nil && len(e.holds) == 0 && e.delayedTo > now.Boot {
		return &DelayedError{Name: n, Remaining: e.delayedTo - now.Boot, Place: where}
	}
	if q == nil && c.Limit == 0 {
		return nil
	}
	return s.notYetLocked(n, e, q, rule, c, place, now)
}

// notYetLocked looks at the limit and at the queue.
func (s *Session) notYetLocked(n Name, e *node, q *queue, rule *Rule, c *Contention, place *entry, now Instant) placed {
	t := s.table
	name, match := homeOf(n, rule, c)
	home := t.nodes[name]
	joins := e != nil && len(e.holds) > 0
	if c.Limit > 0 && !joins && t.takenLocked(home, match) >= c.Limit {
		return &LimitError{Name: n, Limit: c.Limit, Place: q.place(place)}
	}
	if q == nil {
		return nil
	}
	ok, first := t.aheadLocked(home, q, n, s.sharesLocked(c), place, now.Boot)
	if ok {
		return nil
	}
	err := &QueuedError{Name: n, Place: q.place(place)}
	if first != nil {
		err.Next = first.owner
	}
	return err
}

// sharesLocked reports whether the session holds locks together with others where that is the rule.
func (s *Session) sharesLocked(c *Contention) bool {
	if len(c.Shared) > 0 {
		return slices.Contains(c.Shared, s.owner.Account)
	}
	return c.ReadersShare && s.reader
}

// holdsLocked returns the session's own hold of e, or nil.
func (s *Session) holdsLocked(e *node) *held {
	for _, h := range e.holds {
		if h.session == s {
			return h
		}
	}
	return nil
}
