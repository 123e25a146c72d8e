package lock

import (
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
}

// Write is one change of a path that locks may protect.
type Write struct {
	Path Name
	// Begun says that the change began earlier, by the Title: no other hold will do now, and if that was of no
	// lock, the path must not be protected now.
	Begun bool
	Title Title
}

// ProtectedError says that a lock protects a path from the session. It matches fs.ErrPermission and Why.
type ProtectedError struct {
	Path Name
	Lock Name
	Why  error // a *LostError, a *NotYoursError, ErrNotHeld, or another reason
}

var (
	errOthersShare = errors.New("which you do not hold alone")
	errNotBegun    = errors.New("which you did not hold when it began")
	errGivenBack   = errors.New("which was given back meanwhile")
)

func (e *ProtectedError) Error() string { return e.Text(string(e.Lock)) }

// Text is Error with the lock's name as somebody else knows it.
func (e *ProtectedError) Text(name string) string {
	text := "protected by the lock " + name + ", "
	var lost *LostError
	switch {
	case errors.As(e.Why, &lost):
		return text + lost.Error()
	case e.Why == errOthersShare, e.Why == errNotBegun, e.Why == errGivenBack:
		return text + e.Why.Error()
	}
	return text + "which you do not hold"
}

// Unwrap makes the error match Why and fs.ErrPermission.
func (e *ProtectedError) Unwrap() []error { return []error{e.Why, fs.ErrPermission} }

// MayWrite says whether the session may change the path now: nothing protects it, or one of the locks that do is
// held exclusively, the session speaks for that hold, and nobody else holds another of them. The error is
// a *ProtectedError, ErrEnded, or that of [Rules.Guards].
//
// The answer is true of one moment. The change itself belongs into [Session.Write].
func (s *Session) MayWrite(path Name) (Title, error) {
	w := Write{Path: path}
	for {
		rules := s.table.Rules()
		guards, err := rules.Guards(path)
		if err != nil || len(guards) == 0 {
			return Title{}, err
		}
		s.table.mu.Lock()
		same := s.table.rules == rules
		title, err := s.titleLocked(w, guards)
		s.table.mu.Unlock()
		if same {
			return title, err
		}
	}
}

// Write runs fn while the session may make all the changes, see MayWrite: whatever ends the hold of a title
// waits for fn, and so does every grant of another lock that protects one of the paths. So the change and the check
// are one step. A hold whose time is over is none, also before Expire has ended it. fn gets the titles, in the order
// of the writes. It must be quick, and must not wait for the table.
//
// The errors are those of MayWrite, of ctx, and what fn returns.
func (s *Session) Write(ctx context.Context, writes []Write, fn func([]Title) error) error {
	for {
		rules := s.table.Rules()
		guards := make([][]Name, len(writes))
		for i, w := range writes {
			var err error
			if guards[i], err = rules.Guards(w.Path); err != nil {
				return err
			}
		}
		c, err := s.claim(ctx, rules, writes, guards)
		if err != nil {
			return err
		}
		if c == nil { // other rules are in force by now
			continue
		}
		defer c.end()
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

func (s *Session) claim(ctx context.Context, rules *Rules, writes []Write, guards [][]Name) (*claim, error) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.settledLocked(ctx, guards); err != nil {
		return nil, err
	}
	if t.rules != rules {
		return nil, nil
	}
	c := &claim{table: t, titles: make([]Title, len(writes))}
	for i, w := range writes {
		var err error
		if c.titles[i], err = s.titleLocked(w, guards[i]); err != nil {
			return nil, err
		}
	}
	for _, names := range guards {
		for _, n := range names {
			c.takeLocked(n)
		}
	}
	return c, nil
}

// settledLocked waits until no change of the locks is under way.
func (t *Table) settledLocked(ctx context.Context, guards [][]Name) error {
	for i := 0; i < len(guards); {
		n := slices.IndexFunc(guards[i], func(n Name) bool {
			e := t.nodes[n]
			return e != nil && e.busy
		})
		if n < 0 {
			i++
			continue
		}
		if err := t.waitLocked(ctx, t.nodes[guards[i][n]]); err != nil {
			return err
		}
		i = 0 // the mutex was let go of
	}
	return nil
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

func (c *claim) end() {
	for _, e := range c.pinned {
		c.table.unpin(e)
	}
	c.table.include(c.barred)
}

// titleLocked finds the hold by which the session may make the change.
func (s *Session) titleLocked(w Write, guards []Name) (Title, error) {
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
		h, _, err := s.spokenForLocked(n, e)
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
			title = Title{n, h.Token, h.Owner}
		}
	}
	if title.Lock == "" {
		return Title{}, refused
	}
	return title, nil
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
		lost.Limit = h.Rule.MaxAge
	case CauseIdle:
		lost.Limit = h.Rule.MaxIdle
	case CauseHostMade:
		lost.Cause = CauseHostGone
	}
	return lost
}
