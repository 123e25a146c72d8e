package locksmith

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// farewell is how long a server that cannot be reached may still have a lock that never ends by itself, in our eyes.
const farewell = time.Minute

// glimpse is how long a look at the lock may take. Then the connection is made again: a network that swallows everything looks like a
// server that is slow, and the lock's age goes on.
const glimpse = 5 * time.Second

// keep gives signs of life and looks after the lock, until ctx ends or the lock is lost. No other goroutine makes a lost connection again.
func (l *Lock) keep(ctx context.Context) {
	every := l.o.Keepalive
	if l.Token() != 0 {
		every = min(every, l.o.Check)
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if ctx.Err() != nil { // both may have come during a long look
			return
		}
		if err := l.tend(ctx); err != nil {
			l.finish(err)
			return
		}
	}
}

// tend looks once. An error says that the lock is lost, or that nobody knows.
func (l *Lock) tend(ctx context.Context) error {
	var s *session
	select {
	case s = <-l.turn:
	default:
		return l.glance(ctx) // a transfer has the connection
	}
	defer func() { l.hand(s) }()
	l.dropBeside()
	err := s.broken()
	if err == nil {
		// Not ctx: its end must not cost the connection, on which the lock may hang.
		looking, cancel := l.briefly(context.WithoutCancel(ctx))
		err = l.look(looking, s)
		cancel()
	}
	if err == nil || errors.Is(err, ErrLost) {
		return err
	}
	if ctx.Err() != nil {
		return nil // Release sees to the connection
	}
	again, err := l.regain(ctx)
	if again != nil {
		s.drop()
		s = again
	}
	return err
}

// briefly bounds a look: it never lasts longer than the lock does.
func (l *Lock) briefly(ctx context.Context) (context.Context, context.CancelFunc) {
	until := time.Now().Add(glimpse)
	if end := l.Expires(); !end.IsZero() && end.Before(until) {
		until = end
	}
	return context.WithDeadlineCause(ctx, until, os.ErrDeadlineExceeded)
}

// look checks and renews. An error that does not match ErrLost is one of the connection.
func (l *Lock) look(ctx context.Context, s *session) error {
	if err := l.check(ctx, s); err != nil {
		return err
	}
	return l.renew(ctx, s)
}

// check asks whether the lock is still ours.
func (l *Lock) check(ctx context.Context, s *session) error {
	token := l.Token()
	if token == 0 {
		return l.checkMark(ctx, s)
	}
	i, known, err := s.info(ctx, l.o.Path)
	if err != nil || !known {
		return err
	}
	if _, ours := i.has(token); ours {
		return nil
	}
	return l.explain(ctx, s, i)
}

// explain says why a lock is lost. The server remembers that for the session that had it, and says so to whatever this session wants of
// the lock.
func (l *Lock) explain(ctx context.Context, s *session, i Info) error {
	if r, err := s.ask(ctx, "SITE LOCK RENEW "+l.o.Path); err == nil && r.code == 550 {
		return fmt.Errorf("%w: %s", ErrLost, r.text())
	}
	return l.lostTo(i)
}

func (l *Lock) lostTo(i Info) error {
	if len(i.Holders) > 0 {
		h := i.Holders[0]
		return fmt.Errorf("%w: %s: held by %s for %s", ErrLost, l.path, h.Owner, h.Held)
	}
	return fmt.Errorf("%w: %s: nobody holds it", ErrLost, l.path)
}

// takeMark remembers how the directory is, by the first way to look that sees it.
func (l *Lock) takeMark(ctx context.Context, s *session) error {
	for _, how := range looks(s) {
		m, is, err := how.look(ctx, s, l.o.Path)
		if err != nil {
			return err
		}
		if is == present {
			l.kept.looker, l.kept.mark = &how, m
			return nil
		}
	}
	return nil
}

// checkMark looks whether the directory is the one that was made, on a server without tokens.
func (l *Lock) checkMark(ctx context.Context, s *session) error {
	if l.kept.looker == nil {
		if err := l.takeMark(ctx, s); err != nil || l.kept.looker != nil {
			return err
		}
		_, err := s.ask(ctx, "NOOP") // nothing can be seen: no more than a sign of life
		return err
	}
	m, is, err := l.kept.looker.look(ctx, s, l.o.Path)
	switch {
	case err != nil || is == unsure:
		return err
	case is == denied:
		return fmt.Errorf("%w: %s: its directory is gone", ErrLost, l.path)
	case m.value != l.kept.mark.value:
		return fmt.Errorf("%w: %s: its directory is another one than we made, or was written into", ErrLost, l.path)
	}
	return nil
}

