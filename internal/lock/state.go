package lock

import (
	"container/list"
	"sync/atomic"
	"time"
)

// Time is a moment on the boot clock of this machine.
type Time = time.Duration

// State is everything that decides which session gets a lock. Decisions read it; the views of jobs are the one thing that they add;
// [State.apply] alone changes it. It is not for use by several goroutines: a [Table] guards it with one mutex.
//
// The log has the holds, and with them last. All else is volatile: sessions, queues, claims, pins.
type State struct {
	rules     *Rules
	reloading bool  // not all names follow the rules yet, so no limit is known
	disk      bool  // a grant waits for the disk: it makes the lock's directory, or finds the name free
	last      Token // the last token that was given
	makes     int   // number of grants that wait for the disk

	nodes    map[Name]*node
	sessions map[SessionID]*session // those that are open, or have holds
	jobs     map[jobKey]*job        // those of open sessions, and those that automatic locks remember
	ended    list.List              // of these, those that have ended, in order
	sites    map[Name]*site         // the automatic locks whose files a job has seen
	floor    floor
	accounts map[string]*account // those that have had holds or claims
	pools    map[poolKey]*pool   // the limits that are in use
	barred   map[Name]int        // names at or below which nothing is granted, with the number of writes that demand it
	unbars   atomic.Uint64       // number of times that such names came free: since then, a directory there may be new or gone
	agenda   agenda
	waiting  int     // number of sessions in queues
	tickets  uint64  // the last ticket that a place got
	touched  []*node // those that a session in a queue may get now, for Table.settleLocked
}

// newState returns a state without holds.
func newState(rules *Rules, disk bool) *State {
	return &State{
		rules: rules, disk: disk,
		nodes:    map[Name]*node{"/": {name: "/"}},
		sessions: make(map[SessionID]*session),
		jobs:     make(map[jobKey]*job),
		sites:    make(map[Name]*site),
		accounts: make(map[string]*account),
		pools:    make(map[poolKey]*pool),
		barred:   make(map[Name]int),
	}
}

// node is a name that is held, claimed or wanted, or a directory above one.
type node struct {
	name     Name
	parent   *node
	children map[Name]*node
	below    int // number of nodes below it that are taken

	holds   []*hold  // the oldest first; of several, all are shared
	alone   [1]*hold // has them if there is one
	claim   *claim   // a directory is being made or removed for it
	pins    int      // writes under its holds that are under way
	queue   []*place // the sessions that wait for it, in order
	counted bool     // the nodes above and its pool count it as taken
	pool    *pool    // the limit that counts it; nil: none

	delay   Time  // its holder lost it, and no session gets it before this time; 0: no delay
	blocked *host // a program on the host made a directory of this name; nil: not known
	freed   Time  // when its last hold ended, while sessions wait
	alarm   alarm
}

// host is a directory that a program on the host made, so that no session gets the lock.
type host struct {
	err   *HostError
	until Time // then the first session in the queue tries again
}

// hold is one hold that stands.
type hold struct {
	Hold
	node     *node
	session  *session // the one that acquired it, open or closed
	idleFrom Time     // it was alive then, so earlier signs of life do not matter
	previous *Hold    // the hold that it was adopted from, for an undo
	rival    bool     // since the grant another session of the same account and address was refused the lock
	view     *view    // with an automatic rule: of the job whose sessions may all use it; nil: none
	turn     Time     // with Automatic: the job has only looked, and the hold ends then
	sent     bool     // with Automatic: the job sent MKD, too
	unheard  bool     // the client did not receive the grant: it ends as soon as it can
	retry    Time     // an end by time failed; the next attempt is not before this time
	failures int
	alarm    alarm
}

// claim is a change of a lock's directory that is under way. Until it is over, nothing else changes the name.
type claim struct {
	node   *node
	record Record // applied when the disk is done: a grant, or the end of a hold; with adds only its Hold and By count
	makes  bool   // the record is a grant
	adds   bool   // the directory is for the files in a lock that stands
	place  *place // with makes: the session that waited; nil: none
	wake   func() // with makes and no place: of the session, if it waits for a directory of the host to go
	begun  bool   // the disk is at work
}

