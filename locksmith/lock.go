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
// A goroutine keeps it: it asks the server whether the lock still stands, and takes it up again on a new connection.
type Lock struct {
	c         *Client
	o         Options
	path      string
	name      string // as it was asked for
	inherited bool
	life      context.Context // ends when the lock is over, with the reason as its cause
	over      context.CancelCauseFunc
	keeping   sync.WaitGroup
	ending    sync.Once
	result    error // of Release

	on   *session // on which the server knows the hold; for the goroutine that has the turn
	mark sight    // of the directory, on a server without facts; for the goroutine that has the turn

	mu      sync.Mutex
	token   uint64
	renewed time.Time // from which its age counts
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

// watch ends the lock when its lease is over. It looks once a second at least: a machine that was suspended finds more time gone than its timers
// counted.
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

// confirmed takes in a reply that has the hold, to a request that was sent at that time.
func (l *Lock) confirmed(h Holder, sent time.Time) {
	l.mu.Lock()
	l.token, l.lease = h.Token, h.lease
	l.lease.heard = sent
	l.mu.Unlock()
	l.watch()
}

// Path is the lock's name as the server has it.
func (l *Lock) Path() string { return l.path }

// Nonce is the word by which the server knows the job that holds the lock, see [Server]. On ftplockd, another connection of the account that
// sends SITE LOCK AS with it may change the files that the lock protects. "" on another server.
func (l *Lock) Nonce() string {
	if l.Token() == 0 {
		return ""
	}
	return l.c.e.Nonce
}

// Token is the fencing token; 0 on a server that has none. It grows when the lock had to be taken up again after a disconnect.
func (l *Lock) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Expires is when the server may grant the lock to another client, if it hears nothing from us any more; zero if it never does, or does not
// tell. Each answer of the server moves it. The lock is given up up to two seconds earlier.
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

// Valid reports whether the lock is held now. It reads the clock, and does not wait for the server.
func (l *Lock) Valid() bool {
	l.watch()
	return l.life.Err() == nil
}

// Err returns the cause of the end of Context: nil before that and after Release.
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
// known. On another server it only looks whether the lock stands.
func (l *Lock) Renew(ctx context.Context) error {
	return l.use(ctx, func(s *session) error {
		if l.Token() == 0 {
			return l.check(ctx, s)
		}
		return l.renew(ctx, s)
	})
}

// use does something on the connection, on which the lock was taken up again if it is a new one. A loss ends the lock.
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

// lonely is how long a server that cannot be reached is taken to keep a lock of which it promises nothing.
const lonely = time.Minute

// keep looks after the lock until it is over.
func (l *Lock) keep(every time.Duration) {
	wait := every
	var alone time.Time // since then the server cannot be reached
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
			if leased := !l.Expires().IsZero(); time.Since(alone) > lonely && !leased {
				l.lose(fmt.Errorf("%w: %s: the server cannot be reached: %w", ErrUnknown, l.path, err))
			}
		}
	}
}

// looking returns a context for one look. It ends with the lock, but not when that is released: RMD needs the connection.
func (l *Lock) looking() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), glimpse, os.ErrDeadlineExceeded)
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

// look asks once whether the lock is ours, and renews it if that is due. A server that does not know now is left after some seconds: another one
// may know.
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
		case silent < every/2: // it was just taken up again
		case due:
			err = l.renew(ctx, s)
		default:
			err = l.check(ctx, s)
		}
		if errors.Is(err, ErrUnknown) && silent < glimpse {
			return nil
		} else if errors.Is(err, ErrUnknown) {
			s.lost(err)
		}
		return err
	})
}

// check asks whether the lock is still ours.
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
	if err := l.renew(ctx, s); err != nil { // its refusal says why the lock is lost
		return err
	}
	return fmt.Errorf("%w: %s: the server does not name us as its holder", ErrLost, l.path)
}

// renew asks for a full age, and then what that is. The server remembers for the session that had the lock why it is lost, and says so.
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
	return fmt.Errorf("%w: %s: the server does not name us as its holder", ErrLost, l.path)
}

// checkMark looks whether the directory is the one that was made, on a server without facts.
func (l *Lock) checkMark(ctx context.Context, s *session) error {
	sent := now()
	got, err := s.see(ctx, l.name, l.mark.by)
	switch {
	case err != nil:
		return err
	case l.mark.by == "" && got.there, got.by == "":
		l.mark = got // nothing could be seen so far, or nothing can
	case l.mark.by == "":
	case !got.there:
		return fmt.Errorf("%w: %s: its directory is gone", ErrLost, l.path)
	case got.mark != l.mark.mark:
		return fmt.Errorf("%w: %s: its directory is another one than we made, or was written into", ErrLost, l.path)
	}
	l.confirmed(Holder{}, sent)
	return nil
}

// resume takes the lock up on a new connection: by MKD, with which the nonce adopts the hold under a new token. No hold of another client came
// between if the look before has our hold, and the look after has the hold that was adopted from it.
func (l *Lock) resume(ctx context.Context, s *session) error {
	if l.inherited || !s.hasFacts() {
		if l.Token() != 0 && !s.hasFacts() {
			return s.lost(s.fail("it does not send the facts of locks any more", nil))
		}
		return l.check(ctx, s)
	}
	before, err := s.info(ctx, l.name)
	if err != nil {
		return err
	}
	// The reply to an earlier attempt may have been lost.
	ours, ok := before.find(func(h Holder) bool { return h.Mine && (h.Token == l.Token() || h.adopted == l.Token()) })
	if !ok {
		return fmt.Errorf("%w: %s: it ended while the connection was lost", ErrLost, l.path)
	}
	l.mu.Lock()
	l.token = ours.Token
	l.mu.Unlock()
	r, err := s.ask(ctx, "MKD "+l.name)
	if err != nil || r.transient() {
		return s.lost(s.fail("the server said "+r.String(), err))
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
	l.c.e.Logger.Info("lock taken up again", "lock", l.path, "token", h.Token)
	return nil
}

// Release releases the lock. Transfers under it are broken off. The error is [ErrLost] if the lock was lost before, [ErrUnknown] if it
// may still stand. A second call returns what the first one did.
//
// It takes the server's Timeout at most, and a few seconds after the end of ctx.
func (l *Lock) Release(ctx context.Context) error {
	l.ending.Do(func() {
		l.result = l.Err()
		l.over(errReleased)
		if l.inherited {
			l.keeping.Wait()
			return
		}
		if l.result == nil || errors.Is(l.result, ErrUnknown) {
			l.result = l.giveBack(ctx)
		}
		l.keeping.Wait()
		l.c.uses.Add(-1)
		l.c.e.Logger.Debug("lock released", "lock", l.path, "err", l.result)
	})
	return l.result
}

// giveBack sends RMD until its outcome is known.
func (l *Lock) giveBack(ctx context.Context) error {
	late, stop := lingering(ctx, patience)
	defer stop()
	work, cancel := context.WithTimeout(late, l.c.e.Timeout)
	defer cancel()
	sent := false // an RMD whose reply is not known
	for tries := 0; ; tries++ {
		var r reply
		err := l.use(work, func(s *session) (err error) {
			if !s.hasFacts() { // RMD would remove whatever is there
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
			return fmt.Errorf("%w: %s: the server said %s", ErrUnknown, l.path, r)
		}
		pause(work, 100*time.Millisecond)
	}
}
