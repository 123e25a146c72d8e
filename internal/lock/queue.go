package lock

import (
	"slices"
	"time"
)

// forgotten is how long after its last try one that polls keeps its place: who tries again later is
// somebody new. So is who has tried once and comes again after that.
const forgotten = time.Minute

// leastKept is how long a freed lock is kept at least for one that polls.
const leastKept = 50 * time.Millisecond

// queue is who wants a lock that cannot be had, first come, first served: one name; or, under a limit, any
// lock of one rule directly below one directory. Those that wait and those that poll share
// it. It hangs on the node of that name or directory, and goes when it is empty. A restart forgets it.
//
// A turn is a lock that is kept for one entry, until its next try. Nobody behind it gets what it needs. One
// further ahead without a turn is in nobody's way who wants another name.
type queue struct {
	match   string // under a limit: the rule's; else ""
	limit   int
	hold    time.Duration // the rule's queue_hold
	entries []*entry      // by ticket
	seen    []*entry      // who tried once in vain: they have no place yet
}

// entry is one place in a queue.
type entry struct {
	name    Name
	home    *node // where the queue hangs; nil: it is in none
	queue   *queue
	ticket  uint64
	session *Session      // that tried last
	owner   Owner         // of the last try
	shared  bool          // it would hold the lock together with others
	last    time.Duration // when it tried last
	gap     time.Duration // what lies between its tries
	waiting *Waiting      // nil: it polls
	turn    bool
	keptTo  time.Duration // with turn, if it polls: until when
}

// wants is who wants something of a node.
type wants struct {
	queues  []*queue   // of those who want its name, and under a limit of those who want one directly below it
	leavers []*Waiting // who waits for its members to go
}

// contended reports whether somebody wants e or a place below it, or waits for it to be left.
func (e *node) contended() bool { return e.wants != nil }

func (e *node) queues() []*queue {
	if e.wants == nil {
		return nil
	}
	return e.wants.queues
}

func (e *node) leavers() []*Waiting {
	if e.wants == nil {
		return nil
	}
	return e.wants.leavers
}

// want says who wants something of e from now on.
func (e *node) want(queues []*queue, leavers []*Waiting) {
	e.wants = nil
	if len(queues) > 0 || len(leavers) > 0 {
		e.wants = &wants{queues, leavers}
	}
}

// homeOf returns the name that the queue of n hangs on, and what the queue is marked with.
func homeOf(n Name, rule *Rule, c *Contention) (home Name, match string) {
	if c.Limit > 0 {
		return parentOf(n), rule.Match
	}
	return n, ""
}

// queueLocked returns the queue of n, or nil.
func (t *Table) queueLocked(n Name, rule *Rule, c *Contention) *queue {
	home, match := homeOf(n, rule, c)
	e := t.nodes[home]
	if e == nil || len(e.queues()) == 0 {
		return nil
	}
	i := slices.IndexFunc(e.queues(), func(q *queue) bool { return q.match == match })
	if i < 0 {
		return nil
	}
	return e.queues()[i]
}

// openQueueLocked returns the queue of n, new if need be, and where it hangs.
func (t *Table) openQueueLocked(n Name, rule *Rule, c *Contention) (*node, *queue) {
	name, match := homeOf(n, rule, c)
	home := t.growLocked(name)
	q := t.queueLocked(n, rule, c)
	if q == nil {
		q = &queue{match: match, limit: c.Limit, hold: c.QueueHold}
		home.want(append(home.queues(), q), home.leavers())
	}
	return home, q
}

// entryLocked returns the session's place in the queue, which may be nil: its own; or that of its job, told by
// the nonce; or of one without a nonce whose session has ended, of the same account and address: clients that
// connect anew for every try.
func (s *Session) entryLocked(q *queue, n Name) *entry {
	if q == nil {
		return nil
	}
	return s.foundLocked(q.entries, n)
}