// renew asks for a full age when half of it is over.
func (l *Lock) renew(ctx context.Context, s *session) error {
	l.mu.Lock()
	due := l.o.Renew && l.age > 0 && time.Since(l.renewed) >= l.age/2
	l.mu.Unlock()
	if !due {
		return nil
	}
	r, err := s.ask(ctx, "SITE LOCK RENEW "+l.o.Path)
	if err != nil {
		return err
	}
	if g, ok := r.grant(); ok && r.code == 200 {
		l.granted(g)
	}
	return nil // what else it says is seen by the next check
}

// glance asks on a second connection, while a transfer has the first. That there is none is no reason to worry before the age is over.
func (l *Lock) glance(ctx context.Context) error {
	token := l.Token()
	if token == 0 {
		return nil
	}
	looking, cancel := l.briefly(ctx)
	defer cancel()
	i, known, err := l.aside(looking)
	if _, ours := i.has(token); err == nil && known && !ours {
		return l.lostTo(i)
	}
	if end := l.Expires(); err != nil && ctx.Err() == nil && !end.IsZero() && !time.Now().Before(end) {
		return l.expired()
	}
	return nil
}

// aside is SITE LOCK INFO on the second connection, which it makes if there is none.
func (l *Lock) aside(ctx context.Context) (i Info, known bool, err error) {
	var s *session
	select {
	case s = <-l.beside:
	case <-ctx.Done():
		return Info{}, false, context.Cause(ctx)
	}
	defer func() { l.beside <- s }()
	if s == nil || s.broken() != nil {
		if s != nil {
			s.drop()
		}
		if s, err = connect(ctx, l.e); err != nil {
			s = nil
			return Info{}, false, err
		}
	}
	return s.info(ctx, l.o.Path)
}

// expired is the end of a lock that could not be asked for.
func (l *Lock) expired() error {
	return fmt.Errorf("%w: %s: the server could not be reached before the lock's age was over", ErrLost, l.path)
}

func (l *Lock) dropBeside() {
	select {
	case s := <-l.beside:
		if s != nil {
			s.leave(context.Background())
		}
		l.beside <- nil
	default: // somebody is looking with it
	}
}

// regain makes a lost connection again and finds the hold on it. It tries until the server would have ended the lock, or for a minute
// if it never does. Without a session and an error ctx has ended.
func (l *Lock) regain(ctx context.Context) (*session, error) {
	until, dies := l.Expires(), true
	if until.IsZero() {
		until, dies = time.Now().Add(farewell), false
	}
	trying, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		s, err := l.reconnect(trying)
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, ErrLost):
			return s, err
		}
		pause(trying, wait)
		switch {
		case trying.Err() == nil:
			continue
		case ctx.Err() != nil:
			return nil, nil
		case dies:
			return nil, l.expired()
		}
		return nil, fmt.Errorf("%w: %s: the server cannot be reached: %w", ErrUnknown, l.path, err)
	}
}

// reconnect tries once. With ErrLost the session is of use, too.
func (l *Lock) reconnect(ctx context.Context) (*session, error) {
	s, err := connect(ctx, l.e)
	if err != nil {
		return nil, err
	}
	if err = s.identify(ctx, l.o.Nonce); err == nil {
		err = l.find(ctx, s)
	}
	if err != nil && !errors.Is(err, ErrLost) {
		s.drop()
		return nil, err
	}
	return s, err
}

// find looks on a new connection whether the hold stands, and takes it up again: by MKD, since a hold whose rule ends it after the
// disconnect goes on to wait for its end otherwise. It then has a new token. The hold could end between the question and the
// MKD, which is then granted as if to anybody: the reply tells an adoption from that.
func (l *Lock) find(ctx context.Context, s *session) error {
	token := l.Token()
	if token == 0 {
		return l.checkMark(ctx, s)
	}
	i, known, err := s.info(ctx, l.o.Path)
	switch {
	case err != nil:
		return err
	case !known || !s.nonce:
		return fmt.Errorf("%w: the server knows no locks any more", ErrUnreachable)
	}
	if _, ours := i.has(token); !ours && !(l.kept.adopting && i.Held) {
		return l.lostTo(i)
	}
	l.kept.adopting = true
	r, err := s.ask(ctx, "MKD "+l.o.Path)
	if err != nil || r.transient() {
		return errors.Join(err, s.broken(), ErrUnreachable)
	}
	l.kept.adopting = false
	g, ok := r.grant()
	if r.code != 257 || !ok {
		return fmt.Errorf("%w: %s", ErrLost, r.text())
	}
	if !g.adopted { // what we held had ended since we asked, and nobody else has it
		_, _ = s.ask(ctx, "RMD "+l.o.Path)
		return fmt.Errorf("%w: %s: it ended while the connection was lost", ErrLost, l.path)
	}
	l.granted(g)
	return nil
}
