package lock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Session is what one client connection is to a table: it acquires, gives back and
// speaks for locks. Its methods may be called by several goroutines; Touch, Begin and End cost next to nothing,
// and Work little.
type Session struct {
	table  *Table
	id     SessionID
	opened Instant

	seen     atomic.Int64 // boot time of the last sign of life
	commands atomic.Int32 // how many are under way

	// What follows is guarded by table.mu.

	owner    Owner
	age      time.Duration // what SetAge said
	releases bool          // what SetDisconnect said, and after how long
	grace    time.Duration
	closed   bool
	lost     map[Name]LostError
	lostMany bool          // it lost more than lost remembers
	holds    []*held       // those that it acquired and that stand
	reader   bool          // what SetReader said
	patience time.Duration // what SetWait said, if patient
	patient  bool
	waits    map[*Waiting]struct{} // what it waits for
	polls    map[Name]*poller      // what it polls for, without a nonce
	wanted   want                  // what it tried for last
	maxLocks int                   // what SetMaxLocks said
	worked   time.Duration         // boot time of the last Work; 0: none
}

// account is what is known of an account that has holds.
type account struct {
	holds   int                   // of its sessions, and grants under way
	holders map[*Session]struct{} // its sessions with holds that have not ended
	ended   map[*Session]struct{} // those that have
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
	return s
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

// SetDisconnect makes the locks that the session acquires from now on end when its connection has ended, after the grace; their rule may end
// them sooner.
func (s *Session) SetDisconnect(grace time.Duration) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.releases, s.grace = true, max(grace, 0)
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

// SetMaxLocks says how many locks the session's account may hold before the session is refused more; 0: any number. Those
// that it holds already stay, and it may adopt them. Locks of the host do not count.
func (s *Session) SetMaxLocks(n int) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.maxLocks = n
}

// Touch is a sign of life of the client, for max_idle.
func (s *Session) Touch() { s.seen.Store(int64(s.table.clock.Now().Boot)) }

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
// those with its nonce. Their release policy does not matter. Other commands, logins, listings, and MKD and RMD of
// locks and directories, are no Work: clients that wait for the lock, and programs that remove old locks, send them, too.
//
// Its cost grows with the holds of the account's ended sessions.
func (s *Session) Work() {
	s.Touch()
	t := s.table
	now := t.clock.Now().Boot
	t.mu.Lock()
	defer t.mu.Unlock()
	s.worked = now
	a := t.accounts[s.owner.Account]
	if s.closed || a == nil || len(a.ended) == 0 {
		return
	}
	for ended := range a.ended {
		for _, h := range ended.holds {
			if h.Rule.MaxIdle > 0 && (s.sameNonce(h) || s.sameClientLocked(h)) {
				h.idleFrom = now
			}
		}
	}
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
	a := t.accounts[s.owner.Account]
	if a == nil {
		return 0, false, false
	}
	for _, holders := range [...]map[*Session]struct{}{a.holders, a.ended} {
		for holder := range holders {
			for _, h := range holder.holds {
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
	t.closeLocked(s)
	for w := range s.waits {
		w.endLocked()
	}
	t.polls.orphanLocked(t, s)
	var names []Name
	for _, h := range s.holds {
		if t.markEndLocked(h); h.waitsForGrace() {
			names = append(names, h.node.name)
			t.armLocked(h.node)
		}
	}
	sortDeepestFirst(names)
	return names
}

// disconnect ends the session's hold of the name, or records that it waits for its grace.
func (s *Session) disconnect(ctx context.Context, n Name) error {
	err := s.table.expireName(ctx, n, true)
	if err == nil && s.Acquired(n) {
		err = s.table.persistName(ctx, n, CauseDisconnect)
	}
	if isSuspended(err) { // Expire ends it, or another server counts its grace from the moment when it takes over
		return nil
	}
	return err
}

// markEndLocked brings the mark of a hold whose connection has ended in line with its rule.
func (t *Table) markEndLocked(h *held) {
	switch {
	case h.Rule.OnDisconnect != ReleaseOnDisconnect || h.Host():
		h.Ended = Instant{}
	case h.session.closed && !h.waitsForGrace():
		h.Ended = t.clock.Now()
	}
}

// holderLocked returns the session of a hold, one that ended before a restart if need be; nil for the host's.
func (t *Table) holderLocked(hold Hold) *Session {
	if hold.Host() {
		return nil
	}
	o := hold.Owner
	if s := t.sessions[o.Session]; s != nil && s.owner.Account == o.Account && s.owner.Address == o.Address {
		return s
	}
	s := &Session{table: t, id: o.Session, owner: o, closed: true}
	if t.sessions[s.id] == nil {
		t.sessions[s.id] = s
	}
	return s
}

// linkLocked adds the hold to those of its session.
func (t *Table) linkLocked(h *held) {
	s := h.session
	if s == nil {
		return
	}
	h.index = len(s.holds)
	s.holds = append(s.holds, h)
	a := t.accountLocked(s.owner.Account)
	a.holds++
	if h.index == 0 {
		a.joinedBy(s)
	}
}

// unlinkLocked undoes linkLocked.
func (t *Table) unlinkLocked(h *held) {
	s := h.session
	if s == nil {
		return
	}
	last := len(s.holds) - 1
	s.holds[h.index] = s.holds[last]
	s.holds[h.index].index = h.index
	s.holds[last] = nil
	s.holds = s.holds[:last]
	a := t.accounts[s.owner.Account]
	if last == 0 {
		delete(a.holders, s)
		delete(a.ended, s)
		if s.closed && t.sessions[s.id] == s {
			delete(t.sessions, s.id)
		}
	}
	t.countDownLocked(s.owner.Account)
}

// accountLocked returns the account, new if need be.
func (t *Table) accountLocked(name string) *account {
	a := t.accounts[name]
	if a == nil {
		a = &account{holders: make(map[*Session]struct{}), ended: make(map[*Session]struct{})}
		t.accounts[name] = a
	}
	return a
}

// countDownLocked notes that the account has one hold less.
func (t *Table) countDownLocked(name string) {
	a := t.accounts[name]
	if a.holds--; a.holds == 0 {
		delete(t.accounts, name)
	}
}

// joinedBy adds a session with holds to those of its account.
func (a *account) joinedBy(s *Session) {
	if s.closed {
		a.ended[s] = struct{}{}
	} else {
		a.holders[s] = struct{}{}
	}
}

// closeLocked has the session count as ended.
func (t *Table) closeLocked(s *Session) {
	s.closed = true
	if len(s.holds) == 0 {
		delete(t.sessions, s.id)
		return
	}
	a := t.accounts[s.owner.Account]
	delete(a.holders, s)
	a.joinedBy(s)
}

// Sessions returns the sessions that have not ended, by id.
func (t *Table) Sessions() []SessionStatus {
	t.mu.Lock()
	all := make([]SessionStatus, 0, len(t.sessions))
	for _, s := range t.sessions {
		if !s.closed {
			all = append(all, SessionStatus{Owner: s.owner, Opened: s.opened, Holds: len(s.holds)})
		}
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b SessionStatus) int { return cmp.Compare(a.Owner.Session, b.Owner.Session) })
	return all
}

// sharesLocked reports whether the session holds locks together with others where that is the rule.
func (s *Session) sharesLocked(rule *compiledRule) bool {
	c := &rule.contention
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