func (s *Session) foundLocked(among []*entry, n Name) *entry {
	var found *entry
	for _, en := range among {
		switch {
		case en.name != n || en.waiting != nil:
		case en.session == s:
			return en
		case found == nil && s.sameJob(en):
			found = en
		}
	}
	return found
}

func (s *Session) sameJob(en *entry) bool {
	if en.owner.Account != s.owner.Account || en.owner.Nonce != s.owner.Nonce {
		return false
	}
	return s.owner.Nonce != "" || en.session.closed && en.owner.Address == s.owner.Address
}

// ownLocked makes the entry that of the session's latest try.
func (s *Session) ownLocked(en *entry, shared bool, now time.Duration) {
	first := en.session == nil
	if en.session != s {
		if !first {
			en.session.disownLocked(en)
		}
		s.entries = append(s.entries, en)
	}
	if gap := now - en.last; !first {
		en.gap = max(gap, (en.gap+gap)/2) // rises at once and falls slowly
	}
	en.session, en.owner, en.shared, en.last = s, s.owner, shared, now
}

func (s *Session) disownLocked(en *entry) {
	s.entries = slices.DeleteFunc(s.entries, func(other *entry) bool { return other == en })
}

// joinLocked gives the entry a place at the end of the queue of its name.
func (t *Table) joinLocked(en *entry, rule *Rule, c *Contention) {
	t.tickets++
	en.ticket = t.tickets
	en.home, en.queue = t.openQueueLocked(en.name, rule, c)
	en.queue.entries = append(en.queue.entries, en)
}

// dropLocked takes the entry out, if it is in, and passes its turn on.
func (t *Table) dropLocked(en *entry) {
	home := en.home
	if home == nil {
		return
	}
	gone := func(other *entry) bool { return other == en }
	en.queue.entries = slices.DeleteFunc(en.queue.entries, gone)
	en.queue.seen = slices.DeleteFunc(en.queue.seen, gone)
	en.outLocked()
	t.passLocked(home)
	t.armLocked(home)
	t.pruneLocked(home)
}

// outLocked notes that the entry is in no queue any more.
func (en *entry) outLocked() {
	en.session.disownLocked(en)
	en.home, en.turn, en.ticket = nil, false, 0
}

// refreshLocked takes out of the queue of n who has lost the place by now: Expire may not have been there yet.
func (t *Table) refreshLocked(n Name, rule *Rule, c *Contention, now time.Duration) {
	name, _ := homeOf(n, rule, c)
	home := t.nodes[name]
	if home.place > 0 && home.due > now { // nobody has
		return
	}
	t.passLocked(home)
	t.armLocked(home)
	t.pruneLocked(home)
}

// triedLocked notes a try in vain of a session that polls. The second one within a minute gives it a place; what is
// older has been forgotten.
func (s *Session) triedLocked(n Name, rule *Rule, c *Contention, now time.Duration) {
	t := s.table
	shared := s.sharesLocked(c)
	home, q := t.openQueueLocked(n, rule, c)
	en := s.entryLocked(q, n)
	if en == nil {
		en = s.foundLocked(q.seen, n)
		if en != nil {
			q.seen = slices.DeleteFunc(q.seen, func(other *entry) bool { return other == en })
			s.ownLocked(en, shared, now)
			t.joinLocked(en, rule, c)
			t.armLocked(home)
			return
		}
	}
	if en == nil {
		en = &entry{name: n, home: home, queue: q}
		q.seen = append(q.seen, en)
	}
	s.ownLocked(en, shared, now)
	t.armLocked(home)
}

// forgetLocked takes out who did not come again, and whose turn was kept for long enough; that one
// begins anew, so that it delays the others once.
func (q *queue) forgetLocked(now time.Duration) {
	q.seen = slices.DeleteFunc(q.seen, func(en *entry) bool {
		gone := later(en.last, forgotten) <= now
		if gone {
			en.outLocked()
		}
		return gone
	})
	q.entries = slices.DeleteFunc(q.entries, func(en *entry) bool {
		switch {
		case en.waiting != nil || en.endsAt() > now:
			return false
		case en.turn && later(en.last, forgotten) > now:
			en.turn, en.gap, en.ticket = false, 0, 0
			q.seen = append(q.seen, en)
		default:
			en.outLocked()
		}
		return true
	})
}

