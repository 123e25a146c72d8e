package lock

import (
	"context"
	"errors"
)

// Release gives back the hold of the name that the session speaks for; with release = anyone
// any hold, but not at the first try of a session that lost one of the name: that is told so. It
// waits for publications under way. Once it is over the session has forgotten
// that it lost a hold of the name.
//
// The errors are a *LostError (matches ErrNotHeld or ErrNotYours), a *NotYoursError, ErrNotHeld,
// ErrMembers if there are locks below it, ErrEnded, and what the store says: ErrNotEmpty if there
// is something in its directory. After ErrUncertain the lock may stand until its age is over.
func (s *Session) Release(ctx context.Context, n Name) error {
	why := reason{cause: CauseRelease, by: s.Owner()}
	hold, err := s.release(ctx, n, why)
	if err == nil {
		s.table.logEnd(ctx, n, hold, why)
	}
	return err
}

func (s *Session) release(ctx context.Context, n Name, why reason) (Hold, error) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for range retries {
		e, err := t.quietLocked(ctx, n)
		if err != nil {
			return Hold{}, err
		}
		h, err := s.releasableLocked(n, e)
		if err != nil {
			delete(s.lost, n)
			return Hold{}, err
		}
		hold := h.Hold
		err = t.endLocked(ctx, e, h, why)
		if err == nil {
			delete(s.lost, n)
		}
		if !errors.Is(err, ErrConflict) {
			return hold, err
		}
	}
	return Hold{}, ErrConflict
}

func (s *Session) releasableLocked(n Name, e *node) (*held, error) {
	h, _, err := s.spokenForLocked(n, e)
	if err == nil || e == nil || s.closed || s.hasLostLocked(n) {
		return h, err
	}
	for _, h := range e.holds {
		if h.Rule.Release == ReleaseAnyone {
			return h, nil
		}
	}
	return nil, err
}

// Undo ends a hold that the session acquired but whose grant could not be delivered to
// the client, and no other one. It works on a session that was closed, too. The errors are ErrStale if
// the token does not stand or is not the session's, ErrMembers, and what the store says.
func (s *Session) Undo(ctx context.Context, n Name, token Token) error {
	return s.table.endToken(ctx, n, token, reason{cause: CauseUndeliver, by: s.Owner()}, s)
}

// Break takes the lock away from whoever holds it, and has the reason recorded. Token 0 means
// the hold that stands now, the oldest of several; otherwise only the hold
// with that token ends. The errors are ErrNotHeld, ErrStale, ErrMembers, and what the store says.
func (t *Table) Break(ctx context.Context, n Name, token Token, by Owner, why string) error {
	return t.endToken(ctx, n, token, reason{cause: CauseBreak, by: by, note: why}, nil)
}

// endToken ends one hold; of nobody else than s, if that is not nil.
func (t *Table) endToken(ctx context.Context, n Name, token Token, why reason, s *Session) error {
	hold, err := t.endTokenOnce(ctx, n, token, why, s)
	if err == nil {
		t.logEnd(ctx, n, hold, why)
	}
	return err
}

func (t *Table) endTokenOnce(ctx context.Context, n Name, token Token, why reason, s *Session) (Hold, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range retries {
		e, err := t.quietLocked(ctx, n)
		if err != nil {
			return Hold{}, err
		}
		if (e == nil || len(e.holds) == 0) && s == nil {
			return Hold{}, ErrNotHeld
		}
		if e == nil {
			return Hold{}, ErrStale
		}
		h := e.byToken(token)
		if token == 0 && s == nil {
			h = e.holds[0]
			token = h.Token
		}
		if h == nil || s != nil && h.session != s {
			return Hold{}, ErrStale
		}
		hold := h.Hold
		if err := t.endLocked(ctx, e, h, why); !errors.Is(err, ErrConflict) {
			return hold, err
		}
	}
	return Hold{}, ErrConflict
}
