package locksmith

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lock is a lock that is held. Its methods may be called by several goroutines at once.
//
// One goroutine keeps it: it looks whether the lock still stands, and connects again when the connection is lost.
type Lock struct {
	o    Options
	e    *endpoint
	path string
	life context.Context // ends when the lock is over, with the reason as its cause
	end  context.CancelCauseFunc

	quit    context.CancelFunc // ends the goroutine
	keeping sync.WaitGroup
	ending  sync.Once
	result  error // of Release

	mu    sync.Mutex
	s     *session // with the keeping goroutine, or with Release once that has ended
	token uint64
	lease lease
	timer *time.Timer // ends the lock with its lease

	looking chan struct{} // holds one token while somebody looks by the library, on a server without tokens
	mark    *mark         // of the directory there; nil: not taken
}

var errReleased = errors.New("released")

func newLock(a *acquisition, path string) *Lock {
	l := &Lock{o: a.o, e: a.e, path: path, s: a.s, looking: make(chan struct{}, 1)}
	l.life, l.end = context.WithCancelCause(context.Background())
	l.lease.heard = a.sent
	return l
}

func (l *Lock) start() {
	if l.o.Check <= 0 {
		if l.o.Check = time.Second; l.Token() == 0 {
			l.o.Check = 5 * time.Second
		}
	}
	l.mu.Lock()
	l.o.Check = min(l.o.Check, max(l.lease.shortest()/5, 10*time.Millisecond))
	l.mu.Unlock()
	var keeping context.Context
	keeping, l.quit = context.WithCancel(l.life)
	l.keeping.Go(func() { l.keep(keeping) })
}

// watch ends the lock when its lease is over, and the connection with it. It looks once a second at least: a machine that was suspended finds
// more time gone than its timers counted.
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
		err := fmt.Errorf("%w: %s: %s", ErrLost, l.path, l.lease.reason(at))
		l.end(err)
		l.s.link.cut(err)
	}
}

// granted takes in a grant or a renewal: when its request was sent, and when the last one that the server answered.
func (l *Lock) granted(g grant, began, heard time.Time) {
	l.mu.Lock()
	if g.token != 0 {
		l.token = g.token
	}
	l.lease = lease{began: began, heard: heard, age: g.expires, idle: g.idle}
	if l.token != 0 && l.o.Grace > 0 && l.s.can("SITE", "DISCONNECT") {
		l.lease.grace = l.o.Grace
	}
	l.mu.Unlock()
	l.watch()
}

// confirmed takes in a reply that says that the lock stands, to a request that was sent at that time.
func (l *Lock) confirmed(sent time.Time) {
	l.mu.Lock()
	l.lease.heard = sent
	l.mu.Unlock()
}

// Path is the lock's name as the server quoted it.
func (l *Lock) Path() string { return l.path }

// Nonce is the word by which the server knows who holds the lock; see [Options].Nonce. On ftplockd, another connection of the account that
// says SITE LOCK AS with it may change the files that the lock protects. "" from another server.
func (l *Lock) Nonce() string {
	if l.Token() == 0 {
		return ""
	}
	return l.o.Nonce
}

// Token is the fencing token; 0 from a server that has none. It grows when the lock had to be taken up again after a disconnect.
func (l *Lock) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Expires is when the server may grant the lock to another client, if it hears nothing from us any more; zero if it never does, or does not
// say. Each answer of the server moves it. The lock is given up (Done) up to two seconds earlier.
func (l *Lock) Expires() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.lease.end()
	if end.IsZero() {
		return end
	}
	return end.Add(-suspended())
}

// Done is closed when the lock is lost or was released.
func (l *Lock) Done() <-chan struct{} { return l.life.Done() }

// Err is why Done was closed: nil before that and after Release; else it matches ErrLost or ErrUnknown.
func (l *Lock) Err() error {
	if err := context.Cause(l.life); err != errReleased {
		return err
	}
	return nil
}

// Context returns a context that ends with ctx, and when the lock is lost or released; its cause is the lock's error then. stop
// releases its resources.
func (l *Lock) Context(ctx context.Context) (held context.Context, stop context.CancelFunc) {
	held, cancel := context.WithCancelCause(ctx)
	end := func() {
		err := l.Err()
		if err == nil {
			err = fmt.Errorf("%w: %s was released", ErrLost, l.path)
		}
		cancel(err)
	}
	if l.life.Err() != nil {
		end() // AfterFunc would do so a moment later
	}
	unlink := context.AfterFunc(l.life, end)
	return held, func() {
		unlink()
		cancel(nil)
	}
}

