package lock

import (
	"sync/atomic"
	"time"
)

// Time is a moment on the boot clock of this machine.
type Time = time.Duration

// State is everything that a decision depends on. Decisions read it, and [State.apply] makes all changes that they decide.
//
// Changes without a decision write it directly: a start, SetRules, the open and close of a session, its settings, Work, EndAt, the end of a
// write, Poll, which begins or gives up a claim, and Release after the report of a loss. State is not for use by several goroutines: a [Table] guards it with one mutex.
//
// The log stores the holds and the last token. Sessions, queues, claims and pins are volatile.
type State struct {
	rules         *Rules
	reloading     bool  // a reload is under way: the counts of limits are incomplete
	disk          bool  // a grant needs the disk, which makes the directory or finds the name free
	last          Token // the last token that was given
	pendingGrants int   // number of grants that wait for the disk
	expected      int   // number of other records with room in the log that follow: publications of writes under way, directories of held locks

	nodes     map[Name]*node
	sessions  map[SessionID]*sessionState // open sessions, and ended ones with holds
	accounts  map[string]*account         // accounts that have had holds or claims
	pools     map[poolKey]*pool           // the limits that are in use
	excluded  map[Name]int                // number of writes that exclude grants at and below a name
	vacancies atomic.Uint64               // incremented when an exclusion ends: the result of an earlier Disk.Free may be out of date
	timers    timerHeap
	queues    map[*node]struct{}         // the nodes with queues
	losers    map[*sessionState]struct{} // open sessions that lost holds
	tickets   uint64                     // the last ticket that a waiter got

	// Queues that Table.serveQueuesLocked must serve next.

	dirty   []*node // a change concerned them
	vacated []*pool // limits that are no longer reached
}

// newState returns a state without holds.
func newState(rules *Rules, disk bool) *State {
	return &State{
		rules: rules, disk: disk,
		nodes:    map[Name]*node{"/": {name: "/"}},
		sessions: make(map[SessionID]*sessionState),
		accounts: make(map[string]*account),
		pools:    make(map[poolKey]*pool),
		excluded: make(map[Name]int),
		queues:   make(map[*node]struct{}),
		losers:   make(map[*sessionState]struct{}),
	}
}

// node is a name that is held, claimed or waited for, or a directory above one.
type node struct {
	name     Name
	parent   *node
	children map[Name]*node
	below    int // number of taken nodes below it

	holds   []*liveHold  // the oldest first; if there are several, all are shared
	alone   [1]*liveHold // the array of holds while there is one, which saves an allocation
	claim   *claim       // its directory is being made or removed; nil: it is not
	pins    int          // number of writes under way under its holds
	queue   []*waiter    // waiting sessions, in order
	places  []*waiter    // sessions that keep their place after a wait that ended by time, in order
	counted bool         // the counters of the nodes above and of its pool include it
	pool    *pool        // the limit that counts it; nil: none

	delay     Time  // lock_delay: no grant before this time; 0: no delay
	blocked   *host // a directory of the host has this name; nil: none is known
	unserved  error // why its queue was not served; nil: it was
	lastFreed Time  // end of its last hold
	timer     timer
}

// host is a directory without a hold that has the name of a lock. A program on the host made it.
type host struct {
	err   *HostError
	until Time // time of the next attempt of the first waiting session
}

// liveHold is one hold that stands.
type liveHold struct {
	Hold
	node           *node
	session        *sessionState  // the acquiring session, open or closed
	idleFrom       Time           // a sign of life; earlier ones do not count
	previous       *Hold          // the adopted hold, which an undo restores; nil: none
	contested      bool           // another session of the same account and address tried to acquire the lock, or shares it
	endAt          Time           // of EndAt: it ends at this time at the latest; 0: no such time
	endCause       Cause          // with endAt: the cause
	unacknowledged bool           // the client did not receive the grant: the hold ends as soon as possible
	groupEnd       cachedDeadline // of a hold that stands after its own deadline because of its members
	nextTry        Time           // earliest time of the next attempt after a failed end; 0: none has failed
	failures       int
	timer          timer
}

// cachedDeadline is the groupDeadline of a hold, whose computation reads all members. It is valid until the time: members may end meanwhile.
type cachedDeadline struct{ deadline, until Time }

// claim is a change of a lock's directory that is under way. Nothing else changes the name meanwhile.
type claim struct {
	kind    claimKind
	node    *node
	record  Record  // the grant or end to apply when the disk has finished; of claimFiles only its Hold and By count
	waiter  *waiter // of claimGrant: the waiting session; nil: none
	wake    func()  // of claimGrant, without a waiter: if the disk finds a directory of the host, the session's new waiter gets this function
	begun   bool    // the disk has begun
	expects int     // of claimFiles: the number of its records
}

// claimKind is the purpose of a claim.
type claimKind uint8

const (
	claimGrant claimKind = iota + 1 // a grant: the disk makes the directory, or finds the name free
	claimFiles                      // the disk makes a directory for the files in a held lock
	claimEnd                        // the end of the last hold: the disk removes the directory
)

