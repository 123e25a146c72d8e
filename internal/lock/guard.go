package lock

import (
	"errors"
	"io/fs"
	"slices"
)

// writeScope has the names that do not change during a write.
type writeScope struct {
	pins     []Name // held: the last hold of each does not end
	excluded []Name // no lock is granted at or below these names

	publications int // the number of records that the write may append
}

func (k writeScope) empty() bool { return len(k.pins)+len(k.excluded) == 0 }

// writeRequest has the writes that a session wants to make in one step.
type writeRequest struct {
	session *sessionState
	writes  []Write
	rules   *Rules      // the rules in force before the decision
	paths   []pathLocks // by these rules, of each write
}

func newWriteRequest(s *sessionState, writes []Write, rules *Rules) (*writeRequest, error) {
	r := &writeRequest{session: s, writes: writes, rules: rules, paths: make([]pathLocks, len(writes))}
	for i, w := range writes {
		var err error
		if r.paths[i], err = rules.locksOfPath(w.Path); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// permitAll decides whether the session may make all the writes now. Its record pins the holds that allow them, and excludes the other locks
// that protect or contain one of the paths; the scope lists both.
func (st *State) permitAll(r *writeRequest, now Instant, out *outcome) {
	if st.rules != r.rules {
		return
	}
	var scope writeScope
	all := make([]Permit, len(r.writes))
	for i, w := range r.writes {
		for _, name := range r.paths[i].names() {
			if n := st.nodes[name]; n != nil && n.claim != nil && n.claim.kind != claimFiles {
				out.busy = name
				return
			}
		}
		var err error
		if all[i], err = st.permit(r.session, w, r.paths[i], now); err != nil {
			out.refuse(err)
			return
		}
	}
	for i, q := range r.paths {
		for _, name := range slices.Concat(q.guards, q.lockable) {
			scope.add(name, st.held(name))
		}
		if around := all[i].Around; around != "" {
			scope.add(around, true) // a reload may have left it without a rule
		}
		if all[i].Lock != "" {
			scope.publications++
		}
	}
	out.beginWrite(scope)
	out.permit, out.expects = &writePermit{all, scope}, scope.publications
}

// exclude decides whether the session may change directories now: whether no lock is held at or below the excluded names of the scope.
func (st *State) exclude(s *sessionState, scope writeScope, now Instant, out *outcome) {
	for _, name := range scope.excluded {
		n := st.lockWithin(s, name)
		switch {
		case n == nil:
		case n.claim != nil:
			out.busy = n.name
			return
		default:
			held := n.heldError(now)
			held.Below = n.name != name
			out.refuse(held)
			return
		}
	}
	out.beginWrite(scope)
}

// names returns the locks that the decision about the path depends on.
func (q pathLocks) names() []Name { return slices.Concat(q.guards, q.above) }

// add pins a lock that is held, and excludes one that is not.
func (k *writeScope) add(name Name, held bool) {
	names := &k.excluded
	if held {
		names = &k.pins
	}
	if !slices.Contains(*names, name) {
		*names = append(*names, name)
	}
}

// permit returns the holds by which the session may make a change: the hold of a lock that protects the path, and the hold of the innermost
// held lock that contains it.
func (st *State) permit(s *sessionState, w Write, q pathLocks, now Instant) (permit Permit, err error) {
	if s.closed && len(q.guards) > 0 {
		return Permit{}, ErrEnded
	}
	holder := s
	if w.Under != nil {
		holder = w.Under.s
	}
	var refused *ProtectedError
	for _, name := range q.guards {
		h, err := st.writableHold(holder, w, name, false, now)
		switch {
		case err == nil && permit.Lock == "":
			permit = Permit{Lock: name, Token: h.Token, Owner: h.Owner}
		case err == nil:
		case err != errNotBegun && !errors.Is(err, ErrNotHeld): // another job holds it, so no other lock counts
			return Permit{}, &ProtectedError{Path: w.Path, Lock: name, Why: err}
		case refused == nil || err != ErrNotHeld && refused.Why == ErrNotHeld:
			refused = &ProtectedError{Path: w.Path, Lock: name, Why: err}
		}
	}
	if refused != nil && permit.Lock == "" {
		return Permit{}, refused
	}
	if w.Begun {
		permit.Around = w.Permit.Around
	}
	if i := slices.IndexFunc(q.above, st.held); i >= 0 {
		permit.Around = q.above[i]
	}
	if permit.Around == "" {
		return permit, nil
	}
	h, err := st.writableHold(s, w, permit.Around, true, now)
	if err != nil {
		return Permit{}, &ProtectedError{Path: w.Path, Lock: permit.Around, Why: err, Inside: true}
	}
	permit.AroundToken = h.Token
	return permit, nil
}

// writableHold returns the hold of a lock by which the session may make a change. With inside, the lock contains the path, and the session must
// act for the hold. Without, the lock protects the path, and the session must belong to the holder's job or the rule must accept the account:
// else a job that lost the lock could change the files of the account's next job.
func (st *State) writableHold(s *sessionState, w Write, name Name, inside bool, now Instant) (*liveHold, error) {
	began, token := w.Permit.Lock, w.Permit.Token
	if inside {
		began, token = w.Permit.Around, w.Permit.AroundToken
	}
	h, reason, err := st.holdOf(s, name, now)
	if err == nil && !inside && reason < byJobKey {
		if rule := st.rules.find(name); rule == nil || rule.protection.WriteAs != WriteAsAccount {
			err = errOtherJob
		}
	}
	switch {
	case err != nil && inside && !st.held(name): // the change began under the lock, which has ended since
		return nil, s.otherHoldError(began, token, name, false, now)
	case err != nil:
		return nil, err
	case h.Shared:
		return nil, errOthersShare
	case h.expired(now.Boot):
		return nil, expiredError(h, now)
	case w.Begun && (began != name || token != h.Token):
		return nil, s.otherHoldError(began, token, name, true, now)
	}
	return h, nil
}

// otherHoldError returns the error for a change that began under another hold than that of the name: under the hold of the lock named by began, with
// the token. held is set if the name is held now.
func (s *sessionState) otherHoldError(began Name, token Token, name Name, held bool, now Instant) error {
	if began != name {
		return errNotBegun
	}
	if lost := s.lostError(name, held, now); lost != nil && lost.Token == token {
		return lost
	}
	return errGivenBack
}

// expiredError returns the error for an expired hold that has not ended yet. It is the same as after the end.
func expiredError(h *liveHold, now Instant) error {
	at, cause := h.deadline(now.Boot)
	ended := now
	ended.Boot = at
	return &LostError{Name: h.Name, Token: h.Token, Cause: cause, Limit: h.limit(cause), At: ended, Ago: max(now.Boot-at, 0)}
}

// Permit names the holds by which a session may change a path.
type Permit struct {
	Lock  Name // "": nothing protects the path
	Token Token
	Owner Owner // of the hold
	// Around is the innermost held lock that contains the path, and AroundToken the token of its hold; "" and 0: none contains it.
	Around      Name
	AroundToken Token
}

// Write is one change of a path that locks may protect.
type Write struct {
	Path Name
	// Begun is set if the change began earlier with the Permit. It needs the same holds now. If the Permit has no lock, no lock may
	// protect or contain the path now.
	Begun  bool
	Permit Permit
	// Under is the session whose holds count for the locks that protect the path: one of OpenJob; nil: the session itself.
	Under *Session
}

// ProtectedError reports that a lock protects a path from the session. It matches fs.ErrPermission and Why.
type ProtectedError struct {
	Path Name
	Lock Name
	Why  error // a *LostError, a *NotYoursError, a *HostError, ErrNotHeld, or another reason
	// Inside is set if the lock contains the path; otherwise a rule protects it.
	Inside bool
}

var (
	errOthersShare = errors.New("which you hold shared, not exclusively")
	errNotBegun    = errors.New("which you did not hold when it began")
	errGivenBack   = errors.New("which was given back meanwhile")
	errOtherJob    = errors.New("which another connection of your account took: send SITE LOCK AS with the same job key in each connection, before MKD")
)

func (e *ProtectedError) Error() string { return e.Text(string(e.Lock)) }

// Text is Error with another name for the lock: an account with a home sees other paths.
func (e *ProtectedError) Text(name string) string {
	text := "protected by the lock " + name + ", "
	if e.Inside {
		text = "lies in the lock " + name + ", "
	}
	var lost *LostError
	var host *HostError
	switch {
	case errors.As(e.Why, &host):
		return text + host.Error()
	case errors.As(e.Why, &lost):
		return text + lost.Error()
	case e.Why == errOthersShare, e.Why == errNotBegun, e.Why == errGivenBack, e.Why == errOtherJob:
		return text + e.Why.Error()
	}
	return text + "which you do not hold"
}

// Unwrap makes the error match Why and fs.ErrPermission.
func (e *ProtectedError) Unwrap() []error { return []error{e.Why, fs.ErrPermission} }

// pathLocks has the names of the locks that the decision about a change of a path depends on.
type pathLocks struct {
	guards   []Name // locks that protect the path
	above    []Name // directories above the path without "/", the innermost first
	lockable []Name // those directories that rules make locks
}

func (r *Rules) locksOfPath(path Name) (q pathLocks, err error) {
	if q.guards, err = r.Guards(path); err != nil {
		return q, err
	}
	if path == "/" {
		return q, nil
	}
	for n := path.Parent(); n != "/"; n = n.Parent() {
		q.above = append(q.above, n)
		if r.find(n) != nil {
			q.lockable = append(q.lockable, n)
		}
	}
	return q, nil
}
