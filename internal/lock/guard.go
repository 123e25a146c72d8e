package lock

import (
	"errors"
	"io/fs"
	"slices"
)

// kept has the names that a write under way keeps as they are.
type kept struct {
	pins []Name // names whose holds do not end
	bars []Name // names at and below which nothing is granted
}

func (k kept) empty() bool { return len(k.pins)+len(k.bars) == 0 }

// titles decides whether the session may make all the writes now, and by which holds. Its record pins these holds, and bars the other
// locks that protect one of the paths, or that a path lies in, as keeps lists them.
func (st *State) titles(s *session, writes []Write, questions []question, now Instant, out *outcome) (all []Title, keeps kept) {
	all = make([]Title, len(writes))
	for i, w := range writes {
		for _, name := range questions[i].names() {
			if n := st.nodes[name]; n != nil && n.claim != nil && !n.claim.adds {
				out.busy = name
				return nil, kept{}
			}
		}
		var err error
		if all[i], err = st.title(s, w, questions[i], now); err != nil {
			out.refuse(st.refreshed(err, now))
			return nil, kept{}
		}
	}
	for i, q := range questions {
		for _, name := range slices.Concat(q.guards, q.named) {
			keeps.take(name, st.held(name))
		}
		if around := all[i].Around; around != "" {
			keeps.take(around, true) // perhaps no rule makes it a lock any more
		}
	}
	out.keep(keeps)
	return all, keeps
}

// names returns the locks that may decide about the path.
func (q question) names() []Name { return slices.Concat(q.guards, q.above) }

// take pins a lock that is held, and bars one that is not.
func (k *kept) take(name Name, held bool) {
	names := &k.bars
	if held {
		names = &k.pins
	}
	if !slices.Contains(*names, name) {
		*names = append(*names, name)
	}
}

// title finds the holds by which the session may make a change: that of a lock which protects the path, and that of the innermost held lock
// which the path lies in.
func (st *State) title(s *session, w Write, q question, now Instant) (title Title, err error) {
	if s.closed && len(q.guards) > 0 {
		return Title{}, ErrEnded
	}
	var refused *ProtectedError
	for _, name := range q.guards {
		h, err := st.usable(s, w, name, false, now)
		switch {
		case err == nil && title.Lock == "":
			title = Title{Lock: name, Token: h.Token, Owner: h.Owner}
		case err == nil:
		case err != errNotBegun && !errors.Is(err, ErrNotHeld): // another job holds it, so no other lock counts
			return Title{}, &ProtectedError{Path: w.Path, Lock: name, Why: err}
		case refused == nil || err != ErrNotHeld && refused.Why == ErrNotHeld:
			refused = &ProtectedError{Path: w.Path, Lock: name, Why: err}
		}
	}
	if refused != nil && title.Lock == "" {
		return Title{}, refused
	}
	if w.Begun {
		title.Around = w.Title.Around
	}
	if i := slices.IndexFunc(q.above, st.held); i >= 0 {
		title.Around = q.above[i]
	}
	if title.Around == "" {
		return title, nil
	}
	h, err := st.usable(s, w, title.Around, true, now)
	if err != nil {
		return Title{}, &ProtectedError{Path: w.Path, Lock: title.Around, Why: err, Inside: true}
	}
	title.Grant = h.Token
	return title, nil
}

// usable returns the hold of a lock by which the session may make a change, or why there is none. With inside, the path lies in the lock,
// and the session must act for the hold. Otherwise the lock protects the path, and the session must be of the same job, unless the rule
// accepts its account: a job that lost its lock, and the next job of its account that has it, look the same then.
func (st *State) usable(s *session, w Write, name Name, inside bool, now Instant) (*hold, error) {
	began, token := w.Title.Lock, w.Title.Token
	if inside {
		began, token = w.Title.Around, w.Title.Grant
	}
	h, title, err := st.holdOf(s, name)
	if err == nil && !inside && title < byJob {
		if rule := st.rules.find(name); rule == nil || rule.protection.WriteAs != WriteAsAccount {
			err = errOtherJob
		}
	}
	switch {
	case err != nil && inside && !st.held(name): // it was held when the change began
		return nil, s.begun(began, token, name)
	case err != nil:
		return nil, err
	case len(h.node.holds) > 1 || h.Shared:
		return nil, errOthersShare
	case h.over(now.Boot):
		return nil, overdue(h, now)
	case w.Begun && (began != name || token != h.Token):
		return nil, s.begun(began, token, name)
	}
	return h, nil
}

// begun returns why the hold of the name is not the one by which a change began: that of the lock began, with the token.
func (s *session) begun(began Name, token Token, name Name) error {
	if began != name {
		return errNotBegun
	}
	if lost, ok := s.lost[name]; ok && lost.Token == token {
		lost.Held = true
		return &lost
	}
	return errGivenBack
}

// overdue returns the error for a hold whose time is over, but which has not ended yet: the same as after its end.
func overdue(h *hold, now Instant) error {
	at, cause := h.deadline(now.Boot)
	ended := now
	ended.Boot = at
	return &LostError{Name: h.Name, Token: h.Token, Cause: cause, Limit: h.limit(cause), At: ended, Ago: max(now.Boot-at, 0)}
}

// Title names the holds by which a session may change a path.
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
	// Begun is set if the change began earlier, by the Title. It needs the same holds now. If the Title has no lock, the path must not
	// be protected now, and not lie in a lock.
	Begun bool
	Title Title
}

// ProtectedError reports that a lock protects a path from the session. It matches fs.ErrPermission and Why.
type ProtectedError struct {
	Path Name
	Lock Name
	Why  error // a *LostError, a *NotYoursError, ErrNotHeld, or another reason
	// Inside is set if the path lies in the lock; otherwise a rule protects it.
	Inside bool
}

var (
	errOthersShare = errors.New("which you do not hold alone")
	errNotBegun    = errors.New("which you did not hold when it began")
	errGivenBack   = errors.New("which was given back meanwhile")
	errOtherJob    = errors.New("which another connection of your account took: send SITE LOCK AS with the same word in each connection, before MKD")
)

func (e *ProtectedError) Error() string { return e.Text(string(e.Lock)) }

// Text is Error with another name for the lock: an account with a home sees other paths.
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

// question has the locks that decide whether a path may be changed.
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
