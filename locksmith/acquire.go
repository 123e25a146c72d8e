package locksmith

import (
	"context"
	"errors"
	"fmt"
	random "math/rand/v2"
	"time"
)

// Acquire takes the lock of a name, and waits for it until ctx ends. The name is an absolute path, or relative to the directory after login.
//
// Errors match the sentinels of this package. An error at the end of ctx also matches the cause of ctx: a *[HeldError] if another client
// holds the lock, or [ErrUnreachable]. [ErrUnknown] means that the lock may have been granted in a reply that was lost. ftplockd takes such a
// lock back by itself.
//
// ctx is not kept: the lock stands until Release, or until it is lost.
func (c *Client) Acquire(ctx context.Context, name string, o Options) (*Lock, error) {
	return c.acquire(ctx, name, o, false)
}

// TryAcquire is Acquire, but returns a *[HeldError] at once if another client holds the lock. If a reply is lost, its outcome is found out within
// the server's Timeout.
func (c *Client) TryAcquire(ctx context.Context, name string, o Options) (*Lock, error) {
	return c.acquire(ctx, name, o, true)
}

// Do acquires the lock, calls f, and releases the lock. The context of f ends with ctx, and when the lock is lost; its cause is the error of
// the lock then. Do returns the error of f, joined with that of the release: [ErrLost] if f may have worked without the lock.
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
	// longSlice is how long a server is asked to let one MKD wait, shortSlice how long if the connection has other work.
	longSlice  = 20 * time.Second
	shortSlice = time.Second
	// farewell is how long a reply may take that is given up.
	farewell = time.Second
)

// acquisition is one Acquire.
type acquisition struct {
	*Client
	o      Options
	name   string
	once   bool
	began  time.Time
	last   error // why there is no lock yet
	unsure bool  // an MKD of ours may have been granted
}

func (c *Client) acquire(ctx context.Context, name string, o Options, once bool) (*Lock, error) {
	if name == "" {
		return nil, fmt.Errorf("%w: no lock is named", ErrRefused)
	}
	a := &acquisition{Client: c, o: o, name: name, once: once, began: time.Now()}
	c.uses.Add(1)
	l, err := a.run(ctx)
	if err != nil {
		c.uses.Add(-1)
		return nil, err
	}
	c.e.Logger.Debug("lock acquired", "lock", l.path, "token", l.Token(), "waited", time.Since(a.began))
	return l, nil
}

// run tries until there is a result.
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
			a.last = err // the holder is of more interest than a server that is gone meanwhile
		}
		switch {
		case ctx.Err() != nil:
			return nil, a.giveUp(ctx)
		case isHeld && a.once, !isHeld && !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrUnknown):
			return nil, a.doubtful(err)
		case isHeld:
			if a.o.Waiting != nil {
				a.o.Waiting(held)
			}
			if !waits || wait > 0 && time.Since(began) < wait/2 { // else the client waits in the queue
				pause(ctx, a.e.Poll)
			}
			if wait = 0; waits {
				if wait = longSlice; a.uses.Load() > 1 {
					wait = shortSlice
				}
			}
		case a.once && !a.unsure:
			return nil, a.doubtful(err)
		default:
			if a.once { // to find out what became of the only try
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

// errNothing is the cause of a refusal that no holder explains.
var errNothing = errors.New("though nothing is in the way")

// try sends MKD, and returns the lock, or why there is none: a *HeldError, ErrUnreachable or ErrUnknown if there may be one later. What is refused
// though nothing is in the way may have been released before the look; refused again and again, it cannot be made.
func (a *acquisition) try(ctx context.Context, wait time.Duration) (l *Lock, waits bool, err error) {
	err = a.use(ctx, func(s *session) error {
		waits = s.can("SITE", "WAIT")
		began := time.Now()
		for tries := 1; ; tries++ {
			l, err = a.mkdir(ctx, s, wait)
			if !errors.Is(err, errNothing) || ctx.Err() != nil || tries >= 3 && (waits || a.once || time.Since(began) >= 3*time.Second) {
				return err
			}
			pause(ctx, min(a.e.Poll, 100*time.Millisecond))
		}
	})
	return l, waits, err
}

// mkdir sends MKD once, and then looks: the reply has the words of the server, the look has facts. On ftplockd a grant counts when the server has
// answered that look: it undoes a grant whose reply the client may not have received.
func (a *acquisition) mkdir(ctx context.Context, s *session, wait time.Duration) (*Lock, error) {
	patiently := farewell
	if wait > shortSlice {
		patiently = 0 // the end of the connection ends the waiting
	}
	late, stop := lingering(ctx, patiently)
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
		a.unsure = patiently > 0 || late.Err() == nil // a wait ends with its connection, and a grant that comes in that moment is undone
		return nil, err
	case r.transient() && s.hasFacts(): // the server cannot tell whether that happened: as if the reply had been lost
		a.unsure = true
		return nil, s.lost(fmt.Errorf("%w: %s", ErrUnknown, r.text()))
	}
	looking, cancel := context.WithTimeout(context.WithoutCancel(late), glimpse)
	defer cancel()
	sent := now()
	if !s.hasFacts() && r.good() {
		a.unsure = false
		return a.take(looking, s, Holder{own: true}, s.abs(a.name), sent)
	}
	i, err := s.info(looking, a.name)
	if err != nil {
		a.unsure = a.unsure || r.good()
		return nil, err
	}
	if s.hasFacts() {
		a.unsure = false
	}
	return a.judge(looking, s, r, i, sent)
}

