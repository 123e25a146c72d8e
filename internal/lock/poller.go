package lock

import (
	"container/list"
	"time"
)

const (
	// remembered is how long it is remembered that a client tried in vain. The second try within that time is polling.
	remembered = time.Minute
	// leastKept is how long a place is kept at least for a client that polls.
	leastKept = 50 * time.Millisecond
	// maxPolls is how many polled locks are remembered of one account, and of one address. The one that was tried longest
	// ago is forgotten first, and with it the place in the queue.
	maxPolls = 1000
)

// poller is what is remembered of a client that tried in vain for a lock whose rule has [QueueFair]: after its first
// try when that was, from the second on a place in the queue.
type poller struct {
	session  *Session // that tried last, if the poller is known by it
	key      pollerKey
	account  string
	address  string
	last     time.Duration // when it tried last
	interval time.Duration // what lay between its last two tries
	hold     time.Duration // the rule's queue_hold
	place    *place        // nil: it tried once only
	alarm    alarm

	lists    [2]*list.List // those of pollers that it is in
	elements [2]*list.Element
}

// pollerKey is what a client is known by when its session does not tell: its nonce, else its address.
type pollerKey struct {
	name                    Name
	account, nonce, address string
}

// pollers remembers clients that poll. Those of a session without a nonce are in Session.polls until that ends.
type pollers struct {
	byKey     map[pollerKey]*poller
	accounts  map[string]*list.List // of *poller, by last try
	addresses map[string]*list.List
}

func newPollers() pollers {
	return pollers{byKey: make(map[pollerKey]*poller), accounts: make(map[string]*list.List), addresses: make(map[string]*list.List)}
}

// keyLocked is what the session is known by for a name when another session of its job comes.
func (s *Session) keyLocked(n Name) pollerKey {
	key := pollerKey{name: n, account: s.owner.Account, nonce: s.owner.Nonce}
	if key.nonce == "" {
		key.address = s.owner.Address
	}
	return key
}

// pollerLocked returns what is remembered of the session, or its job by the nonce, or one of the same account and
// address that has ended: a client that connects anew for each try. nil: nothing.
func (s *Session) pollerLocked(n Name) *poller {
	if s.owner.Nonce == "" {
		if p := s.polls[n]; p != nil {
			return p
		}
	}
	return s.table.polls.byKey[s.keyLocked(n)]
}

// pollLocked notes a try in vain. The second one within a minute gives the session a place in the queue.
func (s *Session) pollLocked(n Name, rule *compiledRule, now time.Duration) {
	t := s.table
	p := s.pollerLocked(n)
	if p == nil || later(p.last, remembered) <= now {
		t.polls.forgetLocked(t, p)
		p = t.polls.newLocked(t, s, n, now)
		t.wanting.set(&p.alarm, later(now, remembered))
		t.polls.listLocked(t, p)
		return
	}
	pl := p.place
	interval := now - p.last
	p.place = nil
	t.polls.forgetLocked(t, p)
	isNew := pl == nil
	if isNew {
		pl = &place{}
	}
	pl.session, pl.owner, pl.shared = s, s.owner, s.sharesLocked(rule)
	t.polls.keepLocked(t, s, pl, n, rule, now, interval)
	if isNew {
		t.joinLocked(pl, n)
	}
}

// keepLocked keeps a place in the queue of a name for the session, which polls at that interval.
func (ps *pollers) keepLocked(t *Table, s *Session, pl *place, n Name, rule *compiledRule, now, interval time.Duration) {
	p := ps.newLocked(t, s, n, now)
	p.interval, p.hold, p.place = interval, rule.contention.QueueHold, pl
	pl.poller = p
	t.wanting.set(&p.alarm, later(now, max(2*min(interval, remembered), leastKept)))
	t.hurryLocked()
	ps.listLocked(t, p)
}

// forgetOwnLocked forgets what is known of the session by itself, or by its nonce, and its place.
func (ps *pollers) forgetOwnLocked(t *Table, s *Session, n Name) {
	if s.owner.Nonce != "" {
		ps.forgetLocked(t, ps.byKey[s.keyLocked(n)])
		return
	}
	ps.forgetLocked(t, s.polls[n])
}

// newLocked makes what is known of the session, which tried in vain now, findable by it, or by its nonce.
func (ps *pollers) newLocked(t *Table, s *Session, n Name, now time.Duration) *poller {
	ps.forgetOwnLocked(t, s, n)
	p := &poller{key: s.keyLocked(n), account: s.owner.Account, address: s.owner.Address, last: now}
	p.alarm.poller = p
	if s.owner.Nonce != "" {
		ps.byKey[p.key] = p
		return p
	}
	p.session = s
	if s.polls == nil {
		s.polls = make(map[Name]*poller)
	}
	s.polls[n] = p
	return p
}

// listLocked adds the poller to the lists by which pollers are forgotten. If there are too many of its account or
// address the oldest goes now.
func (ps *pollers) listLocked(t *Table, p *poller) {
	p.lists = [...]*list.List{listOf(ps.accounts, p.account), listOf(ps.addresses, p.address)}
	for i, l := range p.lists {
		p.elements[i] = l.PushBack(p)
	}
	for _, l := range p.lists {
		if l.Len() > maxPolls {
			ps.forgetLocked(t, l.Front().Value.(*poller))
		}
	}
}

func listOf(lists map[string]*list.List, key string) *list.List {
	l := lists[key]
	if l == nil {
		l = list.New()
		lists[key] = l
	}
	return l
}

// forgetLocked forgets a poller, which may be nil, and its place.
func (ps *pollers) forgetLocked(t *Table, p *poller) {
	if p == nil || p.elements[0] == nil {
		return
	}
	if p.session != nil {
		delete(p.session.polls, p.key.name)
	} else {
		delete(ps.byKey, p.key)
	}
	for i, l := range p.lists {
		l.Remove(p.elements[i])
	}
	p.elements[0] = nil
	if p.lists[0].Len() == 0 {
		delete(ps.accounts, p.account)
	}
	if p.lists[1].Len() == 0 {
		delete(ps.addresses, p.address)
	}
	t.wanting.remove(&p.alarm)
	if pl := p.place; pl != nil {
		p.place = nil
		t.removeLocked(pl)
	}
}

// orphanLocked has the pollers of a session that ends known by its account and address. Clients of which those are the
// same share a place, the earlier one.
func (ps *pollers) orphanLocked(t *Table, s *Session) {
	for _, p := range s.polls {
		other := ps.byKey[p.key]
		if other != nil && (p.place == nil || other.place != nil && other.place.ticket < p.place.ticket) {
			ps.forgetLocked(t, p)
			continue
		}
		ps.forgetLocked(t, other)
		p.session = nil
		ps.byKey[p.key] = p
	}
	s.polls = nil
}

// tickLocked sees to what is over for those that wait and poll: it wakes waiters whose time is over, takes the places
// of pollers that did not come again, and forgets clients that tried once. Each of them costs this once.
func (t *Table) tickLocked(now time.Duration) {
	for at := t.wanting.pop(now); at != nil; at = t.wanting.pop(now) {
		switch p := at.poller; {
		case at.waiting != nil:
			at.waiting.wake()
		case p.place != nil: // its next try gives it the last place
			pl := p.place
			p.place = nil
			t.wanting.set(&p.alarm, later(p.last, remembered))
			t.removeLocked(pl)
		default:
			t.polls.forgetLocked(t, p)
		}
	}
}