// waiter is a session in the queue for a lock.
type waiter struct {
	session *sessionState
	name    Name
	node    *node // of the name, once it is in the queue
	since   Time
	until   Time
	ticket  uint64 // the place: orders the waiters of one name and of several
	pool    *pool  // the pool of a rule with a limit; nil: none
	wake    func() // called when Waiting.Poll has something to do or return; must not block or use the table
	timer   timer  // the end of the wait, then that of the place

	claim *claim     // the session has to make the directory of its lock, and stays in the queue meanwhile; nil: not yet
	host  *HostError // of its last attempt; nil: none

	// The result, when done is set. The waiter has left the queue then.

	done    bool
	granted *Hold    // the new hold
	end     Position // end of its record in the log
	err     error    // why there is no hold
}

// sessionState is a client connection that is open, or has ended and still has holds.
type sessionState struct {
	owner    Owner
	network  string // NetworkOf its address
	job      bool   // it is automatic, see OpenJob
	opened   Instant
	closed   bool
	closedAt Time
	settings settings
	holds    map[Name]*liveHold // acquired by this session
	waiters  map[*waiter]struct{}
	lost     map[Name]LostError
	lostMany bool // it lost more locks than the field lost lists
	worked   Time // time of its last Work; 0: none

	// Signs of life come from other goroutines at any time.

	lastActivity atomic.Int64 // boot time of the last one
	commands     atomic.Int32 // number of commands under way; each is a sign of life while it lasts
}

// settings apply to the locks that a session acquires from now on.
type settings struct {
	asked    Asked
	wait     time.Duration
	waits    bool // wait replaces the time in the rule
	reader   bool
	maxLocks int
	note     string
}

// account is the holds of an account.
type account struct {
	holds    int                        // number of holds, and of claims of grants
	sessions map[*sessionState]struct{} // sessions with holds
	ended    int                        // number of ended sessions among them
}

// poolKey names a limit, which counts the locks of a rule directly below a directory.
type poolKey struct {
	dir  Name
	rule *compiledRule
}

// pool is the locks under one limit.
type pool struct {
	key   poolKey
	taken int       // number of taken nodes
	queue []*waiter // sessions that wait for any of its names, in order
}

func (p *pool) full() bool { return p.taken >= p.key.rule.contention.Limit }

// placeOf returns the first place that the session has kept, or another session of its job; nil if there is none.
func (n *node) placeOf(s *sessionState) *waiter {
	for _, w := range n.places {
		if t := w.session; t == s || t.owner.Account == s.owner.Account && t.owner.JobKey != "" && t.owner.JobKey == s.owner.JobKey && t.job == s.job {
			return w
		}
	}
	return nil
}

// taken reports whether the node is held, or a claim of a grant is under way.
func (n *node) taken() bool { return len(n.holds) > 0 || n.claim != nil && n.claim.kind == claimGrant }

// changing reports whether a grant or the end of the last hold waits for the disk. n may be nil.
func (n *node) changing() bool {
	return n != nil && n.claim != nil && (n.claim.kind == claimGrant || n.claim.kind == claimEnd && len(n.holds) == 1)
}

// byToken returns the hold with the token, or nil.
func (n *node) byToken(t Token) *liveHold {
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

// isOldest reports whether the hold is the oldest one of its name that stands.
func (st *State) isOldest(h Hold) bool {
	n := st.nodes[h.Name]
	return n != nil && len(n.holds) > 0 && n.holds[0].Token == h.Token
}

// shares reports whether the holds are shared. The node must be held.
func (n *node) shares() bool { return n.holds[0].Shared }

// held reports whether the name is held.
func (st *State) held(name Name) bool {
	n := st.nodes[name]
	return n != nil && len(n.holds) > 0
}

// takenWithin returns a taken node at or below n, or nil. n may be nil.
func (n *node) takenWithin() *node {
	for n != nil && !n.taken() {
		n = n.takenChild()
	}
	return n
}

// lockWithin returns a taken node at or below a name that keeps the session from removing or renaming the directory of that name, or nil. A
// single automatic lock below it counts as none if this session holds it, or if its rule only advises.
func (st *State) lockWithin(s *sessionState, name Name) *node {
	dir := st.nodes[name]
	n := dir.takenWithin()
	if n == nil || n == dir || dir.below > 1 || n.claim != nil {
		return n
	}
	if h := n.holds[0]; h.Job && (h.session == s || st.advises(n.name)) {
		return nil
	}
	return n
}

// takenChild returns a child that is taken or has a taken node below it, or nil.
func (n *node) takenChild() *node {
	for _, c := range n.children {
		if c.taken() || c.below > 0 {
			return c
		}
	}
	return nil
}

// innermost returns a taken node below n without taken nodes below itself. n.below must not be 0.
func (n *node) innermost() *node {
	for n.below > 0 {
		n = n.takenChild()
	}
	return n
}

// excludedBy returns the name, at or above this one, that excludes a grant now; "" if none does. A write excludes its names. A lock above
// whose directory is being made or removed excludes the names below it: only its holder may acquire those, or it is about to end.
func (st *State) excludedBy(name Name) Name {
	for n := name; ; n = n.Parent() {
		if st.excluded[n] > 0 || n != name && st.nodes[n].changing() {
			return n
		}
		if n == "/" {
			return ""
		}
	}
}

// poolOf returns the pool that counts the name; nil if its rule has no limit. A new pool is not yet part of the state.
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

// queueOf returns the sessions that wait for the name, or for any name of its limit, in order.
func (st *State) queueOf(name Name) []*waiter {
	if p := st.poolOf(name); p != nil {
		return p.queue
	}
	if n := st.nodes[name]; n != nil {
		return n.queue
	}
	return nil
}
