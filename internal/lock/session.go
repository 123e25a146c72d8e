package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Session is a client connection to a table: it acquires and releases locks. It is for use by several goroutines. Touch, Begin and End
// take no mutex.
type Session struct {
	table *Table
	id    SessionID
	s     *sessionState
}

// maxJobKey is the length of the longest job key.
const maxJobKey = 128

var (
	errLongJobKey      = errors.New("the job key is longer than 128 characters")
	errJobKeyCharacter = errors.New("the job key has a character that is not visible ASCII")
)

// goneTimeout bounds the check of the directory of a lock that is about to be refused.
const goneTimeout = 100 * time.Millisecond

// Open begins a session with the account, address and job key of o and a new id. Close ends it.
func (t *Table) Open(o Owner) *Session { return t.open(&sessionState{owner: o}) }

func (t *Table) open(s *sessionState) *Session {
	s.network = NetworkOf(s.owner.Address)
	now := t.beginChange()
	defer t.endChange(now)
	t.sessions++
	s.owner.Session, s.opened = newSessionID(t.start, t.sessions), now
	s.lastActivity.Store(int64(now.Boot))
	t.st.sessions[s.owner.Session] = s
	return &Session{table: t, id: s.owner.Session, s: s}
}

// ID returns the session's id.
func (s *Session) ID() SessionID { return s.id }

// Owner returns the account, address, id and job key of the session, as its next hold has them.
func (s *Session) Owner() Owner {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.s.owner
}

// SetJobKey joins the session to the job of all sessions of its account with this job key, see Owner; "" ends that. Holds keep the job key
// with which they were acquired. A job key is at most 128 visible ASCII characters.
func (s *Session) SetJobKey(jobKey string) error {
	if len(jobKey) > maxJobKey {
		return errLongJobKey
	}
	if strings.ContainsFunc(jobKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errJobKeyCharacter
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.s.owner.JobKey = jobKey
	return nil
}

// maxNote is the length of the longest note in bytes.
const maxNote = 80

// SetNote adds a text for people to the locks that the session acquires from now on. Without one, a lock that the session adopts keeps its
// note. Spaces at the ends are removed, and several in a row become one. A note then has 1 to 80 bytes of UTF-8, all printable characters.
func (s *Session) SetNote(note string) error {
	note = strings.Join(strings.FieldsFunc(note, func(r rune) bool { return r == ' ' }), " ")
	switch {
	case note == "":
		return errors.New("the note is empty")
	case len(note) > maxNote:
		return fmt.Errorf("the note is longer than %d bytes", maxNote)
	case !utf8.ValidString(note):
		return errors.New("the note is not UTF-8")
	case strings.ContainsFunc(note, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("the note has a character that is not printable")
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.s.settings.note = note
	return nil
}

// SetAge limits the age of the locks that the session acquires from now on. Their rule may end them sooner. 0 removes the limit.
func (s *Session) SetAge(age time.Duration) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.s.settings.asked.Age = max(age, 0)
}

// SetDisconnect makes the locks that the session acquires from now on end when the grace after the end of its connection is over. Their
// rule may end them sooner.
func (s *Session) SetDisconnect(grace time.Duration) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.s.settings.asked.Release, s.s.settings.asked.Grace = true, max(grace, 0)
}

// SetWait sets the time that AcquireOrWait waits from now on, in place of the time in the rules. 0: it does not wait.
func (s *Session) SetWait(d time.Duration) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.s.settings.wait, s.s.settings.waits = max(d, 0), true
}

// SetReader sets whether the session only reads protected files. Readers hold locks together if the rule has ReadersShare.
func (s *Session) SetReader(reader bool) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.s.settings.reader = reader
}

// SetMaxLocks sets the number of locks of the account at which the session gets no more; 0: no limit. Held locks stay, and the session
// may adopt them.
func (s *Session) SetMaxLocks(n int) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.s.settings.maxLocks = n
}

// Touch is a sign of life of the client, for max_idle.
func (s *Session) Touch() { s.s.lastActivity.Store(int64(s.table.clock.Now().Boot)) }

// Begin marks the begin of a command, which is a sign of life while it lasts. Call End after it.
func (s *Session) Begin() { s.s.commands.Add(1) }

// End marks the end of a command.
func (s *Session) End() {
	s.Touch()
	s.s.commands.Add(-1)
}