// session is the connection; it may be broken.
func (l *Lock) session() *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s
}

// ask says a command on the lock's connection, when the library does not use it.
func (l *Lock) ask(ctx context.Context, command string) (reply, error) {
	if l.Token() == 0 {
		l.looking <- struct{}{}
		defer func() { <-l.looking }()
	}
	return l.session().ask(ctx, command)
}

// keep looks after the lock until ctx ends or the lock is lost.
func (l *Lock) keep(ctx context.Context) {
	t := time.NewTicker(l.o.Check)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		err := l.look()
		if err != nil && !errors.Is(err, ErrLost) && ctx.Err() == nil {
			err = l.regain(ctx)
		}
		switch {
		case ctx.Err() != nil: // Release sees to the rest
			return
		case err != nil:
			l.end(err)
			return
		}
	}
}

// glimpse is how long a look may take. Then the connection is made again: a network that loses everything looks like a server that is
// slow, and the lock's age goes on.
const glimpse = 5 * time.Second

// look asks once whether the lock is ours, and renews it if that is due. An error that does not match ErrLost is one of the connection,
// or of a server that has not known for too long.
func (l *Lock) look() error {
	s := l.session()
	s.link.hurry(glimpse)
	defer s.link.hurry(0)
	err := s.broken()
	if err == nil {
		err = l.check(s)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, ErrUnknown) && now().Sub(l.lease.heard) < l.bearable() {
		return nil
	}
	return err
}

// bearable is for how long it is borne that a server says that it does not know now. Then the connection is made again: another server
// may know.
func (l *Lock) bearable() time.Duration {
	if l.o.Grace > 0 {
		return min(glimpse, l.o.Grace/3)
	}
	return glimpse
}

