package lock

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Session is a client connection to a table: it acquires and releases locks. Its methods may be called by several goroutines.
// Touch, Begin and End cost next to nothing.
type Session struct {
	table *Table
	id    SessionID
	s     *session
}

// maxNonce is the length of the longest nonce.
const maxNonce = 128

// gonePatience bounds a look at the directory of a lock that is refused.
const gonePatience = 100 * time.Millisecond

// Open begins a session of the account, address and nonce of o, with an id that
// was never used before. Close ends it.
func (t *Table) Open(o Owner) *Session {
	s := &session{owner: o}
	t.do(func(st *State, now Instant) {
		t.sessions++
		s.owner.Session, s.opened = newSessionID(t.start, t.sessions), now
		s.seen.Store(int64(now.Boot))
		st.sessions[s.owner.Session] = s
		st.join(s, now.Boot)
	})
	return &Session{table: t, id: s.owner.Session, s: s}
}

// ID returns the session's id.
func (s *Session) ID() SessionID { return s.id }

// Owner returns the owner of the session's next hold.
func (s *Session) Owner() Owner {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.s.owner
}

// SetNonce makes the session the same job as every other one of its account with this
// nonce, see Owner; "" ends that. Holds keep the nonce with which they were acquired. A
// nonce is at most 128 visible ASCII characters.
func (s *Session) SetNonce(nonce string) error {
	if len(nonce) > maxNonce {
		return errors.New("the nonce is longer than 128 characters")
	}
	if strings.ContainsFunc(nonce, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the nonce has a character that is not visible ASCII")
	}
	s.table.do(func(st *State, now Instant) { st.applyNonce(s.s, nonce, now.Boot) })
	return nil
}

// set changes the settings of the session.
func (s *Session) set(change func(*settings)) {
	s.table.do(func(*State, Instant) { change(&s.s.settings) })
}

// SetAge limits the age of the locks that the session acquires from now on. Their rule
// may end them sooner. 0 removes the limit.
func (s *Session) SetAge(age time.Duration) {
	s.set(func(to *settings) { to.asked.Age = max(age, 0) })
}

// SetDisconnect makes the locks that the session acquires from now on end when its connection has ended, after the grace. Their rule may end
// them sooner.
func (s *Session) SetDisconnect(grace time.Duration) {
	s.set(func(to *settings) { to.asked.Release, to.asked.Grace = true, max(grace, 0) })
}

// SetWait sets how long AcquireOrWait waits from now on, in place of the time in the rules. 0: not at all.
func (s *Session) SetWait(d time.Duration) {
	s.set(func(to *settings) { to.wait, to.waits = max(d, 0), true })
}

// SetReader sets whether the session only reads protected files: then it holds locks together with others, where
// their rule has ReadersShare.
func (s *Session) SetReader(reader bool) { s.set(func(to *settings) { to.reader = reader }) }

// SetMaxLocks sets how many locks the session's account may hold before the session is refused more; 0: any number. Locks
// that it holds already stay, and it may adopt them.
func (s *Session) SetMaxLocks(n int) { s.set(func(to *settings) { to.maxLocks = n }) }

// Touch is a sign of life of the client, for max_idle.
func (s *Session) Touch() { s.s.seen.Store(int64(s.table.clock.Now().Boot)) }

// Begin marks the begin of a command, which is a sign of life for as
// long as it lasts. Each Begin needs its End.
func (s *Session) Begin() { s.s.commands.Add(1) }

// End marks the end of a command.
func (s *Session) End() {
	s.Touch()
	s.s.commands.Add(-1)
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
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now().Boot
	s.s.worked = now
	s.s.each(func(v *view) { v.active = now })
	a := t.st.accounts[s.s.owner.Account]
	if a == nil || a.ended == 0 || s.s.closed {
		return
	}
	steps := 0
	for ended := range a.sessions {
		if !ended.closed {
			continue
		}
		for _, h := range ended.holds {
			if h.Rule.MaxIdle > 0 && !h.Automatic && (s.s.sameNonce(h) || s.s.sameClient(h)) {
				h.idleFrom = now
			}
			t.walkLocked(&steps)
		}
	}
}

