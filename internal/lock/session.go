package lock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Session is what one client connection is to a table: who acquires, gives back and
// speaks for locks. Its methods may be called by several goroutines; Touch, Begin and End cost next to nothing,
// and Work little.
type Session struct {
	table  *Table
	id     SessionID
	opened Instant

	seen     atomic.Int64 // boot time of the last sign of life, while idling is not 0
	commands atomic.Int32 // how many are under way
	idling   atomic.Int32 // how many of its holds have a max_idle

	// What follows is guarded by table.mu.

	owner      Owner
	age        time.Duration // what SetAge said
	closed     bool
	lost       map[Name]LostError
	lostMany   bool // it lost more than lost remembers
	account    *account
	holds      *held // the first of those that it acquired and that stand
	count      int   // how many these are
	next, prev *Session
	reader     bool          // what SetReader said
	patience   time.Duration // what SetWait said, if patient
	patient    bool
	entries    []*entry   // its places in queues, those that it may get included
	waits      []*Waiting // what it waits for
}

// account is what is known of one account: its sessions with holds.
type account struct {
	name    string
	users   int      // sessions that have not ended, or with holds; 0: it is forgotten
	holders *Session // those that have not ended
	ended   *Session // those that have
}

// holdersOf returns where the list of the account's sessions with holds begins that s is in, or would be.
func (a *account) holdersOf(s *Session) **Session {
	if s.closed {
		return &a.ended
	}
	return &a.holders
}

// maxLost is how many lost locks a session remembers one by one. One that lost more does not
// speak for locks of its account's ended sessions any more.
const maxLost = 4096

// maxNonce is the length of the longest nonce.
const maxNonce = 128

// Open begins a session of the account, address and nonce of o, and gives it an id that
// was never used before. Close ends it.
func (t *Table) Open(o Owner) *Session {
	s := &Session{table: t, opened: t.clock.Now(), owner: o}
	s.seen.Store(int64(s.opened.Boot))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastID++
	s.id = t.generation | t.lastID
	s.owner.Session = s.id
	t.sessions[s.id] = s
	s.account = t.accountLocked(o.Account)
	return s
}

// accountLocked returns the account for one more user.
func (t *Table) accountLocked(name string) *account {
	a := t.accounts[name]
	if a == nil {
		a = &account{name: name}
		t.accounts[name] = a
	}
	a.users++
	return a
}

func (t *Table) leaveLocked(a *account) {
	if a.users--; a.users == 0 {
		delete(t.accounts, a.name)
	}
}

// ID returns the session's id.
func (s *Session) ID() SessionID { return s.id }

// Owner returns whom the session's next hold belongs to.
func (s *Session) Owner() Owner {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.owner
}

// SetNonce says that the session is the same job as every other one of its account with this
// nonce, see Owner; "" takes that back. Holds keep the nonce that they were acquired with. A
// nonce is at most 128 visible ASCII characters.
func (s *Session) SetNonce(nonce string) error {
	if len(nonce) > maxNonce {
		return errors.New("the nonce is longer than 128 characters")
	}
	if strings.ContainsFunc(nonce, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the nonce has a character that is not visible ASCII")
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.owner.Nonce = nonce
	return nil
}

// SetAge makes the locks that the session acquires from now on no older than age; their rule
// may end them sooner. 0 takes that back.
func (s *Session) SetAge(age time.Duration) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.age = max(age, 0)
}

// SetWait says how long AcquireOrWait and ReleaseOrWait wait from now on, whatever the rules say. 0: not at all.
func (s *Session) SetWait(d time.Duration) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.patience, s.patient = max(d, 0), true
}

// SetReader says whether the session only reads what locks protect: then it holds locks together with others, where
// their rule has ReadersShare.
func (s *Session) SetReader(reader bool) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.reader = reader
}

