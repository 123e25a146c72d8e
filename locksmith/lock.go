package locksmith

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Lock is a lock that is held. Its methods may be called by several goroutines at once.
//
// A goroutine keeps it: it asks the server whether the lock still stands, and takes it up again on a new connection.
type Lock struct {
	c    *Client
	o    Options
	path string
	name string          // as it was asked for
	life context.Context // ends when the lock is over, with the reason as its cause
	over context.CancelCauseFunc

	quit    context.CancelFunc // ends the goroutine
	keeping sync.WaitGroup
	ending  sync.Once
	result  error // of Release

	on   *session // on which the server knows the hold; for the goroutine that talks
	mark *mark    // of the directory, on a server without tokens; nil: not taken. For the goroutine that talks

	mu    sync.Mutex
	token uint64
	lease lease
	timer *time.Timer // ends the lock with its lease
}

var errReleased = fmt.Errorf("%w: it was released", ErrLost)

func newLock(a *acquisition, path string) *Lock {
	l := &Lock{c: a.Client, o: a.o, path: path, name: a.path, on: a.s}
	l.life, l.over = context.WithCancelCause(context.Background())
	l.lease.heard = a.sent
	return l
}

// lose ends the lock.
func (l *Lock) lose(err error) {
	if l.life.Err() == nil && err != errReleased {
		l.c.e.Logger.Warn("lock lost", "lock", l.path, "err", err)
	}
	l.over(err)
}

func (l *Lock) start() {
	every := l.c.e.Check
	l.mu.Lock()
	if every <= 0 {
		if every = time.Second; l.token == 0 {
			every = 5 * time.Second
		}
	}
	every = min(every, max(l.lease.shortest()/5, 10*time.Millisecond))
	l.mu.Unlock()
	var keeping context.Context
	keeping, l.quit = context.WithCancel(l.life)
	l.keeping.Go(func() { l.keep(keeping, every) })
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

// granted takes in a grant or a renewal: when its request was sent, and when the last one that the server answered.
func (l *Lock) granted(g grant, began, heard time.Time) {
	l.mu.Lock()
	l.token = g.token
	l.lease = lease{began: began, heard: heard, age: g.expires, idle: g.idle}
	if l.c.e.Grace > 0 && l.on.can("SITE", "DISCONNECT") {
		l.lease.grace = l.c.e.Grace
	}
	l.mu.Unlock()
	l.watch()
}

// confirmed takes in a reply that says that the lock stands, and for how long (0: it does not say), to a request that was sent at that time.
func (l *Lock) confirmed(sent time.Time, left time.Duration) {
	l.mu.Lock()
	l.lease.heard, l.lease.left = sent, left
	l.mu.Unlock()
	l.watch()
}

// Path is the lock's name as the server quoted it.
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
// say. Each answer of the server moves it. The lock is given up up to two seconds earlier.
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

// Valid reports whether the lock is held now. It asks the clock, not the server.
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
	return l.talk(ctx, func(s *session) error {
		if l.Token() == 0 {
			return l.checkMark(s)
		}
		return l.renew(s)
	})
}

// talk does something on the lock's connection. A loss ends the lock.
func (l *Lock) talk(ctx context.Context, do func(*session) error) error {
	if err := l.c.begin(ctx); err != nil {
		return err
	}
	defer l.c.end()
	s, err := l.c.locker(ctx)
	if err != nil {
		return err
	}
	s.link.hurry(glimpse)
	defer s.link.hurry(0)
	stop := func() bool { return true }
	if l.life.Err() == nil {
		stop = context.AfterFunc(l.life, func() { // a server that is silent is not waited for any longer
			if why := context.Cause(l.life); why != errReleased {
				s.link.cut(why)
			}
		})
	}
	if s != l.on {
		err = l.resume(s)
	}
	if err == nil {
		err = do(s)
	}
	if stop(); errors.Is(err, ErrLost) {
		l.lose(err)
	}
	return err
}

// lonely is how long a server that cannot be reached is taken to keep a lock of which it promises nothing.
const lonely = time.Minute