// AcquireOrWait acquires the lock, if its rule, its holders and the queue let the session. If they do not, and wake is not
// nil, the session waits in the queue, for the time of its rule or of SetWait: then the hold is zero, and the
// Waiting is not nil. Changes of the name that are under way are waited for in any case. The session must
// not acquire the same name otherwise meanwhile.
//
// A session of the same account and nonce as the hold that stands, other than the one that
// acquired it, adopts it: it gets a new hold with a new token and a full age, and the old token
// stands no longer; adopted is that.
//
// Clients that try again and again compete for a lock that comes free: the next try gets it, unless a session waits.
//
// The errors are a *HeldError, a *DelayedError, a *QueuedError, a *LimitError and a *HostError (all match
// ErrHeld); a *ProtectedError if the name lies in another job's lock, see [MemberPolicy]; a *TooManyError; ErrNoRule if
// no rule makes the name a lock; ErrEnded; a *SuspendedError; and those of the disk and the log.
// After ErrUncertain the lock may be the session's for a moment; the server ends it as soon as it can, or the session's next try gets it.
//
// The name is claimed while the disk makes the directory of the lock. Only then the lock is granted.
func (s *Session) AcquireOrWait(ctx context.Context, n Name, wake func()) (h Hold, adopted Token, w *Waiting, err error) {
	t := s.table
	for looked := false; ; looked = true {
		var r result
		a := &acquisition{session: s.s, name: n, wake: wake, unbars: t.st.unbars.Load()}
		a.free = t.disk != nil && t.disk.Free(n)
		r, err = t.change(ctx, func(now Instant, out *outcome) { t.st.acquire(a, now, out) })
		if held, ok := err.(*HeldError); ok && !looked && held.Name == n && t.hostTook(ctx, n) {
			continue
		}
		if err == nil && r.task != nil {
			r, err = t.complete(ctx, r.task)
		}
		if err != nil {
			return Hold{}, 0, nil, err
		}
		if r.place != nil {
			return Hold{}, 0, &Waiting{session: s, place: r.place}, nil
		}
		if r.adopted != 0 && t.disk != nil && r.granted.Directory != (DirectoryID{}) {
			t.disk.Freshen(r.granted)
		}
		return r.granted, r.adopted, nil, t.written(ctx, r)
	}
}

// Renew counts the age of the hold for which the session acts from now on anew, under the same
// token. Its errors are those of SpeaksFor and of the log.
func (s *Session) Renew(ctx context.Context, n Name) (Hold, error) {
	t := s.table
	r, err := t.change(ctx, func(now Instant, out *outcome) { t.st.renew(s.s, n, now, out) })
	if err != nil {
		return Hold{}, err
	}
	if t.disk != nil && r.granted.Directory != (DirectoryID{}) {
		t.disk.Freshen(r.granted)
	}
	return r.granted, t.log.Wait(ctx, r.end, true)
}

// Release releases the hold of the name for which the session acts, of several its own, else the oldest; with release = address
// also one of another connection of its client, see [ReleaseAddress]; with release = anyone any hold. A session that
// lost one of the name gets an error at its first try. Release waits for writes under way. After that the session has forgotten that it lost a hold of the name.
//
// The errors are a *LostError (matches ErrNotHeld or ErrNotYours), a *NotYoursError, ErrNotHeld,
// ErrMembers if there are locks below it, ErrEnded, ErrNotEmpty if its directory is not empty, and those of the log.
func (s *Session) Release(ctx context.Context, n Name) error {
	if err := s.table.valid(); err != nil {
		return err
	}
	return s.table.end(ctx, func(now Instant, out *outcome) { s.table.st.release(s.s, n, now, out) })
}