// Work is a sign of life of a client that transfers bytes or has changed a file. For the session's own holds it is a Touch. It also
// counts for the holds of ended sessions of the account that have the session's job key, or come from its address with no other job key,
// unless the session lost a hold of the same name. Do not call it for logins, listings, MKD and RMD: waiting clients, and programs that
// remove old locks, send these, too.
//
// Its cost grows with the number of holds of the account's ended sessions.
func (s *Session) Work() {
	s.Touch()
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now().Boot
	s.s.worked = now
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
			if h.Rule.MaxIdle > 0 && !h.Job && (s.s.sameJobKey(h) || s.s.sameClient(h.session) && !s.s.hasLost(h.Name) && !s.s.otherJobKey(h)) {
				h.idleFrom = now
			}
			t.walkLocked(&steps)
		}
	}
}

// AcquireOrWait acquires the lock. If it is not free and wake is not nil, the session starts to wait in the queue, for the time of its rule
// or of SetWait: then the hold is zero and the Waiting is not nil, and the session must not acquire the name otherwise meanwhile.
// AcquireOrWait always waits for changes of the name that are under way.
//
// A session with the account and job key of the hold, but not the acquiring session, adopts the hold: it gets a new hold with a new token
// and a full age. adopted is the old token, which no longer stands.
//
// A free lock goes to the first waiting session, otherwise to the next caller. If a wait of the session, or of one with its account and job
// key, ended by time less than five seconds ago, it has the place of that wait.
//
// The errors are a *HeldError, a *DelayedError, a *QueuedError, a *LimitError and a *HostError (all match
// ErrHeld); a *ProtectedError if the name lies in another job's lock, see [MemberPolicy]; a *TooManyError; ErrNoRule if
// no rule makes the name a lock; ErrEnded; a *SuspendedError; and those of the disk and the log.
// After ErrUncertain the session may hold the lock for a moment: the server ends the hold as soon as possible, or the session's next
// AcquireOrWait of the name returns it.
//
// The name is claimed while the disk makes the directory. The grant follows.
func (s *Session) AcquireOrWait(ctx context.Context, n Name, wake func()) (h Hold, adopted Token, w *Waiting, err error) {
	t := s.table
	for checked := false; ; checked = true {
		var r result
		a := &acquisition{session: s.s, name: n, wake: wake, vacancies: t.st.vacancies.Load()}
		a.diskFree = t.disk != nil && t.disk.Free(n)
		r, err = t.decideIfValid(ctx, func(now Instant, out *outcome) { t.st.acquire(a, now, out) })
		// A session that starts to wait needs no check: the watch of the directories ends the hold, usually within a second.
		if held, ok := err.(*HeldError); ok && !checked && held.Name == n && t.endIfHostRemoved(ctx, n) {
			continue
		}
		if err == nil && r.claim != nil {
			r, err = t.complete(ctx, r.claim)
		}
		if err != nil {
			return Hold{}, 0, nil, err
		}
		if r.waiter != nil {
			return Hold{}, 0, &Waiting{session: s, waiter: r.waiter}, nil
		}
		if r.adopted != 0 && t.disk != nil && r.granted.Directory != (DirectoryID{}) {
			t.disk.Freshen(r.granted)
		}
		return r.granted, r.adopted, nil, t.awaitGrant(ctx, r)
	}
}

// Renew restarts the age of the session's hold, see ActsFor, under the same token. The errors are those of ActsFor and of the log.
func (s *Session) Renew(ctx context.Context, n Name) (Hold, error) {
	t := s.table
	r, err := t.decideIfValid(ctx, func(now Instant, out *outcome) { t.st.renew(s.s, n, now, out) })
	if err != nil {
		return Hold{}, err
	}
	if t.disk != nil && r.granted.Directory != (DirectoryID{}) {
		t.disk.Freshen(r.granted)
	}
	return r.granted, t.log.Wait(ctx, r.end, true)
}