// endsAt says when one that polls loses its place if it does not come again.
func (en *entry) endsAt() time.Duration {
	if en.turn {
		return en.keptTo
	}
	return later(en.last, forgotten)
}

// place returns the place of the entry, which may be nil, from 1, and the length of the queue, which may be nil.
func (q *queue) place(en *entry) Place {
	if q == nil {
		return Place{}
	}
	at := 0
	if en != nil {
		at = slices.Index(q.entries, en) + 1
	}
	return Place{At: at, Of: len(q.entries)}
}

// contentionDue says when something is over for one of those who want e.
func (e *node) contentionDue() time.Duration {
	due := neverEnds
	for _, q := range e.queues() {
		for _, en := range q.seen {
			due = min(due, later(en.last, forgotten))
		}
		for _, en := range q.entries {
			if en.waiting == nil {
				due = min(due, en.endsAt())
			} else {
				due = min(due, en.waiting.due())
			}
		}
	}
	for _, w := range e.leavers() {
		due = min(due, w.due())
	}
	return due
}

// armContentionLocked is armLocked for a lock whose own end waits for something else.
func (t *Table) armContentionLocked(e *node) {
	if due := e.contentionDue(); due < neverEnds {
		t.armAtLocked(e, due)
	}
}

// callLate has those look whose waiting is over.
func (e *node) callLate(now time.Duration) {
	for _, q := range e.queues() {
		for _, en := range q.entries {
			if w := en.waiting; w != nil && w.due() <= now {
				w.call(true)
			}
		}
	}
	for _, w := range e.leavers() {
		if w.due() <= now {
			w.call(true)
		}
	}
}

// callLeavers has those look that wait for the members of e to go.
func (e *node) callLeavers() {
	for _, w := range e.leavers() {
		w.call(false)
	}
}

// waitingLocked says how many are in the queue for e.
func (t *Table) waitingLocked(e *node) int {
	if len(e.queues()) == 0 && (e.parent == nil || len(e.parent.queues()) == 0) {
		return 0
	}
	i, ok := t.rules.find(e.name)
	if !ok {
		return 0
	}
	return t.queueLocked(e.name, &t.rules.rules[i], t.rules.ways[i]).place(nil).Of
}

// requeueLocked puts everybody into the queue that the rules in force have for them, in the same order.
func (t *Table) requeueLocked() {
	var all, seen []*entry
	homes := make(map[*node]struct{})
	for _, e := range t.nodes {
		for _, q := range e.queues() {
			all, seen = append(all, q.entries...), append(seen, q.seen...)
		}
		if len(e.queues()) > 0 {
			e.want(nil, e.leavers())
			homes[e] = struct{}{}
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return int(int64(a.ticket) - int64(b.ticket)) })
	for _, en := range append(all, seen...) {
		i, ok := t.rules.find(en.name)
		if !ok || t.rules.ways[i].Queue == QueueOff && en.waiting == nil {
			en.outLocked()
			if en.waiting != nil {
				en.waiting.failed = ErrNoRule
				en.waiting.call(false)
			}
			continue
		}
		en.home, en.queue = t.openQueueLocked(en.name, &t.rules.rules[i], t.rules.ways[i])
		en.shared = en.session.sharesLocked(t.rules.ways[i])
		if en.ticket == 0 {
			en.queue.seen = append(en.queue.seen, en)
		} else {
			en.queue.entries = append(en.queue.entries, en)
		}
		homes[en.home] = struct{}{}
	}
	for e := range homes {
		if t.nodes[e.name] != e { // it went with one below it
			continue
		}
		t.passLocked(e)
		t.armLocked(e)
		t.pruneLocked(e)
	}
}
