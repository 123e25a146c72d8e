package locksmith

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Lock is a lock that is held, with its connection. Its methods may be called by several goroutines at once.
//
// A goroutine checks the lock: it requests the facts of the lock from the server, and adopts the lock on a new connection. Release ends it.
type Lock struct {
	e      *endpoint
	o      Options
	path   string
	name   string // the argument of Acquire
	joined bool
	lacks  Unsupported

	life    context.Context // ends with the lock; its cause is the reason
	end     context.CancelCauseFunc
	keeping sync.WaitGroup

	checks    context.Context // ends the checks: with Release at the latest
	endChecks context.CancelFunc

	releasing context.Context // ends when Release begins
	release   context.CancelFunc
	ending    chan struct{} // holds a value while Release runs
	ended     bool          // the lock is not held any more, or that is not known
	result    error         // of Release

	turn      chan struct{} // holds a value while a goroutine uses the connection
	s         *session      // for the goroutine that has the turn; it may be broken
	holds     bool          // s is the connection of the hold; for the goroutine that has the turn
	found     bool          // the facts have contained the hold; for the goroutine that has the turn
	directory directory     // on a server without facts; for the goroutine that has the turn

	mu      sync.Mutex
	token   uint64
	renewed time.Time // the time of the grant or the last renewal
	lease   lease
	timer   *time.Timer // ends the lock with its lease
	watched time.Time   // the time of the last watch
}

func newLock(e *endpoint, s *session, name string, o Options) *Lock {
	l := &Lock{e: e, o: o, path: name, name: name, lacks: s.lacks(), turn: make(chan struct{}, 1), ending: make(chan struct{}, 1), s: s, holds: true, renewed: now()}
	l.life, l.end = context.WithCancelCause(context.Background())
	l.checks, l.endChecks = context.WithCancel(context.Background())
	l.releasing, l.release = context.WithCancel(context.Background())
	return l
}

// start starts the goroutine that checks the lock.
func (l *Lock) start() {
	l.mu.Lock()
	every := l.e.Check
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
	if err := l.extendTimer(); err != nil {
		l.end(err)
	}
}

// extendTimer sets the timer to the end of the lease, or returns the error of a lease that has ended.
func (l *Lock) extendTimer() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := now()
	left := l.lease.until().Sub(at)
	stopped := time.Duration(0)
	if !l.watched.IsZero() {
		stopped = at.Sub(l.watched)
	}
	l.watched = at
	switch {
	case l.life.Err() != nil:
		return nil
	case left <= 0:
		return l.lease.expired(l.path, at, stopped)
	case l.timer == nil:
		l.timer = time.AfterFunc(min(left, time.Second), l.watch)
	default:
		l.timer.Reset(min(left, time.Second))
	}
	return nil
}

// confirmed extends the lease by a reply that contains the hold. sent is the time before the request.
func (l *Lock) confirmed(h Holder, sent time.Time) {
	l.mu.Lock()
	l.token, l.lease = h.Token, h.lease
	l.lease.asOf, l.lease.margin = sent, l.o.Margin
	l.lease.closed = l.joined && l.lease.isClosed(h.Held)
	l.mu.Unlock()
	l.watch()
}

// Path returns the lock's name on the server.
func (l *Lock) Path() string { return l.path }

// Unsupported returns the features that the server of the lock does not have.
func (l *Lock) Unsupported() Unsupported { return l.lacks }

// JobKey returns the job key, see [Config]. On ftplockd, another connection of the account that
// sends SITE LOCK AS with it may change the files that the lock protects. It returns "" on other servers.
func (l *Lock) JobKey() string {
	if l.Token() == 0 {
		return ""
	}
	return l.e.JobKey
}

// Token returns the fencing token; 0 on a server without tokens. It grows when the lock is adopted after a disconnect.
func (l *Lock) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Expires returns the time when the server may grant the lock to another client if the connection fails now; zero if that time is unknown or never comes. It
// is a lower bound: while the connection works, each answer of the server moves it, and Expires is about now and the grace. For the end of the lock's age, see
// the Expires of a [Holder] that [Stat] returns. Context ends earlier than Expires by the margin.
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
// has the exceptions). Its cause matches [ErrLost], [ErrUnknown] or [ErrReleased].
func (l *Lock) Context() context.Context { return l.life }