// glimpse is how long a look may take. Then the connection is made again: a network that loses everything looks like a server that is
// slow, and the lock's lease goes on.
const glimpse = 5 * time.Second

// keep looks after the lock until ctx ends or the lock is lost.
func (l *Lock) keep(ctx context.Context, every time.Duration) {
	wait := every
	var alone time.Time // since then the server cannot be reached
	for {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		if t.Stop(); ctx.Err() != nil {
			return
		}
		err := l.talk(ctx, func(s *session) error { return l.look(s, every) })
		switch {
		case err == nil:
			wait, alone = every, time.Time{}
		case alone.IsZero():
			wait, alone = 0, time.Now()
		default:
			wait = min(max(2*wait, 100*time.Millisecond), time.Second)
			l.mu.Lock()
			leased := !l.lease.end().IsZero()
			l.mu.Unlock()
			if time.Since(alone) > lonely && !leased && ctx.Err() == nil {
				l.lose(fmt.Errorf("%w: %s: the server cannot be reached: %w", ErrUnknown, l.path, err))
			}
		}
	}
}

// look asks once whether the lock is ours, and renews it if that is due. A server that does not know now is left after some seconds: another one
// may know.
func (l *Lock) look(s *session, every time.Duration) error {
	err := l.check(s, every)
	if errors.Is(err, ErrUnknown) {
		l.mu.Lock()
		silent := now().Sub(l.lease.heard)
		l.mu.Unlock()
		if silent < glimpse {
			return nil
		}
		s.lost(err)
	}
	return err
}

// check asks whether the lock is still ours, by one command.
func (l *Lock) check(s *session, every time.Duration) error {
	l.mu.Lock()
	token := l.token
	fresh := now().Sub(l.lease.heard) < every/2                                           // it was just taken up again
	due := l.o.Renew && l.lease.age > 0 && now().Sub(l.lease.began)+every > l.lease.age/2 // before half of it is over
	l.mu.Unlock()
	switch {
	case fresh:
		return nil
	case token == 0:
		return l.checkMark(s)
	case due:
		return l.renew(s)
	}
	sent := now()
	i, err := s.info(context.Background(), l.name)
	if err != nil {
		return err
	}
	if i.has(token) {
		var left time.Duration
		if len(i.Holders) == 1 { // of several the server tells when the last one ends
			left = i.Holders[0].Expires
		}
		l.confirmed(sent, left)
		return nil
	}
	if err := l.renew(s); err != nil { // its refusal says why the lock is lost
		return err
	}
	return fmt.Errorf("%w: %s: the server does not name us as its holder", ErrLost, l.path)
}

// renew asks for a full age. The server remembers for the session that had the lock why it is lost, and says so.
func (l *Lock) renew(s *session) error {
	sent := now()
	r, err := s.ask(context.Background(), "SITE LOCK RENEW "+l.name)
	switch {
	case err != nil:
		return err
	case r.code == 550:
		return fmt.Errorf("%w: %s", ErrLost, r.text())
	case r.transient():
		return fmt.Errorf("%w: %s", ErrUnknown, r.text())
	}
	if g, ok := r.grant(); ok {
		l.granted(g, sent, sent)
	}
	return nil
}

// isShared reports whether our hold is one of several that may be.
func (l *Lock) isShared(s *session) bool {
	if l.Token() == 0 {
		return false
	}
	i, err := s.info(context.Background(), l.name)
	for _, h := range i.Holders {
		if err == nil && h.Token == l.Token() && h.Shared {
			return true
		}
	}
	return false
}

// takeMark remembers how the directory is.
func (l *Lock) takeMark(s *session) error {
	_, m, err := s.see(l.name)
	l.mark = m
	return err
}