// place is the place of a session in the queue for a lock.
type place struct {
	session *session
	node    *node
	owner   Owner
	since   Time
	until   Time
	ticket  uint64 // the order of places across names
	pool    *pool  // of a limited rule; nil: none
	wake    func() // called when there is something to do or to read; must not block or use the table
	view    *view  // of a job that waits for an automatic lock; nil: the session sent MKD
	look    bool
	path    Name
	alarm   alarm

	// The result, when it is no longer in the queue:

	makes   *claim // it is still in the queue, and is to make the directory of its lock
	over    bool
	granted *Hold    // the lock is its own
	end     Position // of that in the log
	err     error    // why it cannot have the lock
}

// session is a client connection, or one that has ended and has holds.
type session struct {
	owner    Owner
	client   *job // of all sessions of its client; nil: a session of which only a hold is known
	own      *job // of this session alone, where a rule has it so
	opened   Instant
	closed   bool
	closedAt Time
	settings settings
	holds    map[Name]*hold // those that it acquired
	places   map[*place]struct{}
	lost     map[Name]LostError
	lostMany bool // it lost more locks than the field lost has
	worked   Time // when it last did work; 0: never

	// Signs of life are inputs from outside. They may change at any time.

	seen     atomic.Int64 // boot time of the last one
	commands atomic.Int32 // number of commands under way; each is a sign of life while it lasts
}

// settings apply to the locks that a session acquires from now on.
type settings struct {
	asked    Asked
	wait     time.Duration
	waits    bool // wait counts, not the rule
	reader   bool
	maxLocks int
}

// account is the holds of an account.
type account struct {
	holds    int // number of holds, and of claims that become one
	sessions map[*session]struct{}
	ended    int // how many of these sessions have ended
}

// poolKey names a limit: it counts the locks of a rule directly below a directory.
type poolKey struct {
	dir  Name
	rule *compiledRule
}

// pool is the locks under one limit.
type pool struct {
	key   poolKey
	taken int      // nodes of it that are taken
	queue []*place // the sessions that wait for any of its names, in order
}

func (p *pool) full() bool { return p.taken >= p.key.rule.contention.Limit }

// taken reports whether the node is held or is about to be.
func (n *node) taken() bool { return len(n.holds) > 0 || n.claim != nil && n.claim.makes }

// ending reports whether the directory of the last hold is being removed. n may be nil.
func (n *node) ending() bool {
	return n != nil && n.claim != nil && !n.claim.makes && !n.claim.adds && len(n.holds) == 1
}

// byToken returns the hold with the token, or nil.
func (n *node) byToken(t Token) *hold {
	if n == nil || t == 0 {
		return nil
	}
	for _, h := range n.holds {
		if h.Token == t {
			return h
		}
	}
	return nil
}

// shares reports whether the holds, of which there is at least one, are shared.
func (n *node) shares() bool { return n.holds[0].Shared }

// held reports whether the name is held.
func (st *State) held(name Name) bool {
	n := st.nodes[name]
	return n != nil && len(n.holds) > 0
}

// takenWithin returns a node at or below n, which may be nil, that is taken; nil if there is none.
func (n *node) takenWithin() *node {
	for n != nil && !n.taken() {
		n = n.takenChild()
	}
	return n
}

// takenChild returns a child that is taken, or has such a node below it; nil if there is none.
func (n *node) takenChild() *node {
	if n.below == 0 {
		return nil
	}
	for _, c := range n.children {
		if c.taken() || c.below > 0 {
			return c
		}
	}
	return nil
}

// innermost returns a node below n that is taken and has none below itself.
func (n *node) innermost() *node {
	for n.below > 0 {
		n = n.takenChild()
	}
	return n
}

// barredBy returns the name at or above which nothing is granted now: a write keeps it free, or a lock above the name is about to end; ""
// if there is none.
func (st *State) barredBy(name Name) Name {
	for n := name; ; n = n.Parent() {
		if st.barred[n] > 0 || n != name && st.nodes[n].ending() {
			return n
		}
		if n == "/" {
			return ""
		}
	}
}

// poolOf returns the pool that the name counts in, new if need be; nil if its rule has no limit. It does not add it to the state.
func (st *State) poolOf(name Name) *pool {
	rule := st.rules.limitedBy(name)
	if rule == nil {
		return nil
	}
	key := poolKey{name.Parent(), rule}
	if p := st.pools[key]; p != nil {
		return p
	}
	return &pool{key: key}
}
