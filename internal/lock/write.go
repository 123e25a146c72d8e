package lock

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
)

// Title is by which lock a session may change a path.
type Title struct {
	Lock  Name // "": nothing protects the path
	Token Token
	Owner Owner // of the hold
	// Around is the innermost held lock that the path lies in, Grant the token of its hold, which is the session's; "" and
	// 0: it lies in none.
	Around Name
	Grant  Token
}

// Write is one change of a path that locks may protect.
type Write struct {
	Path Name
	// Begun says that the change began earlier, by the Title: no other holds will do now, and if that was of no
	// lock, the path must not be protected now, and not lie in a lock.
	Begun bool
	Title Title
}

// ProtectedError says that a lock protects a path from the session. It matches fs.ErrPermission and Why.
type ProtectedError struct {
	Path Name
	Lock Name
	Why  error // a *LostError, a *NotYoursError, ErrNotHeld, or another reason
	// Inside says that the path lies in the lock; otherwise a rule protects it.
	Inside bool
}

var (
	errOthersShare = errors.New("which you do not hold alone")
	errNotBegun    = errors.New("which you did not hold when it began")
	errGivenBack   = errors.New("which was given back meanwhile")
	errOtherJob    = errors.New("which another connection of your account took: say SITE LOCK AS with the same word in each connection, before MKD")
)

func (e *ProtectedError) Error() string { return e.Text(string(e.Lock)) }

// Text is Error with the lock's name as somebody else knows it.
func (e *ProtectedError) Text(name string) string {
	text := "protected by the lock " + name + ", "
	if e.Inside {
		text = "lies in the lock " + name + ", "
	}
	var lost *LostError
	switch {
	case errors.As(e.Why, &lost):
		return text + lost.Error()
	case e.Why == errOthersShare, e.Why == errNotBegun, e.Why == errGivenBack, e.Why == errOtherJob:
		return text + e.Why.Error()
	}
	return text + "which you do not hold"
}

// Unwrap makes the error match Why and fs.ErrPermission.
func (e *ProtectedError) Unwrap() []error { return []error{e.Why, fs.ErrPermission} }