// Undo ends a hold of the session whose grant the client did not receive, and no other one. After an undone adoption the session that had
// the lock has it again. The session may be closed. The hold ends now, or as soon as Expire can end it: after a suspension, a write under way, and its members.
// The error is ErrStale if the token does not stand or is not the session's.
func (s *Session) Undo(ctx context.Context, n Name, token Token) error {
	t := s.table
	_, err := t.decide(ctx, func(_ Instant, out *outcome) {
		t.st.undo(Hold{Name: n, Token: token, Owner: Owner{Session: s.id}}, out)
	})
	if err == nil {
		t.Expire(ctx)
	}
	return err
}

// Break takes the lock away from the holder with the token, and has the reason recorded. Nothing else ends. The errors are ErrNotHeld, ErrStale,
// ErrMembers, and those of the disk and the log.
func (t *Table) Break(ctx context.Context, n Name, token Token, by Owner, why string) error {
	if err := t.valid(); err != nil {
		return err
	}
	return t.end(ctx, func(now Instant, out *outcome) { t.st.breakUp(n, token, by, why, now, out) })
}

// HostGone ends a hold whose directory a program on the host removed, unless a write under it is under way.
func (t *Table) HostGone(ctx context.Context, h Hold) error {
	if err := t.valid(); err != nil {
		return err
	}
	return t.end(ctx, func(now Instant, out *outcome) { t.st.hostGone(h.Name, h.Token, now, out) })
}

// end makes a decision that ends a hold, to its last step.
func (t *Table) end(ctx context.Context, f func(now Instant, out *outcome)) error {
	r, err := t.decide(ctx, f)
	if err == nil && r.task != nil {
		r, err = t.complete(ctx, r.task)
	}
	if err != nil {
		return err
	}
	return t.log.Wait(ctx, r.end, false)
}

// hostTook looks at the directory of a held lock, ends the hold if a program on the host removed it, and reports whether the lock may have come
// free: another caller may have ended the hold meanwhile.
func (t *Table) hostTook(ctx context.Context, n Name) bool {
	if t.disk == nil {
		return false
	}
	t.mu.Lock()
	is := t.st.nodes[n]
	if is == nil || len(is.holds) == 0 || is.claim != nil {
		t.mu.Unlock()
		return true
	}
	h := is.holds[0].Hold
	t.mu.Unlock()
	looking, cancel := context.WithTimeout(ctx, gonePatience)
	defer cancel()
	if gone, err := t.disk.Gone(looking, h); err != nil || !gone {
		return false
	}
	_ = t.HostGone(ctx, h) // the next decision finds the result
	return true
}

// MakeDirectory gives the lock a directory for the files in it, if it is held and has none.
func (s *Session) MakeDirectory(ctx context.Context, n Name) error {
	t := s.table
	if t.disk == nil {
		return nil
	}
	r, err := t.change(ctx, func(_ Instant, out *outcome) { t.st.addDirectory(s.s, n, out) })
	if err == nil && r.task != nil {
		if r, err = t.complete(ctx, r.task); err == nil {
			err = t.log.Wait(ctx, r.end, true)
		}
	}
	return err
}

// Close ends the session: its connection and its transfers are over. Holds with on_disconnect = release
// end, if nothing keeps them (members, a write under way), or wait for their grace
// from now on. The others stand. Only the first call does anything.
func (s *Session) Close(ctx context.Context) {
	t := s.table
	s.Touch()
	closed := false
	t.do(func(st *State, now Instant) {
		if closed = s.s.closed; !closed {
			st.applyClosed(s.s, now)
		}
	})
	if !closed && t.armHolds(s.s) {
		t.Expire(ctx)
	}
}

// armHolds sets the alarms of a session that has ended, and reports whether it has holds.
func (t *Table) armHolds(s *session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.hurryLocked()
	steps := 0
	for _, h := range s.holds {
		t.st.arm(h)
		t.walkLocked(&steps)
	}
	return steps > 0
}
