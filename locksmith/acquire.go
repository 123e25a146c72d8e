package locksmith

import (
	"context"
	"errors"
	"fmt"
	random "math/rand/v2"
	"net"
	"path"
	"strings"
	"time"
)

// Acquire takes the lock of a name, and waits for it until ctx ends. The name is an absolute path, or relative to the directory after login.
//
// Errors match the sentinels of this package. An error at the end of ctx also matches the cause of ctx: a *[HeldError] if another client
// holds the lock, or [ErrUnreachable]. [ErrUnknown] means that a lock may have been granted in a reply that was lost, and could neither be found
// nor released. After the end of ctx, that is tried for two seconds.
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

// acquisition is one Acquire.
type acquisition struct {
	*Client
	o     Options
	path  string
	once  bool
	began time.Time

	s      *session  // of the last try
	sent   time.Time // before the last MKD was sent
	last   error     // why there is no lock yet; nil: nothing was refused so far
	unsure bool      // an MKD of ours may have been granted, or may still be
}

// outcome is the result of one MKD.
type outcome int

const (
	failed   outcome = iota // the connection was not made, or was lost with the reply: last has the reason
	granted                 // by the reply that comes with it
	inTheWay                // last has the holder
	absent                  // another server refused it, though nothing is there
	refused                 // for good: last has the reason
)

// longSlice is how long a server is asked to let one MKD wait, shortSlice how long if the connection has other work.
const (
	longSlice  = 20 * time.Second
	shortSlice = time.Second
)

func (c *Client) acquire(ctx context.Context, name string, o Options, once bool) (*Lock, error) {
	if name == "" {
		return nil, fmt.Errorf("%w: no lock is named", ErrRefused)
	}
	a := &acquisition{Client: c, o: o, path: name, once: once, began: time.Now()}
	l, err := a.run(ctx)
	if err != nil {
		c.count(-1)
		return nil, err
	}
	c.e.Logger.Debug("lock acquired", "lock", l.path, "token", l.Token(), "waited", time.Since(a.began))
	return l, nil
}

// run tries until there is a result.
func (a *acquisition) run(ctx context.Context) (*Lock, error) {
	others := a.count(1)
	waits := false // the server lets the next MKD wait
	for tries := 0; ; tries++ {
		slice := time.Duration(0)
		if waits {
			if slice = longSlice; others > 0 || a.count(0) > 1 {
				slice = shortSlice
			}
		}
		began := time.Now()
		result, l := a.attempt(ctx, slice)
		switch {
		case l != nil:
			return l, nil
		case result == refused:
			return nil, a.doubtful(a.last)
		case result == granted, ctx.Err() != nil:
			return nil, a.giveUp(ctx, result == granted)
		case result == failed:
			switch {
			case a.once && !a.unsure:
				return nil, a.doubtful(a.last)
			case a.once && tries == 0: // to find out what became of the only try
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, a.e.Timeout)
				defer cancel()
			}
			pause(ctx, min(a.e.Poll, time.Second))
		case a.once:
			return nil, a.doubtful(a.last)
		default:
			if held, ok := errors.AsType[*HeldError](a.last); ok && a.o.Waiting != nil {
				a.o.Waiting(held.Refusal)
			}
			if waits = a.s.can("SITE", "WAIT"); !waits || slice > 0 && time.Since(began) < slice/2 { // else the client waits in the queue
				pause(ctx, a.e.Poll)
			}
		}
		if ctx.Err() != nil {
			return nil, a.giveUp(ctx, false)
		}
	}
}