// MayWrite says whether the session may change the path now. If the path lies in a lock that is held, the session must
// speak for the hold of the innermost one, and hold it alone. If rules protect the path, one of the locks that do must be held
// exclusively, the session must speak for that hold as its [WritePolicy] says, and nobody else may hold another of them. The error is
// a *ProtectedError, ErrEnded, or that of [Rules.Guards].
//
// The answer is true of one moment. The change itself belongs into [Session.Write].
func (s *Session) MayWrite(path Name) (Title, error) {
	q, err := s.table.Rules().question(path)
	if err != nil {
		return Title{}, err
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.titleLocked(Write{Path: path}, q)
}

// Concerned reports whether locks may have a say in who changes the path: rules protect paths, or it lies in a lock or in
// something with the name of one. Otherwise MayWrite and Write need not be asked.
func (s *Session) Concerned(path Name) bool {
	t := s.table
	rules := t.Rules()
	if rules.Protects() {
		return true
	}
	for n := path.Parent(); n != "/"; n = n.Parent() {
		if _, ok := rules.For(n); ok || t.Held(n) {
			return true
		}
	}
	return false
}

// question is what is to be known of the locks to answer whether a path may be changed.
type question struct {
	guards []Name // the locks that protect it
	above  []Name // the directories that it lies in, innermost first, but "/"
	named  []Name // those of them that rules make locks
}

func (r *Rules) question(path Name) (q question, err error) {
	if q.guards, err = r.Guards(path); err != nil {
		return q, err
	}
	if path == "/" {
		return q, nil
	}
	for n := path.Parent(); n != "/"; n = n.Parent() {
		q.above = append(q.above, n)
		if _, ok := r.For(n); ok {
			q.named = append(q.named, n)
		}
	}
	return q, nil
}

// Write runs fn while the session may make all the changes, see MayWrite: whatever ends the holds of a title
// waits for fn, and so does every grant of another lock that protects one of the paths or that a path lies in. So the change
// and the check are one step. A hold whose time is over is none, also before Expire has ended it. fn gets the titles, in the order
// of the writes. It must be quick, and must not wait for the table.
//
// The errors are those of MayWrite, of ctx, that of [Options.Valid], and what fn returns. Valid is asked right before fn, unless no lock
// has a say in any of the paths: those are promised nothing.
func (s *Session) Write(ctx context.Context, writes []Write, fn func([]Title) error) error {
	for {
		rules := s.table.Rules()
		questions := make([]question, len(writes))
		for i, w := range writes {
			var err error
			if questions[i], err = rules.question(w.Path); err != nil {
				return err
			}
		}
		c, err := s.claim(ctx, rules, writes, questions)
		if err != nil {
			return err
		}
		if c == nil { // other rules are in force by now
			continue
		}
		defer c.end()
		if len(c.pinned) > 0 || len(c.barred) > 0 { // else no lock has a say
			if err := s.table.valid(); err != nil {
				return err
			}
		}
		return fn(c.titles)
	}
}

// claim keeps the holds that changes are made by, and everybody else from the other locks that protect the paths.
type claim struct {
	table  *Table
	titles []Title
	pinned []*node
	barred []Name
}

// claim waits until no change of the locks is under way, and checks and keeps them in one step. It returns nothing if
// other rules are in force by then.
func (s *Session) claim(ctx context.Context, rules *Rules, writes []Write, questions []question) (c *claim, err error) {
	t := s.table
	werr := t.when(ctx, func() <-chan struct{} {
		for _, q := range questions {
			for _, n := range slices.Concat(q.guards, q.above) {
				switch e := t.nodes[n]; {
				case e == nil:
				case e.doing != idle:
					return e.wait()
				case e.unsettled != nil:
					err = errUnsettled
					return nil
				}
			}
		}
		if t.rules == rules {
			c, err = s.claimLocked(writes, questions)
		}
		return nil
	})
	if werr != nil {
		return nil, werr
	}
	return c, err
}

func (s *Session) claimLocked(writes []Write, questions []question) (*claim, error) {
	c := &claim{table: s.table, titles: make([]Title, len(writes))}
	for i, w := range writes {
		var err error
		if c.titles[i], err = s.titleLocked(w, questions[i]); err != nil {
			return nil, err
		}
	}
	for i, q := range questions {
		for _, n := range slices.Concat(q.guards, q.named) {
			c.takeLocked(n)
		}
		if around := c.titles[i].Around; around != "" {
			c.takeLocked(around) // no rule may make it a lock any more
		}
	}
	return c, nil
}

// takeLocked pins what stands of a lock, and keeps everybody from one that nobody holds.
func (c *claim) takeLocked(n Name) {
	t := c.table
	if e := t.nodes[n]; e != nil && len(e.holds) > 0 {
		if !slices.Contains(c.pinned, e) {
			e.pins++
			c.pinned = append(c.pinned, e)
		}
		return
	}
	if !slices.Contains(c.barred, n) {
		t.excludeLocked(n)
		c.barred = append(c.barred, n)
	}
}

// end lets go of everything. A hold whose time is over, or that is about to end, can end now.
func (c *claim) end() {
	t := c.table
	t.include(c.barred)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range c.pinned {
		if e.pins--; e.pins == 0 {
			e.wake()
			t.armLocked(e)
			t.pruneLocked(e)
		}
	}
}

// titleLocked finds the holds by which the session may make the change.
func (s *Session) titleLocked(w Write, q question) (Title, error) {
	title, err := s.guardLocked(w, q.guards)
	if err == nil {
		title.Around, title.Grant, err = s.aroundLocked(w, q.above)
	}
	return title, err
}

// aroundLocked finds the hold of the innermost lock that the path lies in.
func (s *Session) aroundLocked(w Write, above []Name) (Name, Token, error) {
	refuse := func(n Name, why error) (Name, Token, error) {
		return "", 0, &ProtectedError{Path: w.Path, Lock: n, Why: why, Inside: true}
	}
	for _, n := range above {
		e := s.table.nodes[n]
		if e == nil || len(e.holds) == 0 {
			continue
		}
		h, _, err := s.spokenForLocked(n, e)
		switch {
		case err != nil:
			return refuse(n, err)
		case len(e.holds) > 1 || h.Shared:
			return refuse(n, errOthersShare)
		case s.table.pastLocked(h):
			return refuse(n, s.overdueLocked(n, h))
		case w.Begun && (w.Title.Around != n || w.Title.Grant != h.Token):
			return refuse(n, s.begunLocked(Title{Lock: w.Title.Around, Token: w.Title.Grant}, n))
		}
		return n, h.Token, nil
	}
	if began := w.Title.Around; w.Begun && began != "" {
		return refuse(began, s.begunLocked(Title{Lock: began, Token: w.Title.Grant}, began))
	}
	return "", 0, nil
}

// guardLocked finds the hold of a lock that protects the path.
func (s *Session) guardLocked(w Write, guards []Name) (Title, error) {
	if len(guards) == 0 {
		return Title{}, nil
	}
	if s.closed {
		return Title{}, ErrEnded
	}
	var title Title
	var refused *ProtectedError
	refuse := func(n Name, why error) {
		if refused == nil || why != ErrNotHeld && refused.Why == ErrNotHeld {
			refused = &ProtectedError{Path: w.Path, Lock: n, Why: why}
		}
	}
	for _, n := range guards {
		e := s.table.nodes[n]
		h, err := s.writesByLocked(n, e)
		switch {
		case err != nil && e != nil && len(e.holds) > 0: // somebody else's: nothing else counts
			return Title{}, &ProtectedError{Path: w.Path, Lock: n, Why: err}
		case err != nil:
			refuse(n, err)
		case len(e.holds) > 1 || h.Shared:
			return Title{}, &ProtectedError{Path: w.Path, Lock: n, Why: errOthersShare}
		case s.table.pastLocked(h):
			refuse(n, s.overdueLocked(n, h))
		case w.Begun && (w.Title.Lock != n || w.Title.Token != h.Token):
			refuse(n, s.begunLocked(w.Title, n))
		case title.Lock == "":
			title = Title{Lock: n, Token: h.Token, Owner: h.Owner}
		}
	}
	if title.Lock == "" {
		return Title{}, refused
	}
	return title, nil
}

// writesByLocked returns the hold of e, which may be nil, by which the session changes what the lock protects. To come from
// the same account is not enough, unless the rule says so: a job whose lock is lost, and the next one of its account that
// has it, look the same then.
func (s *Session) writesByLocked(n Name, e *node) (*held, error) {
	h, title, err := s.spokenForLocked(n, e)
	if err != nil || title >= byNonce {
		return h, err
	}
	if rule := s.table.rules.find(n); rule != nil && rule.protection.WriteAs == WriteAsAccount {
		return h, nil
	}
	return nil, errOtherJob
}

// begunLocked says why a hold of n is not the one by which a change began.
func (s *Session) begunLocked(began Title, n Name) error {
	if began.Lock != n {
		return errNotBegun
	}
	if lost, ok := s.lost[n]; ok && lost.Token == began.Token {
		lost.Ago, lost.Held = s.table.clock.Now().Boot-lost.At.Boot, true
		return &lost
	}
	return errGivenBack
}

// pastLocked reports whether the hold's time is over, whether or not somebody has ended it yet.
func (t *Table) pastLocked(h *held) bool {
	at, _ := t.deadlineLocked(h)
	return at <= t.clock.Now().Boot
}

// overdueLocked is what the session will be told of a hold that is over, when that has been ended.
func (s *Session) overdueLocked(n Name, h *held) error {
	now := s.table.clock.Now()
	at, cause := s.table.deadlineLocked(h)
	lost := lostError(n, h.Hold, reason{cause: cause}, now)
	lost.Ago = max(now.Boot-at, 0)
	return &lost
}

// lostError describes a hold that was taken away.
func lostError(n Name, h Hold, why reason, now Instant) LostError {
	lost := LostError{Name: n, Token: h.Token, Cause: why.cause, By: why.by, Note: why.note, At: now}
	switch why.cause {
	case CauseExpire:
		lost.Limit = cmp.Or(why.limit, h.Rule.MaxAge)
	case CauseIdle:
		lost.Limit = h.Rule.MaxIdle
	case CauseHostMade:
		lost.Cause = CauseHostGone
	}
	return lost
}