// Touch is a sign of life of the client, for max_idle.
func (s *Session) Touch() {
	if s.idling.Load() > 0 {
		s.seen.Store(int64(s.table.clock.Now().Boot))
	}
}

// Begin says that a command of the session is under way, which is a sign of life for as
// long as it lasts. Each Begin needs its End.
func (s *Session) Begin() { s.commands.Add(1) }

// End says that a command is over.
func (s *Session) End() {
	s.Touch()
	s.commands.Add(-1)
}

// Work is a sign of life of a client that does real work: bytes of its file transfers move, or it changed a file. For
// the session's own holds it is a Touch. It counts as well for the holds of its account's ended sessions that are of
// its job: those from the same address, see [ReleaseAddress], of a name of which this session never lost a hold, and
// those with its nonce. Their release policy does not matter. What else a client does, log in, look, list, take
// locks, is no Work: those who only wait for the lock do it, too.
//
// Its cost grows with the holds of the account's ended sessions.
func (s *Session) Work() {
	s.Touch()
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.closed || s.account.ended == nil {
		return
	}
	now := t.clock.Now().Boot
	for ended := s.account.ended; ended != nil; ended = ended.next {
		for h := ended.holds; h != nil; h = h.next {
			if h.Rule.MaxIdle > 0 && (s.sameNonce(h) || s.sameClientLocked(h)) {
				h.idleFrom = now
			}
		}
	}
}

// Lost says whether and how the session lost a lock of the name, since it last
// tried to release one of that name.
func (s *Session) Lost(n Name) (LostError, bool) {
	now := s.table.clock.Now()
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	lost, ok := s.lost[n]
	lost.Ago = now.Boot - lost.At.Boot
	if e := s.table.nodes[n]; e != nil {
		lost.Held = len(e.holds) > 0
	}
	return lost, ok
}

// Acquired reports whether the session acquired a hold of the name that stands.
func (s *Session) Acquired(n Name) bool {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	e := s.table.nodes[n]
	return e != nil && s.holdsLocked(e) != nil
}

func (s *Session) loseLocked(n Name, h Hold, why reason, now Instant) {
	lost := lostError(n, h, why, now)
	if _, known := s.lost[n]; !known && len(s.lost) >= maxLost {
		s.lostMany = true
		return
	}
	if s.lost == nil {
		s.lost = make(map[Name]LostError)
	}
	s.lost[n] = lost
}

// HoldsUntil says when, on the boot clock, the last hold ends that the session speaks for; never
// if one of them does not end by itself; ok is false if there is none.
func (s *Session) HoldsUntil() (until time.Duration, never, ok bool) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, holders := range [...]*Session{s.account.holders, s.account.ended} {
		for holder := holders; holder != nil; holder = holder.next {
			for h := holder.holds; h != nil; h = h.next {
				if s.standingLocked(h) == stranger {
					continue
				}
				at, _ := t.deadlineLocked(h)
				until, ok = max(until, at), true
			}
		}
	}
	if until == neverEnds {
		return 0, true, ok
	}
	return until, false, ok
}