func isUnknownHost(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
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

// attempt connects if need be and sends MKD. A grant becomes a Lock, unless ctx has ended. What is refused though nothing is there may have been
// released between the two looks; refused again and again for some seconds, it cannot be made.
func (a *acquisition) attempt(ctx context.Context, wait time.Duration) (outcome, *Lock) {
	if err := a.begin(ctx); err != nil {
		return failed, nil
	}
	defer a.end()
	s, err := a.locker(ctx)
	if err != nil {
		if _, held := errors.AsType[*HeldError](a.last); !held || !errors.Is(err, ErrUnreachable) {
			a.last = err
		}
		if errors.Is(err, ErrUnreachable) || ctx.Err() != nil {
			return failed, nil
		}
		return refused, nil
	}
	a.s = s
	began := time.Now()
	for tries := 1; ; tries++ {
		result, r := a.try(ctx, wait)
		switch {
		case result == granted && ctx.Err() == nil:
			return a.take(r)
		case result != absent, ctx.Err() != nil:
			return result, nil
		case tries >= 3 && (a.once || time.Since(began) >= 3*time.Second):
			return refused, nil
		}
		pause(ctx, min(a.e.Poll, 100*time.Millisecond))
	}
}

// try sends MKD once.
func (a *acquisition) try(ctx context.Context, wait time.Duration) (outcome, reply) {
	r, err := a.mkdir(ctx, wait)
	switch {
	case errors.Is(err, ErrRefused):
		a.last = err
		return refused, r
	case err != nil:
		if a.last == nil {
			a.last = err
		}
		return failed, r
	case !a.s.knowsLocks():
		return a.judgeByLooking(r)
	}
	_, locked := r.grant()
	switch {
	case r.good() && !locked: // no other client would be kept from anything by it
		a.unsure = false
		a.last = fmt.Errorf("%w: no rule of the server makes %s a lock", ErrRefused, a.named(r))
		if back, err := a.s.ask(context.Background(), "RMD "+a.path); err != nil || !back.good() {
			a.last = fmt.Errorf("%w; the directory that was made stands", a.last)
		}
		return refused, r
	case r.transient(): // the server cannot tell whether that happened: as if the reply had been lost
		a.unsure = true
		a.last = fmt.Errorf("%w: %s", ErrUnknown, r.text())
		a.s.lost(a.last)
		return failed, r
	}
	a.unsure = false
	return a.judge(r), r
}

// mkdir sends MKD, and ends its waiting when ctx ends: on ftplockd any other command does that. Other servers answer soon anyhow. The
// lock may have been granted in the same moment.
func (a *acquisition) mkdir(ctx context.Context, wait time.Duration) (reply, error) {
	s := a.s
	if err := s.waitFor(ctx, wait); err != nil {
		return reply{}, err
	}
	s.link.wait(s.Timeout + wait)
	defer s.link.wait(s.Timeout)
	a.sent = now()
	id, err := s.send("MKD " + a.path)
	if err != nil {
		a.unsure = a.unsure || !errors.Is(err, ErrRefused)
		return reply{}, err
	}
	var noop uint
	var nerr error
	sent := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(sent)
		if wait > 0 {
			noop, nerr = s.send("NOOP")
		}
		s.link.hurry(farewell)
	})
	r, err := s.receive(id)
	if !stop() {
		<-sent
		if err == nil && wait > 0 && nerr == nil {
			_, _ = s.receive(noop)
		}
		s.link.hurry(0)
	}
	if err == nil {
		r, err = s.whole(ctx, a.path, r)
	}
	a.unsure = a.unsure || err != nil
	return r, err
}

// judge reads ftplockd's reply, whose words are known.
func (a *acquisition) judge(r reply) outcome {
	if r.good() {
		return granted
	}
	words := reply{r.code, strings.TrimPrefix(r.said, a.s.abs(a.path))} // the path may contain any of them
	switch {
	case r.withdrawn() && a.last != nil:
		return inTheWay
	case r.withdrawn(), words.waitable():
		refusal := words.refusal()
		refusal.Reply = r.text()
		a.last = &HeldError{Path: a.path, Refusal: refusal}
		return inTheWay
	}
	a.last = fmt.Errorf("%w: %s", ErrRefused, r.text())
	return refused
}

