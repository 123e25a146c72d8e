package lock

import (
	"errors"
	"io/fs"
)

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
	errOtherJob    = errors.New("which another connection of your account took: say SITE LOCK AS with the same word in each connection, before MKD")
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
