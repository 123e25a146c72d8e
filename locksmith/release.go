package locksmith

import (
	"context"
	"errors"
	"fmt"
	random "math/rand/v2"
	"os"
	"time"
)

// Release gives the lock back and ends the connection; all goroutines of the lock have ended when it returns. A transfer that is
// under way is over first, or broken off when ctx ends. An error says that the lock was lost (ErrLost), or may still stand (ErrUnknown).
// A second call returns what the first one did.
//
// It takes Timeout at most, and a few seconds after the end of ctx.
func (l *Lock) Release(ctx context.Context) error {
	l.ending.Do(func() { l.result = l.release(ctx) })
	return l.result
}

func (l *Lock) release(ctx context.Context) error {
	l.quit()
	s := l.last(ctx)
	l.keeping.Wait()
	work, cancel := outlasting(ctx, l.e.Timeout)
	defer cancel()
	err := l.Err()
	if err == nil || errors.Is(err, ErrUnknown) {
		s, err = l.giveBack(work, s)
	}
	l.finish(nil)
	if s != nil {
		s.leave(work)
	}
	if b := <-l.beside; b != nil {
		b.leave(work)
	}
	return err
}

// last takes the turn for good. When ctx ends it breaks off what has it; a Put whose reader does not return is not waited for.
func (l *Lock) last(ctx context.Context) *session {
	select {
	case s := <-l.turn:
		return s
	default:
	}
	select {
	case s := <-l.turn:
		return s
	case <-ctx.Done():
	}
	l.cut(context.Cause(ctx))
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case s := <-l.turn:
		return s
	case <-t.C:
		return nil
	}
}

// outlasting is a context that lasts for d, but only a while longer than ctx.
func outlasting(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), d)
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(min(d, patience))
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-work.Done():
		}
	})
	return work, func() {
		stop()
		cancel()
	}
}

// giveBack says RMD until it is known what came of it.
func (l *Lock) giveBack(ctx context.Context, s *session) (*session, error) {
	const enough = 3
	tries := 0
	said := false // an RMD was sent whose reply is not known
	for {
		behind := !said && l.Token() != 0 && s != nil && s.broken() != nil && s.resume()
		if behind {
			// A server that is silent, not gone, gives the lock back as soon as it wakes, whether we still wait for that or not.
		} else if s == nil || s.broken() != nil {
			again, err := l.forRelease(ctx, s)
			if err != nil {
				return nil, fmt.Errorf("%w: %s: %s", ErrUnknown, l.path, whyNot(err))
			}
			s = again
			if err := l.standing(ctx, s); errors.Is(err, ErrLost) {
				if said {
					return s, nil
				}
				return s, err
			} else if err != nil {
				continue
			}
		} else if l.Token() == 0 { // RMD would remove whatever is there
			if err := l.checkMark(ctx, s); errors.Is(err, ErrLost) {
				return s, err
			} else if err != nil {
				continue
			}
		}
		r, err := l.remove(ctx, s, behind)
		switch {
		case err != nil:
			said = true
		case r.good() && r.again():
		case r.good():
			return s, nil
		case r.transient() && tries < enough: // it may succeed yet
			tries++
			pause(ctx, 100*time.Millisecond)
		case r.transient():
			return s, fmt.Errorf("%w: %s: the server said %s", ErrUnknown, l.path, r)
		case l.Token() != 0:
			return s, fmt.Errorf("%w: %s", ErrLost, r.text())
		default:
			if err := l.checkMark(ctx, s); errors.Is(err, ErrLost) {
				return s, err
			}
			return s, fmt.Errorf("%w: %s: the server said %s", ErrUnknown, l.path, r)
		}
	}
}

// remove says RMD, behind a question that is still to be answered, if there is one: then for a while only, since it may be the network
// that is silent, and a new connection find its way.
func (l *Lock) remove(ctx context.Context, s *session, behind bool) (reply, error) {
	if !behind {
		return s.ask(ctx, "RMD "+l.o.Path)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.behind(ctx, "RMD "+l.o.Path)
}

// whyNot is why no connection could be made, on one line.
func whyNot(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded) {
		return "the server does not answer"
	}
	return plain(err)
}

// forRelease makes the connection again.
func (l *Lock) forRelease(ctx context.Context, old *session) (*session, error) {
	if old != nil {
		old.drop()
	}
	for {
		s, err := connect(ctx, l.e)
		if err == nil {
			if err = s.identify(ctx, l.o.Nonce); err == nil {
				return s, nil
			}
			s.drop()
		}
		if pause(ctx, 200*time.Millisecond); ctx.Err() != nil {
			return nil, err
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

// standing reports whether our hold stands, on a connection that did not acquire it. The nonce speaks for it.
func (l *Lock) standing(ctx context.Context, s *session) error {
	token := l.Token()
	if token == 0 {
		return l.checkMark(ctx, s)
	}
	i, known, err := s.info(ctx, l.o.Path)
	if err != nil || !known {
		return err
	}
	if _, ours := i.has(token); !ours && !(l.kept.adopting && i.Held) {
		return l.lostTo(i)
	}
	return nil
}