// judgeByLooking is for servers whose reply is "Create directory operation failed" at best. A directory that is there is another client's lock.
func (a *acquisition) judgeByLooking(r reply) (outcome, reply) {
	if r.good() {
		a.unsure = false
		return granted, r
	}
	got, _, err := a.s.see(a.path)
	if err != nil {
		a.last = err
		return failed, r
	}
	if got.there {
		f := Refusal{Reply: r.text()}
		if age := time.Since(got.since); got.exact && age > 0 {
			f.Held = age
		}
		a.last = &HeldError{Path: a.path, Refusal: f}
		return inTheWay, r
	}
	a.unsure = false
	a.last = fmt.Errorf("%w: %s: the server said %s, though nothing is there", ErrRefused, a.path, r)
	return absent, r
}

// named is the lock's name in the 257, unless that is of another one: there is none in it, or its quotes are not doubled (pure-ftpd).
func (a *acquisition) named(r reply) string {
	asked := path.Clean(a.s.abs(a.path))
	if name := r.quotedName(); name != "" && path.Base(path.Clean(name)) == path.Base(asked) {
		return name
	}
	return asked
}

// doubtful adds to an error that the lock may be ours after all.
func (a *acquisition) doubtful(err error) error {
	if held, ok := errors.AsType[*HeldError](err); ok {
		held.Waited = time.Since(a.began)
	}
	if !a.unsure || errors.Is(err, ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w (%w: the reply to an MKD of ours was lost)", err, ErrUnknown)
}

// giveUp is the end of ctx: it leaves no lock behind, or returns ErrUnknown. has: the last reply was a grant.
func (a *acquisition) giveUp(ctx context.Context, has bool) error {
	cause := context.Cause(ctx)
	err := cause
	if errors.Is(cause, context.DeadlineExceeded) && a.last != nil {
		err = &because{a.last, []error{cause}}
	}
	if has || a.unsure {
		why := a.last
		work, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(a.e.Timeout, farewell))
		defer cancel()
		a.giveBack(work, has)
		a.last = why
	}
	return a.doubtful(err)
}

// giveBack releases a lock that was granted (has), or may have been. An MKD whose reply was lost is sent again: by the nonce ftplockd knows the
// job, which adopts its hold. If the outcome stays unknown, a.unsure is left.
func (a *acquisition) giveBack(ctx context.Context, has bool) {
	for ; ctx.Err() == nil; pause(ctx, 200*time.Millisecond) {
		if a.begin(ctx) != nil {
			return
		}
		result := failed
		if s, err := a.locker(ctx); err == nil {
			if a.s, result = s, granted; !has {
				result, _ = a.try(ctx, 0)
			}
			if result == granted {
				r, err := s.ask(ctx, "RMD "+a.path)
				a.unsure = err != nil || r.transient() || !r.good() && !s.knowsLocks()
				if err != nil {
					result = failed
				}
			}
		}
		a.end()
		if result != failed {
			return
		}
		has = false
	}
}

// take makes a Lock of a grant. The grant counts when the server has answered another command: ftplockd undoes a grant whose reply the client may not
// have received.
func (a *acquisition) take(r reply) (outcome, *Lock) {
	heard, err := a.s.confirm()
	l := newLock(a, a.named(r))
	if g, ok := r.grant(); ok && a.s.knowsLocks() && err == nil {
		if g.expires == 0 || now().Sub(a.sent) <= g.expires/10 {
			l.granted(g, a.sent, heard)
		} else { // the age began while the server let MKD wait
			err = l.renew(a.s)
		}
	}
	if err != nil {
		a.last, a.unsure = err, true
		return failed, nil
	}
	if a.o.Shared && !l.isShared(a.s) {
		l.lose(errReleased)
		a.last = fmt.Errorf("%w: %s: the server grants it to one holder alone, and it was to be shared", ErrRefused, l.path)
		if r, err := a.s.ask(context.Background(), "RMD "+a.path); err != nil || !r.good() {
			a.unsure = true
		}
		return refused, nil
	}
	if l.Token() == 0 {
		_ = l.takeMark(a.s) // a connection that is lost here is made again by keep
	}
	l.start()
	return granted, l
}