// Release releases a hold of the name that the session may release: its own, otherwise the oldest of those that its job, its client or
// the rule's release policy allows, see [ReleasePolicy]. It waits for writes under way. If the session may release none and has lost a hold of
// the name, it returns a *LostError, once.
//
// The errors are a *LostError (matches ErrNotHeld or ErrNotYours), a *NotYoursError, ErrNotHeld,
// ErrMembers if there are locks below it, ErrEnded, ErrNotEmpty if its directory is not empty, and those of the log.
func (s *Session) Release(ctx context.Context, n Name) error {
	err := s.table.end(ctx, func(now Instant, out *outcome) { s.table.st.release(s.s, n, now, out) })
	if lost, ok := err.(*LostError); ok {
		s.table.forgiveLosses(s.s, lost)
	}
	return err
}

// forgiveLosses deletes the note that a session lost a hold, because the client gets the error now. A later loss of the name stays.
func (t *Table) forgiveLosses(s *sessionState, reported *LostError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.lost[reported.Name].Token <= reported.Token {
		t.st.forgiveLoss(s, reported.Name)
	}
}

// Undo ends a hold of the session whose grant the client did not receive. After an undone adoption the earlier session has its hold again.
// The session may be closed. If a suspension, a write under way or members delay the end, Expire ends the hold later. The error is
// ErrStale if no hold of the session has the token.
func (s *Session) Undo(ctx context.Context, n Name, token Token) error {
	t := s.table
	_, err := t.decide(ctx, func(_ Instant, out *outcome) { t.st.markUndelivered(n, token, s.id, out) })
	if err == nil {
		t.Expire(ctx)
	}
	return err
}

// Break ends the hold with the token for an administrator, and records the reason. The errors are ErrNotHeld, ErrStale, ErrMembers, and
// those of the disk and the log.
func (t *Table) Break(ctx context.Context, n Name, token Token, by Owner, why string) error {
	return t.end(ctx, func(now Instant, out *outcome) { t.st.breakUp(n, token, by, why, now, out) })
}

// HostGone ends a hold whose directory a program on the host removed, and those that share this directory. It does nothing while a write
// under the hold is under way.
func (t *Table) HostGone(ctx context.Context, h Hold) error {
	return t.end(ctx, func(now Instant, out *outcome) { t.st.hostGone(h.Name, h.Token, now, out) })
}

// end makes a decision that ends a hold, removes the directory, and waits for the log.
func (t *Table) end(ctx context.Context, f decision) error {
	r, err := t.decideIfValid(ctx, f)
	if err == nil && r.claim != nil {
		r, err = t.complete(ctx, r.claim)
	}
	if err != nil {
		return err
	}
	return t.log.Wait(ctx, r.end, false)
}

// endIfHostRemoved ends the hold of a lock whose directory a program on the host removed, and reports whether the lock may be free now. It
// also may be if another caller has ended the hold meanwhile.
func (t *Table) endIfHostRemoved(ctx context.Context, n Name) bool {
	if t.disk == nil {
		return false
	}
	t.mu.Lock()
	held := t.st.nodes[n]
	if held == nil || len(held.holds) == 0 || held.claim != nil {
		t.mu.Unlock()
		return true
	}
	h := held.holds[0].Hold
	t.mu.Unlock()
	checking, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	if gone, err := t.disk.Gone(checking, h); err != nil || !gone {
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
	r, err := t.decideIfValid(ctx, func(_ Instant, out *outcome) { t.st.addDirectory(s.s, n, out) })
	if err == nil && r.claim != nil {
		if r, err = t.complete(ctx, r.claim); err == nil {
			err = t.log.Wait(ctx, r.end, true)
		}
	}
	return err
}

// Close ends the session. Call it when the connection and its transfers have ended. The grace of holds with on_disconnect = release begins; those without a
// grace end, or end later if members or a write under way delay that. Other holds stand. Only the first call has an effect.
func (s *Session) Close(ctx context.Context) {
	s.Touch()
	if s.table.endSession(s.s) && s.table.armHolds(s.s) {
		s.table.Expire(ctx)
	}
}

// endSession ends a session. It returns false if the session has already ended.
func (t *Table) endSession(s *sessionState) bool {
	now := t.beginChange()
	defer t.endChange(now)
	if s.closed {
		return false
	}
	t.st.applyClosed(s, now)
	return true
}

// armHolds sets the timers of a session that has ended, and reports whether it has holds.
func (t *Table) armHolds(s *sessionState) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.wakeReaperLocked()
	steps := 0
	for _, h := range s.holds {
		t.st.arm(h)
		t.walkLocked(&steps)
	}
	return steps > 0
}