// judge returns what MKD came to.
func (a *acquisition) judge(ctx context.Context, s *session, r reply, i Info, sent time.Time) (*Lock, error) {
	own, ours := i.ours()
	switch {
	case r.good() && ours:
		return a.take(ctx, s, own, i.Path, sent)
	case r.good() && !i.Held: // no other client would be kept from anything by it
		if back, err := s.ask(ctx, "RMD "+a.name); err != nil || !back.good() {
			return nil, fmt.Errorf("%w: no rule of the server makes %s a lock; the directory that was made may stand", ErrRefused, i.Path)
		}
		return nil, fmt.Errorf("%w: no rule of the server makes %s a lock", ErrRefused, i.Path)
	case i.refused && !ours:
		return nil, fmt.Errorf("%w: %s", ErrRefused, r.text())
	case i.busy:
		return nil, i.heldError(a.name)
	}
	a.unsure = false
	return nil, fmt.Errorf("%w: %s: the server said %s, %w", ErrRefused, a.name, r, errNothing)
}

// take makes a Lock of a grant.
func (a *acquisition) take(ctx context.Context, s *session, h Holder, path string, sent time.Time) (*Lock, error) {
	l := newLock(a.Client, a.name, a.o)
	l.path, l.on, l.token = path, s, h.Token
	l.confirmed(h, sent)
	var err error
	switch {
	case a.o.Shared && !h.Shared:
		err = fmt.Errorf("%w: %s: the server grants it to one holder alone, and it was to be shared", ErrRefused, path)
		if r, rerr := s.ask(ctx, "RMD "+a.name); rerr != nil || !r.good() {
			a.unsure = true
		}
	case h.Token == 0:
		l.mark, _ = s.see(ctx, a.name, "") // a connection that is lost here is made again by keep
	}
	if err != nil {
		l.over(errReleased)
		return nil, err
	}
	l.start()
	return l, nil
}

// doubtful adds to an error that the lock may be ours after all.
func (a *acquisition) doubtful(err error) error {
	if held, ok := errors.AsType[*HeldError](err); ok {
		held.Waited = time.Since(a.began)
	}
	if !a.unsure || errors.Is(err, ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w (%w: the reply to MKD was lost)", err, ErrUnknown)
}

// giveUp returns the error of an acquisition that ended with ctx.
func (a *acquisition) giveUp(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) && a.last != nil {
		cause = &because{a.last, []error{cause}}
	}
	return a.doubtful(cause)
}
