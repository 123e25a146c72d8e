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
// A goroutine checks the lock: it requests the facts of the lock from the server, and adopts the lock on a new connection.
type Lock struct {
	c         *Client
	o         Options
	path      string
	name      string // the argument of Acquire
	inherited bool
	life      context.Context // ends with the lock; its cause is the reason
	end       context.CancelCauseFunc
	keeping   sync.WaitGroup

	ending sync.Mutex // held by Release
	ended  bool       // the lock is not held any more, or that is not known
	result error      // of Release

	on        *session  // the connection of the hold; for the goroutine that has the turn
	directory directory // of the directory, on a server without facts; for the goroutine that has the turn

	mu      sync.Mutex
	token   uint64
	renewed time.Time // the time of the grant or the last renewal
	lease   lease
	timer   *time.Timer // ends the lock with its lease
}

var errReleased = fmt.Errorf("%w: it was released", ErrLost)

func newLock(c *Client, name string, o Options) *Lock {
	l := &Lock{c: c, o: o, path: name, name: name, renewed: now()}
	l.life, l.end = context.WithCancelCause(c.life)
	return l
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
		l.end(fmt.Errorf("%w: %s: %s", ErrLost, l.path, l.lease.reason(at)))
	}
}

// confirmed extends the lease by a reply that contains the hold. sent is the time before the request.
func (l *Lock) confirmed(h Holder, sent time.Time) {
	l.mu.Lock()
	l.token, l.lease = h.Token, h.lease
	l.lease.start = sent
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

// Expires returns the time when the server may grant the lock to another client if it receives no more commands from this one; zero if that
// time is unknown or never comes. Each answer of the server moves it. Context ends up to two seconds earlier.
func (l *Lock) Expires() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.lease.end()
	if end.IsZero() {
		return end
	}
	return end.Add(-suspended())
}

// Context ends when the lock is lost or released, always before the server can grant the lock to another client (the package documentation
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
	if errors.Is(err, ErrLost) {
		l.end(err)
	}
	return err
}

// Release releases the lock and aborts its transfers. The error is [ErrLost] if the lock was lost before, [ErrUnknown] if it
// may still be held. A further call returns the same result.
//
// The error is [ErrRefused] if the lock is still held, because there are files in it, or locks below it. Nothing checks or renews it any more. Call
// Release again after their end; otherwise the lock ends after the connection of the Client, or by its age.
//
// It returns after the server's Timeout at the latest, and a few seconds after the end of ctx.
func (l *Lock) Release(ctx context.Context) error {
	l.ending.Lock()
	defer l.ending.Unlock()
	if l.ended {
		return l.result
	}
	l.result = l.Err()
	l.end(errReleased)
	if !l.inherited && (l.result == nil || errors.Is(l.result, ErrUnknown)) {
		l.result = l.sendRMD(ctx)
	}
	l.keeping.Wait()
	if l.ended = !errors.Is(l.result, ErrRefused); l.ended && !l.inherited {
		l.c.uses.Add(-1)
	}
	return l.result
}

// sendRMD sends RMD until its result is known.
func (l *Lock) sendRMD(ctx context.Context) error {
	late, stop := endingAfter(ctx, closeTimeout)
	defer stop()
	work, cancel := context.WithTimeout(late, l.c.e.Timeout)
	defer cancel()
	sent := false // RMD was sent, and its reply may be lost
	for tries := 0; ; tries++ {
		var r reply
		held := false // although RMD was refused
		err := l.use(work, func(s *session) (err error) {
			if !s.hasFacts() { // RMD removes the directory of another client, too
				err = l.checkDirectory(work, s)
			}
			if err == nil {
				sent = true
				r, err = s.ask(work, "RMD "+l.name)
			}
			if err == nil && l.Token() != 0 && !r.positive() && !r.transient() {
				held, err = l.confirm(work, s)
			}
			return err
		})
		switch {
		case errors.Is(err, errClientClosed) && sent:
			return fmt.Errorf("%w: %s: the client was closed", ErrUnknown, l.path)
		case errors.Is(err, ErrLost) && sent:
			return nil
		case errors.Is(err, ErrLost):
			return err
		case err != nil && work.Err() != nil:
			return fmt.Errorf("%w: %s: the server does not answer", ErrUnknown, l.path)
		case err == nil && r.positive():
			return nil
		case held:
			return fmt.Errorf("%w: %s", ErrRefused, r.text())
		case err == nil && l.Token() != 0 && !r.transient():
			return fmt.Errorf("%w: %s", ErrLost, r.text())
		case err == nil && (tries >= 3 || !r.transient()):
			return fmt.Errorf("%w: %s: the server replied %s", ErrUnknown, l.path, r)
		}
		pause(work, 100*time.Millisecond)
	}
}
