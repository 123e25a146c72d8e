package locksmith

import (
	"context"
	"errors"
	"fmt"
	random "math/rand/v2"
	"time"
)

// Acquire acquires the lock of a name, and waits for it until ctx ends. The name is an absolute path, or relative to the directory after login.
//
// Errors match the sentinels of this package. An error at the end of ctx also matches the cause of ctx: it is a *[HeldError] if another client
// holds the lock, or matches [ErrUnreachable]. [ErrUnknown] means that a reply was lost which may have granted the lock. ftplockd undoes such a
// grant by itself.
//
// The lock does not end with ctx: it is held until Release, or until it is lost.
func (c *Client) Acquire(ctx context.Context, name string, o Options) (*Lock, error) {
	return c.acquire(ctx, name, o, false)
}

// TryAcquire is like Acquire, but returns a *[HeldError] at once if another client holds the lock. If a reply is lost, it takes up to the server's
// Timeout to find out whether the lock was granted.
func (c *Client) TryAcquire(ctx context.Context, name string, o Options) (*Lock, error) {
	return c.acquire(ctx, name, o, true)
}

// Do acquires the lock, calls f, and releases the lock. The context of f ends with ctx, and when the lock is lost; then its cause is the error of
// the lock. Do returns the error of f, joined with that of the release: [ErrLost] if f may have run without the lock, and [ErrRefused] as for [Lock.Release].
func (c *Client) Do(ctx context.Context, name string, f func(ctx context.Context, l *Lock) error) (err error) {
	l, err := c.Acquire(ctx, name, Options{})
	if err != nil {
		return err
	}
	held, stop := l.within(ctx)
	defer func() { // also if f panics
		stop()
		if rerr := l.Release(ctx); !errors.Is(err, ErrLost) {
			err = errors.Join(err, rerr)
		}
	}()
	return f(held, l)
}

const (
	// One MKD waits at the server for longSlice, or for shortSlice if the connection has other work.
	longSlice  = 20 * time.Second
	shortSlice = time.Second
	// lastReplyTimeout is the wait for the reply to MKD after the end of ctx.
	lastReplyTimeout = time.Second
)

// acquisition is one Acquire.
type acquisition struct {
	*Client
	o            Options
	name         string
	once         bool
	last         error // why there is no lock yet
	maybeGranted bool  // an MKD may have been granted
}

func (c *Client) acquire(ctx context.Context, name string, o Options, once bool) (*Lock, error) {
	if name == "" {
		return nil, fmt.Errorf("%w: no lock is named", ErrRefused)
	}
	a := &acquisition{Client: c, o: o, name: name, once: once}
	c.uses.Add(1)
	l, err := a.run(ctx)
	if err != nil {
		c.uses.Add(-1)
	}
	return l, err
}

// run tries until it has the lock or a permanent error.
func (a *acquisition) run(ctx context.Context) (*Lock, error) {
	for wait := time.Duration(0); ; {
		began := time.Now()
		l, waits, err := a.try(ctx, wait)
		held, isHeld := errors.AsType[*HeldError](err)
		switch {
		case err == nil && ctx.Err() == nil:
			return l, nil
		case err == nil:
			a.uses.Add(1)
			_ = l.Release(ctx)
			return nil, a.giveUp(ctx)
		case isHeld, a.last == nil, !errors.Is(err, ErrUnreachable):
			a.last = err // report the holder rather than a later failure of the server
		}
		switch {
		case ctx.Err() != nil:
			return nil, a.giveUp(ctx)
		case isHeld && a.once, !isHeld && !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrUnknown):
			return nil, a.withUnknown(err)
		case isHeld:
			if a.o.Waiting != nil {
				a.o.Waiting(held)
			}
			if !waits || wait > 0 && time.Since(began) < wait/2 { // otherwise MKD has waited at the server
				pause(ctx, a.e.Poll)
			}
			if wait = 0; waits {
				if wait = longSlice; a.uses.Load() > 1 {
					wait = shortSlice
				}
			}
		case a.once && !a.maybeGranted:
			return nil, a.withUnknown(err)
		default:
			if a.once { // find out whether the server has granted the only try
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, a.e.Timeout)
				defer cancel()
			}
			pause(ctx, min(a.e.Poll, time.Second))
		}
		if ctx.Err() != nil {
			return nil, a.giveUp(ctx)
		}
	}
}

