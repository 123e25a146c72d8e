package locksmith

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// A Lock is a lock that is held. Its methods may be called by several goroutines at once.
//
// A goroutine checks it: it asks the server whether the lock is still held, and adopts it again on a new connection.
type Lock struct {
	c         *Client
	o         Options
	path      string
	name      string // the argument of Acquire
	inherited bool
	life      context.Context // ends with the lock; its cause is the reason
	over      context.CancelCauseFunc
	keeping   sync.WaitGroup
	ending    sync.Once
	result    error // of Release

	on   *session  // the connection of the hold; for the goroutine that has the turn
	mark directory // of the directory, on a server without facts; for the goroutine that has the turn

	mu      sync.Mutex
	token   uint64
	renewed time.Time // the time of the grant or the last renewal
	lease   lease
	timer   *time.Timer // ends the lock with its lease
}

var errReleased = fmt.Errorf("%w: it was released", ErrLost)

func newLock(c *Client, name string, o Options) *Lock {
	l := &Lock{c: c, o: o, path: name, name: name, renewed: now()}
	l.life, l.over = context.WithCancelCause(context.Background())
	return l
}

// lose ends the lock.
func (l *Lock) lose(err error) {
	if l.life.Err() == nil {
		l.c.e.Logger.Warn("lock lost", "lock", l.path, "err", err)
	}
	l.over(err)
}

func (l *Lock) start() {
	l.mu.Lock()
	every := l.c.e.Check
	if every <= 0 {
		if every = time.Second; l.token == 0 {
			every = 5 * time.Second
		}
	}
	every = min(every, max(l.lease.shortest()/5, 10*time.Millisecond))
	l.mu.Unlock()
	l.keeping.Go(func() { l.keep(every) })
}

// watch ends the lock with its lease. It runs once a second at least, because timers do not count the time in which the machine was suspended.
func (l *Lock) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	until, at := l.lease.until(), now()
	switch {
	case l.life.Err() != nil || until.IsZero():
	case at.Before(until):
		d := min(until.Sub(at), time.Second)
		if l.timer == nil {
			l.timer = time.AfterFunc(d, l.watch)
		} else {
			l.timer.Reset(d)
		}
	default:
		l.lose(fmt.Errorf("%w: %s: %s", ErrLost, l.path, l.lease.reason(at)))
	}
}

// confirmed extends the lease by a reply that contains the hold. sent is the time before the request.
func (l *Lock) confirmed(h Holder, sent time.Time) {
	l.mu.Lock()
	l.token, l.lease = h.Token, h.lease
	l.lease.heard = sent
	l.mu.Unlock()
	l.watch()
}

// Path returns the lock's name on the server.
func (l *Lock) Path() string { return l.path }

// Nonce returns the word that identifies the job, see [Server]. On ftplockd, another connection of the account that
// sends SITE LOCK AS with it may change the files that the lock protects. It returns "" on other servers.
func (l *Lock) Nonce() string {
	if l.Token() == 0 {
		return ""
	}
	return l.c.e.Nonce
}

// Token returns the fencing token; 0 on a server without tokens. It grows when the lock is adopted after a disconnect.
func (l *Lock) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Expires returns the time when the server may grant the lock to another client if it receives no more commands from this one; zero if it never
// may, or if that is not known. Each answer of the server moves it. Context ends up to two seconds earlier.
func (l *Lock) Expires() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.lease.end()
	if end.IsZero() {
		return end
	}
	return end.Add(-suspended())
}

// Context ends when the lock is lost or was released, always before the server can grant the lock to another client (the package documentation
// has the exceptions). Its cause matches [ErrLost] or [ErrUnknown].
func (l *Lock) Context() context.Context { return l.life }

// Valid reports whether the lock is held now. It reads the clock and does not wait for the server.
func (l *Lock) Valid() bool {
	l.watch()
	return l.life.Err() == nil
}

// Err returns the cause of the end of Context; nil before the end, and after Release.
func (l *Lock) Err() error {
	if err := context.Cause(l.life); err != errReleased {
		return err
	}
	return nil
}

// within returns a context that ends with ctx and with the lock.
func (l *Lock) within(ctx context.Context) (context.Context, context.CancelFunc) {
	held, cancel := context.WithCancelCause(ctx)
	if l.life.Err() != nil {
		cancel(context.Cause(l.life)) // AfterFunc would do so a moment later
	}
	stop := context.AfterFunc(l.life, func() { cancel(context.Cause(l.life)) })
	return held, func() {
		stop()
		cancel(nil)
	}
}

