package lock

import (
	"context"
	"errors"
)

// Release gives back the hold of the name that the session speaks for, of several its own, else the oldest; with release = anyone
// any hold, but not at the first try of a session that lost one of the name: that is told so. It
// waits for publications under way. Once it is over the session has forgotten
// that it lost a hold of the name.
//
// The errors are a *LostError (matches ErrNotHeld or ErrNotYours), a *NotYoursError, ErrNotHeld,
// ErrMembers if there are locks below it, ErrEnded, and what the store says: ErrNotEmpty if there
// is something in its directory. After ErrUncertain the lock may stand until its age is over.
func (s *Session) Release(ctx context.Context, n Name) error {
	_, _, err := s.ReleaseOrWait(ctx, n, nil)
	return err
}

// release gives the lock back once. With wake, it waits for its members if the session waits for such.
func (s *Session) release(ctx context.Context, n Name, why reason, wake func()) (hold Hold, again int, w *Waiting, err error) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for range retries {
		e, err := t.quietLocked(ctx, n)
		if err != nil {
			return Hold{}, 0, nil, err
		}
		h, err := s.releasableLocked(n, e)
		if err != nil {
			delete(s.lost, n)
			return Hold{}, 0, nil, err
		}
		hold := h.Hold
		if h.session == s && h.again > 0 {
			h.again--
			return hold, h.again + 1, nil, nil
		}
		err = t.endLocked(ctx, e, h, why)
		switch {
		case err == nil:
			delete(s.lost, n)
		case errors.Is(err, ErrMembers):
			if w := s.lingerLocked(e, wake); w != nil {
				return Hold{}, 0, w, nil
			}
		}
		if !errors.Is(err, ErrConflict) {
			return hold, 0, nil, err
		}
	}
	return Hold{}, 0, nil, ErrConflict
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
// the client, and no other one; of one that it took more than once (reentrant) it takes back the last time. It works on a session that was closed, too. The errors are ErrStale if
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
		if s != nil && h.again > 0 {
			h.again--
			return hold, nil
		}
		if err := t.endLocked(ctx, e, h, why); !errors.Is(err, ErrConflict) {
			return hold, err
		}
	}
	return Hold{}, ErrConflict
}
