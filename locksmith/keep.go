package locksmith

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// keep checks the lock until it ends. A lock whose lease has ended may still be held on the server, so keep ends it there.
func (l *Lock) keep(every time.Duration) {
	l.checkUntilEnd(every)
	if cause := context.Cause(l.life); !errors.Is(cause, errExpired) || !errors.Is(cause, ErrLost) {
		return
	}
	l.mu.Lock()
	margin := max(l.lease.end().Sub(now()), l.lease.end().Sub(l.lease.until()))
	l.mu.Unlock()
	t := time.NewTimer(margin) // the caller needs it to stop
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.releasing.Done():
	}
	ctx, cancel := context.WithTimeout(l.checks, closeTimeout)
	defer cancel()
	if l.takeTurn(ctx) == nil {
		defer func() { <-l.turn }()
		l.endOnServer()
	}
}

// endOnServer ends a hold that the server may still have, if this client has not replaced its connection, and closes that. It returns false if it does
// nothing. The caller has the turn.
func (l *Lock) endOnServer() bool {
	if !l.holds || l.joined || !l.s.hasFacts() {
		return false
	}
	l.s.part(l.name)
	l.holds = false
	return true
}

// checkUntilEnd checks the lock until it ends. A check that fails is repeated at once, and then ever more slowly.
func (l *Lock) checkUntilEnd(every time.Duration) {
	wait, failing := every, false
	for {
		t := time.NewTimer(wait)
		select {
		case <-l.life.Done():
		case <-t.C:
		}
		if t.Stop(); l.life.Err() != nil {
			return
		}
		switch err := l.checkOrRenew(every); {
		case err == nil:
			wait, failing = every, false
		case !failing:
			wait, failing = 0, true
		default:
			wait = min(max(2*wait, 100*time.Millisecond), time.Second)
		}
	}
}

// checkContext returns a context for one check. It ends when the lock is lost, but not when Release begins: RMD needs the connection.
func (l *Lock) checkContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(l.checks, checkTimeout, os.ErrDeadlineExceeded)
	stop := context.AfterFunc(l.life, func() {
		if !errors.Is(context.Cause(l.life), ErrReleased) {
			cancel()
		}
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// checkOrRenew checks the lock once, or renews it if that is due. If the server has reported for some seconds that it cannot check the lock,
// checkOrRenew ends the connection, because another server may be active.
func (l *Lock) checkOrRenew(every time.Duration) error {
	ctx, cancel := l.checkContext()
	defer cancel()
	return l.use(ctx, func(s *session) error {
		l.mu.Lock()
		silent := now().Sub(l.lease.asOf)
		due := l.o.Renew && l.lease.age > 0 && now().Sub(l.renewed)+every > l.lease.age/2 // before half of it is over
		l.mu.Unlock()
		var err error
		switch {
		case due: // also if Put and Get check the lock all the time
			err = l.renew(ctx, s)
		case silent < every/2: // it was just adopted or checked
		default:
			err = l.check(ctx, s)
		}
		if errors.Is(err, ErrUnknown) && silent < checkTimeout {
			return nil
		} else if errors.Is(err, ErrUnknown) {
			s.lost(err)
		}
		return err
	})
}

// check returns nil if the server confirms that this client still holds the lock.
func (l *Lock) check(ctx context.Context, s *session) error {
	if !s.hasFacts() {
		return l.checkDirectory(ctx, s)
	}
	if held, err := l.confirm(ctx, s); held || err != nil {
		return err
	}
	return l.renew(ctx, s) // the reply has the reason of the loss
}

// confirm requests the facts of the lock, and reports whether they contain the hold. The token of a joined lock grows when its holder connects
// again; only the first time it may have grown more than once. A joined lock that the facts do not contain is lost.
func (l *Lock) confirm(ctx context.Context, s *session) (bool, error) {
	sent := now()
	i, err := s.status(ctx, l.name)
	if err != nil {
		return false, err
	}
	h, ok := i.find(func(h Holder) bool {
		return h.own && h.Token == l.Token() || l.joined && h.Mine && (h.Token == l.Token() || h.adopted == l.Token() || !l.found && h.Token > l.Token())
	})
	switch {
	case ok:
		l.found = true
		l.confirmed(h, sent)
	case l.joined:
		return false, l.notJoined(i)
	}
	return ok, nil
}

// renew requests a full age. If the session has lost the lock, the reply has the reason.
func (l *Lock) renew(ctx context.Context, s *session) error {
	sent := now()
	r, err := s.ask(ctx, "SITE LOCK RENEW "+l.name)
	switch {
	case err != nil:
		return err
	case r.transient():
		return fmt.Errorf("%w: %s", ErrUnknown, r.text())
	case !r.positive():
		return fmt.Errorf("%w: %s", ErrLost, r.text())
	}
	held, err := l.confirm(ctx, s)
	switch {
	case err != nil:
		return err
	case !held:
		return fmt.Errorf("%w: %s: the server lists another holder", ErrLost, l.path)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = sent
	return nil
}

// checkDirectory checks on a server without facts whether the directory is still the one that MKD made.
func (l *Lock) checkDirectory(ctx context.Context, s *session) error {
	sent := now()
	got, err := s.describe(ctx, l.name, l.directory.command)
	switch {
	case err != nil:
		return err
	case l.directory.command == "" && (got.exists || got.command == "" || !l.joined): // the first mark, or a server that shows none
		if got.exists {
			l.directory = got
		}
	case got.command == "":
		return fmt.Errorf("%w: %s: the server does not show its directory now", ErrUnknown, l.path)
	case !got.exists:
		return fmt.Errorf("%w: %s: its directory is gone", ErrLost, l.path)
	case got.mark != l.directory.mark:
		return fmt.Errorf("%w: %s: its directory was replaced, or was written into", ErrLost, l.path)
	}
	l.confirmed(Holder{}, sent)
	return nil
}

// resume adopts the lock on a new connection: MKD with the same JobKey adopts the hold under a new token. No other client held the lock in between if
// the facts before MKD contain the old hold, and those after it contain the hold that was adopted from it.
func (l *Lock) resume(ctx context.Context, s *session) error {
	if l.joined || !s.hasFacts() {
		if l.Token() != 0 && !s.hasFacts() {
			return s.lost(s.fail("the server does not send the facts of locks any more", nil))
		}
		return l.check(ctx, s)
	}
	before, err := s.status(ctx, l.name)
	if err != nil {
		return err
	}
	// A reply to an earlier MKD may have been lost.
	held, ok := before.find(func(h Holder) bool { return h.Mine && (h.Token == l.Token() || h.adopted == l.Token()) })
	if !ok {
		return fmt.Errorf("%w: %s: it ended while the connection was lost", ErrLost, l.path)
	}
	l.mu.Lock()
	l.token = held.Token
	l.mu.Unlock()
	r, err := s.ask(ctx, "MKD "+l.name)
	switch {
	case err != nil:
		return err
	case r.transient():
		return s.lost(s.fail("the server replied "+r.String(), nil))
	}
	sent := now()
	after, err := s.status(ctx, l.name)
	if err != nil {
		return err
	}
	h, ok := after.ownHold()
	switch {
	case !ok:
		return fmt.Errorf("%w: %s: %s", ErrLost, l.path, r.text())
	case h.adopted != held.Token:
		_, _ = s.ask(ctx, "RMD "+l.name)
		return fmt.Errorf("%w: %s: it ended while the connection was lost", ErrLost, l.path)
	}
	l.confirmed(h, sent)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = sent // an adopted hold has a full age
	return nil
}