// checkMark looks whether the directory is the one that was made, on a server without tokens.
func (l *Lock) checkMark(s *session) error {
	sent := now()
	if l.mark == nil {
		if err := l.takeMark(s); err != nil || l.mark != nil {
			return err
		}
		_, err := s.ask(context.Background(), "NOOP") // nothing can be seen: no more than a sign of life
		if err == nil {
			l.confirmed(sent, 0)
		}
		return err
	}
	got, err := l.mark.by(s, l.name)
	switch {
	case err != nil || !got.known:
		return err
	case !got.there:
		return fmt.Errorf("%w: %s: its directory is gone", ErrLost, l.path)
	case !got.since.Equal(l.mark.since):
		return fmt.Errorf("%w: %s: its directory is another one than we made, or was written into", ErrLost, l.path)
	}
	l.confirmed(sent, 0)
	return nil
}

// resume takes the lock up on a new connection: by MKD, with which the nonce adopts the hold under a new token. If the hold has ended, it
// is granted as if to anybody, and the reply tells that from an adoption.
func (l *Lock) resume(s *session) error {
	if l.Token() == 0 {
		err := l.checkMark(s)
		if err == nil {
			l.on = s
		}
		return err
	}
	sent := now()
	r, err := s.ask(context.Background(), "MKD "+l.name)
	if err == nil {
		r, err = s.whole(context.Background(), l.name, r)
	}
	if err != nil {
		return err
	}
	g, ok := r.grant()
	switch {
	case r.transient() || !s.knowsLocks():
		return s.lost(s.fail("the server said "+r.String(), nil))
	case r.code != 257 || !ok:
		return fmt.Errorf("%w: %s", ErrLost, r.text())
	case !g.adopted:
		_, _ = s.ask(context.Background(), "RMD "+l.name)
		return fmt.Errorf("%w: %s: it ended while the connection was lost", ErrLost, l.path)
	}
	heard, err := s.confirm()
	if err != nil {
		return err
	}
	l.on = s
	l.granted(g, sent, heard)
	l.c.e.Logger.Info("lock taken up again", "lock", l.path, "token", g.token)
	return nil
}

// Release releases the lock. Transfers under it are broken off. The error is [ErrLost] if the lock was lost before, [ErrUnknown] if it
// may still stand. A second call returns what the first one did.
//
// It takes the server's Timeout at most, and a few seconds after the end of ctx.
func (l *Lock) Release(ctx context.Context) error {
	l.ending.Do(func() { l.result = l.release(ctx) })
	return l.result
}

func (l *Lock) release(ctx context.Context) error {
	defer l.c.count(-1)
	err := l.Err()
	l.quit()
	l.lose(errReleased)
	if err == nil || errors.Is(err, ErrUnknown) {
		work, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.c.e.Timeout)
		defer cancel()
		stop := context.AfterFunc(ctx, func() { time.AfterFunc(patience, cancel) })
		defer stop()
		err = l.giveBack(work)
	}
	l.keeping.Wait()
	l.c.e.Logger.Debug("lock released", "lock", l.path, "err", err)
	return err
}

// giveBack sends RMD until its outcome is known.
func (l *Lock) giveBack(ctx context.Context) error {
	sent := false // an RMD whose reply is not known
	for tries := 0; ; {
		var r reply
		err := l.talk(ctx, func(s *session) (err error) {
			s.link.hurry(0)
			if l.Token() == 0 { // RMD would remove whatever is there
				err = l.checkMark(s)
			}
			if err == nil {
				sent = true
				r, err = s.ask(ctx, "RMD "+l.name)
			}
			return err
		})
		switch {
		case errors.Is(err, ErrLost) && sent:
			return nil
		case errors.Is(err, ErrLost):
			return err
		case err != nil && ctx.Err() == nil:
			pause(ctx, 100*time.Millisecond)
		case err != nil:
			return fmt.Errorf("%w: %s: the server does not answer", ErrUnknown, l.path)
		case r.good():
			return nil
		case r.transient() && tries < 3: // it may succeed yet
			tries++
			pause(ctx, 100*time.Millisecond)
		case l.Token() != 0 && !r.transient():
			return fmt.Errorf("%w: %s", ErrLost, r.text())
		default:
			return fmt.Errorf("%w: %s: the server said %s", ErrUnknown, l.path, r)
		}
	}
}