// check asks whether the lock is still ours, by one command.
func (l *Lock) check(s *session) error {
	token := l.Token()
	if token == 0 {
		return l.checkMark(s)
	}
	l.mu.Lock()
	due := l.o.Renew && l.lease.age > 0 && now().Sub(l.lease.began)+l.o.Check > l.lease.age/2 // before half of it is over
	l.mu.Unlock()
	if due {
		return l.renew(s)
	}
	sent := now()
	i, err := s.info(context.Background(), l.o.Path)
	if err != nil {
		return err
	}
	if _, ours := i.has(token); ours {
		l.confirmed(sent)
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
	r, err := s.ask(context.Background(), "SITE LOCK RENEW "+l.o.Path)
	if err != nil {
		return err
	}
	switch {
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

// shared reports whether our hold is one of several that may be.
func (l *Lock) shared(ctx context.Context) bool {
	if l.Token() == 0 {
		return false
	}
	i, err := l.s.info(ctx, l.o.Path)
	h, ok := i.has(l.Token())
	return err == nil && ok && h.Shared
}

// takeMark remembers how the directory is.
func (l *Lock) takeMark(s *session) error {
	_, m, err := s.see(l.o.Path)
	l.mark = m
	return err
}

// checkMark looks whether the directory is the one that was made, on a server without tokens.
func (l *Lock) checkMark(s *session) error {
	l.looking <- struct{}{}
	defer func() { <-l.looking }()
	sent := now()
	if l.mark == nil {
		if err := l.takeMark(s); err != nil || l.mark != nil {
			return err
		}
		_, err := s.ask(context.Background(), "NOOP") // nothing can be seen: no more than a sign of life
		if err == nil {
			l.confirmed(sent)
		}
		return err
	}
	got, err := l.mark.by(s, l.o.Path)
	switch {
	case err != nil || !got.known:
		return err
	case !got.there:
		return fmt.Errorf("%w: %s: its directory is gone", ErrLost, l.path)
	case !got.since.Equal(l.mark.since):
		return fmt.Errorf("%w: %s: its directory is another one than we made, or was written into", ErrLost, l.path)
	}
	l.confirmed(sent)
	return nil
}

// lonely is how long a server that cannot be reached is taken to keep a lock of which it promises nothing.
const lonely = time.Minute

// regain makes a lost connection again and takes the lock up on it. It tries until ctx ends, which the end of the lease does.
func (l *Lock) regain(ctx context.Context) error {
	l.mu.Lock()
	leased := !l.lease.end().IsZero()
	l.mu.Unlock()
	trying, cancel := ctx, context.CancelFunc(func() {})
	if !leased {
		trying, cancel = context.WithTimeout(ctx, lonely)
	}
	defer cancel()
	err := l.standsStill(trying)
	if err == nil || errors.Is(err, ErrLost) {
		return err
	}
	return fmt.Errorf("%w: %s: the server cannot be reached: %w", ErrUnknown, l.path, err)
}

// standsStill connects again, and takes the lock up if it stands. It tries until ctx ends.
func (l *Lock) standsStill(ctx context.Context) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := l.reconnect(ctx)
		if err == nil || errors.Is(err, ErrLost) {
			return err
		}
		if pause(ctx, wait); ctx.Err() != nil {
			return err
		}
	}
}

// reconnect tries once. The session is replaced also with ErrLost.
func (l *Lock) reconnect(ctx context.Context) error {
	s, err := join(ctx, l.e, l.o)
	if err != nil {
		return err
	}
	if err = l.resume(ctx, s); err != nil && !errors.Is(err, ErrLost) {
		s.drop()
		return err
	}
	l.mu.Lock()
	old := l.s
	l.s = s
	l.mu.Unlock()
	old.drop()
	return err
}

// resume takes the lock up on a new connection: by MKD, with which the nonce adopts the hold under a new token. If the hold has ended, it
// is granted as if to anybody, and the reply tells that from an adoption.
func (l *Lock) resume(ctx context.Context, s *session) error {
	if l.Token() == 0 {
		return l.checkMark(s)
	}
	sent := now()
	r, err := s.ask(ctx, "MKD "+l.o.Path)
	if err == nil {
		r, err = s.whole(ctx, l.o.Path, r)
	}
	if err != nil {
		return err
	}
	g, ok := r.grant()
	switch {
	case r.transient() || !s.knowsLocks():
		return s.fail("the server said "+r.String(), nil)
	case r.code != 257 || !ok:
		return fmt.Errorf("%w: %s", ErrLost, r.text())
	case !g.adopted:
		_, _ = s.ask(ctx, "RMD "+l.o.Path)
		return fmt.Errorf("%w: %s: it ended while the connection was lost", ErrLost, l.path)
	}
	heard, err := s.confirm(ctx)
	if err != nil {
		return err
	}
	l.granted(g, sent, heard)
	return nil
}

// Release gives the lock back and ends the connection. Transfers that are under way are broken off. An error says that the lock was
// lost (ErrLost) or may still stand (ErrUnknown). A second call returns what the first one did.
//
// It takes the server's Timeout at most, and a few seconds after the end of ctx.
func (l *Lock) Release(ctx context.Context) error {
	l.ending.Do(func() { l.result = l.release(ctx) })
	return l.result
}

func (l *Lock) release(ctx context.Context) error {
	l.quit()
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.e.Timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(patience, cancel) })
	defer stop()
	err := l.Err()
	l.end(errReleased)
	if err == nil || errors.Is(err, ErrUnknown) {
		err = l.giveBack(work)
	}
	l.keeping.Wait()
	l.s.leave()
	return err
}

// giveBack says RMD until it is known what came of it. On the connection that acquired the lock it is sent at once, behind a question
// that may be under way: a server that is frozen, not gone, reads both when it wakes.
func (l *Lock) giveBack(ctx context.Context) error {
	said := false // an RMD was sent whose reply is not known
	for tries := 0; ; {
		r, err := l.remove(ctx)
		lost := errors.Is(err, ErrLost)
		switch {
		case lost && said:
			return nil
		case lost:
			return err
		case err != nil:
			said = true
			l.keeping.Wait()
			if err := l.standsStill(ctx); errors.Is(err, ErrLost) {
				return nil
			} else if err != nil {
				return fmt.Errorf("%w: %s: the server does not answer", ErrUnknown, l.path)
			}
		case r.good() && r.again():
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

// remove says RMD. On a server without tokens it looks before that, since RMD would remove whatever is there.
func (l *Lock) remove(ctx context.Context) (reply, error) {
	if l.Token() == 0 {
		if err := l.checkMark(l.session()); err != nil {
			return reply{}, err
		}
	}
	return l.ask(ctx, "RMD "+l.o.Path)
}