// Renew asks ftplockd for a full age, counted from now. It returns [ErrLost] if the lock is lost, [ErrUnreachable] or [ErrUnknown] if that is not
// known. On other servers it only checks the lock.
func (l *Lock) Renew(ctx context.Context) error {
	return l.use(ctx, func(s *session) error {
		if l.Token() == 0 {
			return l.check(ctx, s)
		}
		return l.renew(ctx, s)
	})
}

// use calls do with the connection. On a new connection it adopts the lock first. ErrLost ends the lock.
func (l *Lock) use(ctx context.Context, do func(*session) error) error {
	err := l.c.use(ctx, func(s *session) error {
		if s != l.on {
			if err := l.resume(ctx, s); err != nil {
				return err
			}
			l.on = s
		}
		return do(s)
	})
	if errors.Is(err, ErrLost) && l.life.Err() == nil {
		l.lose(err)
	}
	return err
}

// unreachableLimit is the time after which a lock without a lease is lost if the server cannot be reached.
const unreachableLimit = time.Minute

// keep checks the lock until it ends.
func (l *Lock) keep(every time.Duration) {
	wait := every
	var alone time.Time // the first failure since the last answer
	for {
		t := time.NewTimer(wait)
		select {
		case <-l.life.Done():
		case <-t.C:
		}
		if t.Stop(); l.life.Err() != nil {
			return
		}
		err := l.look(every)
		switch {
		case err == nil:
			wait, alone = every, time.Time{}
		case alone.IsZero():
			wait, alone = 0, time.Now()
		default:
			wait = min(max(2*wait, 100*time.Millisecond), time.Second)
			if leased := !l.Expires().IsZero(); time.Since(alone) > unreachableLimit && !leased {
				l.lose(fmt.Errorf("%w: %s: the server cannot be reached: %w", ErrUnknown, l.path, err))
			}
		}
	}
}