// pause waits for a random time around the mean, or until ctx ends.
func pause(ctx context.Context, mean time.Duration) {
	t := time.NewTimer(mean/2 + random.N(mean))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// errNotHeld is part of the error for a refused MKD of a lock that has no holder.
var errNotHeld = errors.New("although no client holds it")

// try sends MKD, and returns the lock or an error. After a *HeldError, ErrUnreachable or ErrUnknown a later call may succeed. If MKD is
// refused although no client holds the lock, the lock may have been released meanwhile: try sends MKD again, three times in all, or for three
// seconds on a server that cannot wait.
func (a *acquisition) try(ctx context.Context, wait time.Duration) (l *Lock, waits bool, err error) {
	err = a.use(ctx, func(s *session) error {
		waits = s.can("SITE", "WAIT")
		began := time.Now()
		for tries := 1; ; tries++ {
			l, err = a.mkdir(ctx, s, wait)
			if !errors.Is(err, errNotHeld) || ctx.Err() != nil || tries >= 3 && (waits || a.once || time.Since(began) >= 3*time.Second) {
				return err
			}
			pause(ctx, min(a.e.Poll, 100*time.Millisecond))
		}
	})
	return l, waits, err
}

// mkdir sends MKD once and then requests the facts of the lock, because the text of a reply is for people. Ftplockd undoes a grant whose reply the
// client may not have received, so the grant is final when the server has answered that request.
func (a *acquisition) mkdir(ctx context.Context, s *session, wait time.Duration) (*Lock, error) {
	replyTimeout := lastReplyTimeout
	if wait > shortSlice {
		replyTimeout = 0 // when ctx ends, the end of the connection ends the wait
	}
	late, stop := endingAfter(ctx, replyTimeout)
	defer stop()
	if err := s.waitFor(late, wait); err != nil {
		return nil, err
	}
	if err := s.broken(); err != nil {
		return nil, err
	}
	s.link.setLimit(s.Timeout + wait)
	r, err := s.ask(late, "MKD "+a.name)
	s.link.setLimit(s.Timeout)
	switch {
	case errors.Is(err, ErrRefused):
		return nil, err
	case err != nil:
		a.maybeGranted = replyTimeout > 0 || late.Err() == nil // the server undoes a grant to a client that withdrew its MKD
		return nil, err
	case r.transient() && s.hasFacts(): // the grant is unconfirmed, as after a lost reply
		a.maybeGranted = true
		return nil, s.lost(fmt.Errorf("%w: %s", ErrUnknown, r.text()))
	}
	checkCtx, cancel := context.WithTimeout(context.WithoutCancel(late), checkTimeout)
	defer cancel()
	sent := now()
	if !s.hasFacts() && r.positive() {
		a.maybeGranted = false
		return a.take(checkCtx, s, Holder{own: true}, s.abs(a.name), sent)
	}
	i, err := s.info(checkCtx, a.name)
	if err != nil {
		a.maybeGranted = a.maybeGranted || r.positive()
		return nil, err
	}
	if s.hasFacts() {
		a.maybeGranted = false
	}
	return a.judge(checkCtx, s, r, i, sent)
}

// judge returns the result of MKD, by the facts after it.
func (a *acquisition) judge(ctx context.Context, s *session, r reply, i Info, sent time.Time) (*Lock, error) {
	own, isOwn := i.ownHold()
	switch {
	case r.positive() && isOwn:
		return a.take(ctx, s, own, i.Path, sent)
	case r.positive() && !i.Held: // an ordinary directory, or a lock that was lost at once
		back, err := s.ask(ctx, "RMD "+a.name)
		if err == nil && back.positive() {
			err = fmt.Errorf("%w: no rule of the server makes %s a lock", ErrRefused, i.Path)
		} else if err == nil {
			err = fmt.Errorf("%w: %s", ErrLost, back.text())
		}
		return nil, err
	case i.refused && !isOwn:
		return nil, fmt.Errorf("%w: %s", ErrRefused, r.text())
	case i.busy:
		return nil, i.heldError(a.name)
	}
	a.maybeGranted = false
	return nil, fmt.Errorf("%w: %s: the server replied %s, %w", ErrRefused, a.name, r, errNotHeld)
}

// take returns the Lock of a grant. If the request was for a shared lock and the server granted it to one holder alone, take releases it.
func (a *acquisition) take(ctx context.Context, s *session, h Holder, path string, sent time.Time) (*Lock, error) {
	l := newLock(a.Client, a.name, a.o)
	l.path, l.on, l.token = path, s, h.Token
	l.confirmed(h, sent)
	if a.o.Shared && !h.Shared {
		r, err := s.ask(ctx, "RMD "+a.name)
		a.maybeGranted = err != nil || !r.positive()
		l.end(errReleased)
		return nil, fmt.Errorf("%w: %s: the request was for a shared lock, but the server grants it to one holder alone", ErrRefused, path)
	}
	if h.Token == 0 {
		l.directory, _ = s.describe(ctx, a.name, "") // keep connects again if this loses the connection
	}
	l.start()
	return l, nil
}

// withUnknown adds ErrUnknown to an error if the lock may have been granted.
func (a *acquisition) withUnknown(err error) error {
	if !a.maybeGranted || errors.Is(err, ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w (%w: the reply to MKD was lost)", err, ErrUnknown)
}

// giveUp returns the error of an acquisition whose ctx has ended.
func (a *acquisition) giveUp(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) && a.last != nil {
		cause = &causedError{a.last, []error{cause}}
	}
	return a.withUnknown(cause)
}