// Err returns nil while the lock is held, and after Release; else the cause of the end of Context. It reads the clock and does not wait for the
// server.
func (l *Lock) Err() error {
	l.watch()
	if err := context.Cause(l.life); !errors.Is(err, ErrReleased) {
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

// takeTurn waits for the connection. The caller returns it with <-l.turn.
func (l *Lock) takeTurn(ctx context.Context) error {
	if ctx.Err() != nil { // select would choose at random, and a command would end the connection
		return ended(ctx)
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

// use calls do with the connection, unless the lock has ended.
func (l *Lock) use(ctx context.Context, do func(*session) error) error {
	if err := l.takeTurn(ctx); err != nil {
		return err
	}
	defer func() { <-l.turn }()
	if l.life.Err() != nil {
		return context.Cause(l.life)
	}
	return l.useInTurn(ctx, do)
}

// useInTurn calls do with the connection. If the connection was lost, it connects again and adopts the lock first. ErrLost ends the lock.
func (l *Lock) useInTurn(ctx context.Context, do func(*session) error) error {
	if l.s.broken() != nil {
		s, err := connect(ctx, l.e)
		if err != nil {
			return err
		}
		l.s.drop()
		l.s, l.holds = s, false
	}
	var err error
	if !l.holds {
		err = l.resume(ctx, l.s)
		l.holds = err == nil
	}
	if err == nil {
		err = do(l.s)
	}
	if errors.Is(err, ErrLost) {
		l.end(err)
	}
	return err
}

// Renew gives the lock a full age now (SITE LOCK RENEW). The error matches [ErrLost] if the lock is not held any more, and is [Unsupported] on a
// server whose locks have no age.
func (l *Lock) Renew(ctx context.Context) error {
	if l.lacks.Has(FeatureMaxAge) {
		return Unsupported{FeatureMaxAge}
	}
	held, stop := l.within(ctx)
	defer stop()
	err := l.use(held, func(s *session) error { return l.renew(held, s) })
	return l.endedError(ctx, err)
}

// endedError returns the reason if an operation failed because ctx or the lock has ended.
func (l *Lock) endedError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ended(ctx)
	case l.life.Err() != nil:
		return context.Cause(l.life)
	}
	return err
}

// Release releases the lock, aborts its transfers, and closes the connection. It checks a joined lock instead of releasing it. The error is [ErrLost] if
// the lock was lost before, [ErrUnknown] if the server does not answer: the lock may still be held. A further call returns the same result.
//
// After a loss, Release means that the work has stopped: if the lease has ended although the server may still hold the lock, Release ends the lock on the
// server. Without Release, that happens when the margin is over.
//
// The error is [ErrRefused] if the lock is still held, because there are files in it, or locks below it. Nothing checks or renews it any more, and it
// ends after its connection, or by its age. Release may be called again before that.
//
// It returns after the Timeout of [Config] at the latest, and within about 100 ms of the end of ctx, so it also succeeds with a ctx that has ended if the
// server answers at once. If the server did not answer, the connection stays open for two more seconds: RMD counts if the server answers by then. Otherwise
// the lock ends after its grace.
func (l *Lock) Release(ctx context.Context) error {
	late, stop := linger(ctx, afterEnd)
	defer stop()
	work, cancel := context.WithTimeout(late, l.e.Timeout)
	defer cancel()
	select {
	case l.ending <- struct{}{}:
	case <-work.Done():
		return l.noAnswer(nil)
	}
	defer func() { <-l.ending }()
	if l.ended {
		return l.result
	}
	l.result = l.Err()
	l.end(ErrReleased)
	l.release()
	l.result = l.releaseOnServer(work, l.result)
	l.endChecks()
	l.keeping.Wait()
	l.ended = !errors.Is(l.result, ErrRefused)
	return l.result
}

// releaseOnServer returns the result of Release for a lock that was lost with an error, or is held.
func (l *Lock) releaseOnServer(ctx context.Context, lost error) error {
	err := l.takeTurn(ctx)
	if err != nil {
		l.endChecks() // one is under way, and the server does not answer
		l.turn <- struct{}{}
	}
	defer func() { <-l.turn }()
	result := lost
	switch {
	case lost != nil && !errors.Is(lost, ErrUnknown):
	case err != nil:
		result = l.noAnswer(nil)
	case l.joined:
		result = l.checkLast(ctx)
	default:
		result = l.sendRMD(ctx)
	}
	if unknown := errors.Is(result, errExpired) || errors.Is(result, ErrUnknown) && l.s.broken() != nil; !unknown || !l.endOnServer() {
		l.s.leaveIn(ctx)
	}
	return result
}

// noAnswer returns the error of a release without an answer. last is the error of the last try that ended before the context; nil: there was none.
func (l *Lock) noAnswer(last error) error {
	why := "the server does not answer"
	if last != nil {
		why = last.Error()
	}
	return fmt.Errorf("%w: %s: %s", ErrUnknown, l.path, why)
}

// sendRMD sends RMD until its result is known. The caller has the turn.
func (l *Lock) sendRMD(ctx context.Context) error {
	sent := false // RMD was sent, and its reply may be lost
	var last error
	for tries := 0; ; tries++ {
		var r reply
		held := false // although RMD was refused
		err := l.useInTurn(ctx, func(s *session) (err error) {
			if !s.hasFacts() { // RMD removes the directory of another client, too
				err = l.checkDirectory(ctx, s)
			}
			if err == nil {
				sent = true
				r, err = s.ask(ctx, "RMD "+l.name)
			}
			if err == nil && l.Token() != 0 && !r.positive() && !r.transient() {
				held, err = l.confirm(ctx, s)
			}
			return err
		})
		switch {
		case errors.Is(err, ErrLost) && sent:
			return nil
		case errors.Is(err, ErrLost):
			return err
		case err != nil && ctx.Err() != nil:
			return l.noAnswer(last)
		case err == nil && r.positive():
			return nil
		case held:
			return fmt.Errorf("%w: %s", ErrRefused, r.text())
		case err == nil && l.Token() != 0 && !r.transient():
			return fmt.Errorf("%w: %s", ErrLost, r.text())
		case err == nil && (tries >= 3 || !r.transient()):
			return fmt.Errorf("%w: %s: the server replied %s", ErrUnknown, l.path, r)
		}
		last = err
		pause(ctx, 100*time.Millisecond)
	}
}