// looking returns a context for one check. It ends when the lock is lost, but not when it is released: RMD needs the connection.
func (l *Lock) looking() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), checkTimeout, os.ErrDeadlineExceeded)
	stop := context.AfterFunc(l.life, func() {
		if l.Err() != nil {
			cancel()
		}
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// look checks the lock once, or renews it if that is due. If the server has not known the state for some seconds, look ends the connection: another
// server may know.
func (l *Lock) look(every time.Duration) error {
	ctx, cancel := l.looking()
	defer cancel()
	return l.use(ctx, func(s *session) error {
		if l.life.Err() != nil {
			return nil
		}
		l.mu.Lock()
		silent := now().Sub(l.lease.heard)
		due := l.o.Renew && l.lease.age > 0 && now().Sub(l.renewed)+every > l.lease.age/2 // before half of it is over
		l.mu.Unlock()
		var err error
		switch {
		case silent < every/2: // it was just adopted
		case due:
			err = l.renew(ctx, s)
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

// check asks the server whether this client still holds the lock.
func (l *Lock) check(ctx context.Context, s *session) error {
	if !s.hasFacts() {
		return l.checkMark(ctx, s)
	}
	sent := now()
	i, err := s.info(ctx, l.name)
	if err != nil {
		return err
	}
	if l.inherited {
		return l.checkInherited(sent, i)
	}
	if h, ok := i.ours(); ok && h.Token == l.Token() {
		l.confirmed(h, sent)
		return nil
	}
	if err := l.renew(ctx, s); err != nil { // the reply has the reason of the loss
		return err
	}
	return fmt.Errorf("%w: %s: the server lists another holder", ErrLost, l.path)
}

// renew asks for a full age, and then for the new facts. To the session that had the lock, the server replies with the reason of the loss.
func (l *Lock) renew(ctx context.Context, s *session) error {
	sent := now()
	r, err := s.ask(ctx, "SITE LOCK RENEW "+l.name)
	switch {
	case err != nil:
		return err
	case r.transient():
		return fmt.Errorf("%w: %s", ErrUnknown, r.text())
	case !r.good():
		return fmt.Errorf("%w: %s", ErrLost, r.text())
	}
	i, err := s.info(ctx, l.name)
	if err != nil {
		return err
	}
	if h, ok := i.find(func(h Holder) bool { return h.Mine && h.Token == l.Token() }); ok {
		l.mu.Lock()
		l.renewed = sent
		l.mu.Unlock()
		l.confirmed(h, sent)
		return nil
	}
	return fmt.Errorf("%w: %s: the server lists another holder", ErrLost, l.path)
}

// checkMark checks on a server without facts whether the directory is still the one that MKD made.
func (l *Lock) checkMark(ctx context.Context, s *session) error {
	sent := now()
	got, err := s.describe(ctx, l.name, l.mark.by)
	switch {
	case err != nil:
		return err
	case l.mark.by == "" && got.there, got.by == "":
		l.mark = got // the first mark, or a server that shows none
	case l.mark.by == "":
	case !got.there:
		return fmt.Errorf("%w: %s: its directory is gone", ErrLost, l.path)
	case got.mark != l.mark.mark:
		return fmt.Errorf("%w: %s: its directory was replaced, or was written into", ErrLost, l.path)
	}
	l.confirmed(Holder{}, sent)
	return nil
}

// resume adopts the lock on a new connection: MKD with the same nonce adopts the hold under a new token. No other client held the lock in between if
// the facts before MKD contain the old hold, and those after it contain the hold that was adopted from it.
func (l *Lock) resume(ctx context.Context, s *session) error {
	if l.inherited || !s.hasFacts() {
		if l.Token() != 0 && !s.hasFacts() {
			return s.lost(s.fail("the server does not send the facts of locks any more", nil))
		}
		return l.check(ctx, s)
	}
	before, err := s.info(ctx, l.name)
	if err != nil {
		return err
	}
	// A reply to an earlier MKD may have been lost.
	ours, ok := before.find(func(h Holder) bool { return h.Mine && (h.Token == l.Token() || h.adopted == l.Token()) })
	if !ok {
		return fmt.Errorf("%w: %s: it ended while the connection was lost", ErrLost, l.path)
	}
	l.mu.Lock()
	l.token = ours.Token
	l.mu.Unlock()
	r, err := s.ask(ctx, "MKD "+l.name)
	if err != nil || r.transient() {
		return s.lost(s.fail("the server replied "+r.String(), err))
	}
	sent := now()
	after, err := s.info(ctx, l.name)
	if err != nil {
		return err
	}
	h, ok := after.ours()
	switch {
	case !ok:
		return fmt.Errorf("%w: %s: %s", ErrLost, l.path, r.text())
	case h.adopted != ours.Token:
		_, _ = s.ask(ctx, "RMD "+l.name)
		return fmt.Errorf("%w: %s: it ended while the connection was lost", ErrLost, l.path)
	}
	l.confirmed(h, sent)
	l.c.e.Logger.Info("lock adopted", "lock", l.path, "token", h.Token)
	return nil
}

// Release releases the lock and aborts its transfers. The error is [ErrLost] if the lock was lost before, [ErrUnknown] if it
// may still be held. A second call returns the same result.
//
// It returns after the server's Timeout at the latest, and a few seconds after the end of ctx.
func (l *Lock) Release(ctx context.Context) error {
	l.ending.Do(func() {
		l.result = l.Err()
		l.over(errReleased)
		if l.inherited {
			l.keeping.Wait()
			return
		}
		if l.result == nil || errors.Is(l.result, ErrUnknown) {
			l.result = l.sendRMD(ctx)
		}
		l.keeping.Wait()
		l.c.uses.Add(-1)
		l.c.e.Logger.Debug("lock released", "lock", l.path, "err", l.result)
	})
	return l.result
}

// sendRMD sends RMD until its result is known.
func (l *Lock) sendRMD(ctx context.Context) error {
	late, stop := lingering(ctx, closeTimeout)
	defer stop()
	work, cancel := context.WithTimeout(late, l.c.e.Timeout)
	defer cancel()
	sent := false // RMD was sent, and its reply may be lost
	for tries := 0; ; tries++ {
		var r reply
		err := l.use(work, func(s *session) (err error) {
			if !s.hasFacts() { // RMD removes the directory of another client, too
				err = l.checkMark(work, s)
			}
			if err == nil {
				sent = true
				r, err = s.ask(work, "RMD "+l.name)
			}
			return err
		})
		switch {
		case errors.Is(err, ErrLost) && sent:
			return nil
		case errors.Is(err, ErrLost):
			return err
		case err != nil && work.Err() != nil:
			return fmt.Errorf("%w: %s: the server does not answer", ErrUnknown, l.path)
		case err == nil && r.good():
			return nil
		case err == nil && l.Token() != 0 && !r.transient():
			return fmt.Errorf("%w: %s", ErrLost, r.text())
		case err == nil && (tries >= 3 || !r.transient()):
			return fmt.Errorf("%w: %s: the server replied %s", ErrUnknown, l.path, r)
		}
		pause(work, 100*time.Millisecond)
	}
}