// Close says that the connection and its transfers are over. Holds with on_disconnect = release
// end, if nothing keeps them (members, a publication under way), or wait for their grace
// from now on. The others stand. A hold that could not be ended is tried again by Expire; Close
// returns the errors. Only the first call does anything.
func (s *Session) Close(ctx context.Context) error {
	var errs []error
	for _, n := range s.close() {
		if err := s.disconnect(ctx, n); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// close marks the end, and returns the names of the holds that it ends, members first.
func (s *Session) close() []Name {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.closed {
		return nil
	}
	s.Touch()
	if s.count > 0 {
		s.leaveHoldersLocked()
	}
	s.closed = true
	if s.count > 0 {
		s.joinHoldersLocked()
	}
	delete(t.sessions, s.id)
	for _, w := range slices.Clone(s.waits) {
		w.endLocked()
	}
	var names []Name
	for h := s.holds; h != nil; h = h.next {
		if t.orphanLocked(h); h.waitsForGrace() {
			names = append(names, h.node.name)
			t.armLocked(h.node)
		}
	}
	if s.count == 0 {
		t.leaveLocked(s.account)
	}
	sortDeepestFirst(names)
	return names
}

// disconnect ends the session's hold of the name, or records that it waits for its grace.
func (s *Session) disconnect(ctx context.Context, n Name) error {
	if _, err := s.table.expireName(ctx, n, true); err != nil {
		return err
	}
	if !s.stillHolds(n) {
		return nil
	}
	return s.table.persistName(ctx, n, CauseDisconnect)
}

func (s *Session) stillHolds(n Name) bool {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	e := s.table.nodes[n]
	return e != nil && slices.ContainsFunc(e.holds, func(h *held) bool { return h.session == s })
}

// orphanLocked brings the mark of a hold whose connection has ended in line with its rule.
func (t *Table) orphanLocked(h *held) {
	switch {
	case h.Rule.OnDisconnect != ReleaseOnDisconnect || h.Host():
		h.Ended = Instant{}
	case h.session.closed && !h.waitsForGrace():
		h.Ended = t.clock.Now()
	}
}

// holderLocked returns the session of a hold, one that has ended if need be; nil for the host's.
func (t *Table) holderLocked(hold Hold, ghosts map[SessionID]*Session) *Session {
	if hold.Host() {
		return nil
	}
	if s := t.sessions[hold.Owner.Session]; s != nil {
		return s
	}
	if s := ghosts[hold.Owner.Session]; s != nil && s.owner.Account == hold.Owner.Account && s.owner.Address == hold.Owner.Address {
		return s
	}
	s := &Session{table: t, id: hold.Owner.Session, owner: hold.Owner, closed: true}
	if ghosts != nil {
		ghosts[s.id] = s
	}
	return s
}

// linkLocked puts the hold on its session's list, and the session on its account's.
func (h *held) linkLocked(t *Table) {
	h.idlesLocked(1)
	s := h.session
	if s == nil {
		return
	}
	if s.count == 0 {
		if s.closed {
			s.account = t.accountLocked(s.owner.Account)
		}
		s.joinHoldersLocked()
	}
	s.count++
	if h.next = s.holds; h.next != nil {
		h.next.prev = h
	}
	s.holds = h
}

// unlinkLocked undoes linkLocked.
func (h *held) unlinkLocked(t *Table) {
	h.idlesLocked(-1)
	s := h.session
	if s == nil {
		return
	}
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		s.holds = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	if s.count--; s.count > 0 {
		return
	}
	s.leaveHoldersLocked()
	if s.closed {
		t.leaveLocked(s.account)
	}
}

// joinHoldersLocked puts the session on its account's list of those with holds.
func (s *Session) joinHoldersLocked() {
	first := s.account.holdersOf(s)
	if s.next, s.prev = *first, nil; s.next != nil {
		s.next.prev = s
	}
	*first = s
}

// leaveHoldersLocked undoes joinHoldersLocked.
func (s *Session) leaveHoldersLocked() {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		*s.account.holdersOf(s) = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.next, s.prev = nil, nil
}

// idlesLocked keeps count of the holds for which the session's signs of life matter.
func (h *held) idlesLocked(by int32) {
	if h.session != nil && h.Rule.MaxIdle > 0 {
		h.session.idling.Add(by)
	}
}

// Sessions returns the sessions that have not ended, by id.
func (t *Table) Sessions() []SessionStatus {
	t.mu.Lock()
	all := make([]SessionStatus, 0, len(t.sessions))
	for _, s := range t.sessions {
		all = append(all, SessionStatus{Owner: s.owner, Opened: s.opened, Holds: s.count})
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b SessionStatus) int {
		if a.Owner.Session < b.Owner.Session {
			return -1
		}
		return 1
	})
	return all
}
