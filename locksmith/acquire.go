package locksmith

import (
	"context"
	"errors"
	"fmt"
	random "math/rand/v2"
	"net"
	"os"
	"strings"
	"time"
)

const (
	// waitAtServer is the time that one MKD waits at the server.
	waitAtServer = 20 * time.Second
	// holderTimeout limits the last request for the holder, after a deadline has ended the wait.
	holderTimeout = time.Second
)

// acquisition is one Acquire.
type acquisition struct {
	*endpoint
	ctx          context.Context // of the caller
	o            Options
	name         string
	once         bool
	s            *session  // nil before the first connection; it may be broken
	last         error     // why there is no lock yet
	answered     time.Time // the time of last
	maybeGranted bool      // an MKD may have been granted
}

func acquire(ctx context.Context, c Config, name string, o Options, once bool) (*Lock, error) {
	if name == "" {
		return nil, fmt.Errorf("%w: no lock is named", ErrRefused)
	}
	e, err := c.resolve()
	if err != nil {
		return nil, err
	}
	e.maxAge, e.note = o.MaxAge, cleanNote(o.Note)
	ctx, cancel := o.limit(ctx)
	defer cancel()
	a := &acquisition{endpoint: e, ctx: ctx, o: o, name: name, once: once}
	l, err := a.run(ctx)
	if err != nil && a.s != nil {
		a.s.leave(ctx)
	}
	return l, err
}

// run tries until it has the lock or a permanent error.
func (a *acquisition) run(ctx context.Context) (*Lock, error) {
	for wait := time.Duration(0); ; {
		began := time.Now()
		l, err := a.try(ctx, wait)
		if err == nil && ctx.Err() != nil {
			a.giveBack(l)
			return nil, a.giveUp()
		}
		if err == nil {
			return l, nil
		}
		_, isHeld := errors.AsType[*HeldError](err)
		if isHeld || a.last == nil || !errors.Is(err, ErrUnreachable) {
			a.last, a.answered = err, time.Now() // report the holder rather than a later failure of the server
		}
		switch {
		case ctx.Err() != nil:
			return nil, a.giveUp()
		case a.once && (isHeld || !a.maybeGranted), !isHeld && !isPassing(err):
			return nil, a.withUnknown(err)
		case a.once: // find out whether the server has granted the only try
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.Timeout)
			defer cancel()
		}
		if a.o.OnWait != nil {
			a.o.OnWait(a.matchUnknown(err))
		}
		queues := isHeld && a.s.can("SITE", "WAIT")
		switch {
		case !isHeld:
			pause(ctx, min(a.Poll, time.Second))
			wait = 0 // so that OnWait gets the holder before a long wait at the server
		case !queues:
			pause(ctx, a.Poll)
			wait = 0
		default:
			if wait > 0 && time.Since(began) < wait/2 { // MKD has not waited at the server
				pause(ctx, a.Poll)
			}
			wait = waitAtServer
		}
		if ctx.Err() != nil {
			return nil, a.giveUp()
		}
	}
}

// giveBack releases a lock that was granted at the end of ctx. The server has closeTimeout; giveBack waits for afterEnd.
func (a *acquisition) giveBack(l *Lock) {
	released := make(chan struct{})
	go func() {
		defer close(released)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), closeTimeout)
		defer cancel()
		_ = l.Release(ctx)
	}()
	select {
	case <-released:
	case <-time.After(afterEnd):
	}
}

// isPassing reports whether another try may succeed after an error, other than a *HeldError.
func isPassing(err error) bool {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return false
	}
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrUnknown)
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

// connect connects if there is no connection.
func (a *acquisition) connect(ctx context.Context) error {
	if a.s != nil && a.s.broken() == nil {
		return nil
	}
	s, err := connect(ctx, a.endpoint)
	if err != nil {
		return err
	}
	if a.s != nil {
		a.s.drop()
	}
	a.s = s
	return nil
}

// errNoHolder is part of the error for a refused MKD of a lock that has no holder.
var errNoHolder = errors.New("although no client holds it")

// try sends MKD, and returns the lock or an error. If MKD is refused although no client holds the lock, the lock
// may have been released meanwhile: try sends MKD again, three times in all, or for three seconds on a server that cannot wait.
func (a *acquisition) try(ctx context.Context, wait time.Duration) (*Lock, error) {
	if err := a.connect(ctx); err != nil {
		return nil, err
	}
	queues, began := a.s.can("SITE", "WAIT"), time.Now()
	for tries := 1; ; tries++ {
		l, err := a.mkdir(ctx, a.s, wait)
		if !errors.Is(err, errNoHolder) || ctx.Err() != nil || tries >= 3 && (queues || a.once || time.Since(began) >= 3*time.Second) {
			return l, err
		}
		pause(ctx, min(a.Poll, 100*time.Millisecond))
	}
}

// mkdir sends MKD once and then requests the facts of the lock, because the text of a reply is for people. Ftplockd undoes a grant whose reply the
// client may not have received, so the grant is final when the server has answered that request.
func (a *acquisition) mkdir(ctx context.Context, s *session, wait time.Duration) (*Lock, error) {
	late, stop := linger(ctx, afterEnd)
	defer stop()
	if err := s.waitFor(late, wait); err != nil {
		return nil, err
	}
	if err := s.broken(); err != nil {
		return nil, err
	}
	var r reply
	var err error
	if wait > 0 { // when ctx ends, the end of the connection ends the wait
		s.control.setLimit(s.Timeout + wait)
		r, err = s.ask(ctx, "MKD "+a.name)
		s.control.setLimit(s.Timeout)
	} else {
		r, err = a.askOnce(late, s)
	}
	switch {
	case errors.Is(err, ErrRefused):
		return nil, err
	case err != nil:
		a.maybeGranted = wait == 0 || ctx.Err() == nil // the server undoes a grant to a client that withdrew its MKD
		return nil, err
	case r.transient() && s.hasFacts(): // the grant is unconfirmed, as after a lost reply
		a.maybeGranted = true
		return nil, s.lost(fmt.Errorf("%w: %s", ErrUnknown, r.text()))
	}
	checkCtx, cancel := context.WithTimeoutCause(late, checkTimeout, os.ErrDeadlineExceeded)
	defer cancel()
	sent := now()
	if !s.hasFacts() && r.positive() {
		a.maybeGranted = false
		return a.take(checkCtx, s, Holder{own: true}, s.abs(a.name), sent)
	}
	i, err := s.status(checkCtx, a.name)
	if err != nil {
		a.maybeGranted = a.maybeGranted || r.positive()
		return nil, err
	}
	if s.hasFacts() {
		a.maybeGranted = false
	}
	return a.judge(checkCtx, s, r, i, sent)
}

// askOnce sends an MKD that does not wait at the server. If ctx ends before the reply, a goroutine removes a directory that MKD makes within closeTimeout:
// a server without grace would keep it.
func (a *acquisition) askOnce(ctx context.Context, s *session) (reply, error) {
	type result struct {
		r   reply
		err error
	}
	late, stop := linger(ctx, closeTimeout)
	replied, left := make(chan result), make(chan struct{})
	go func() {
		defer stop()
		r, err := s.ask(late, "MKD "+a.name)
		select {
		case replied <- result{r, err}:
			return
		case <-left:
		}
		if err == nil && r.positive() {
			_, _ = s.ask(late, "RMD "+a.name)
		}
		s.leave(late)
	}()
	select {
	case got := <-replied:
		return got.r, got.err
	case <-ctx.Done():
		close(left)
		a.s = nil
		return reply{}, s.fail("", context.Cause(ctx))
	}
}

// judge returns the result of MKD, by the facts after it.
func (a *acquisition) judge(ctx context.Context, s *session, r reply, i Status, sent time.Time) (*Lock, error) {
	own, isOwn := i.ownHold()
	switch {
	case r.positive() && isOwn:
		return a.take(ctx, s, own, i.Path, sent)
	case r.positive() && !i.Held: // an ordinary directory, or a lock that was lost at once
		back, err := s.ask(ctx, "RMD "+a.name)
		if err == nil && back.positive() {
			err = fmt.Errorf("%w: no rule of the server makes %s a lock", ErrRefused, i.Path)
		} else if err == nil {
			err = fmt.Errorf("%w: %s", ErrLost, back.text())
		}
		return nil, err
	case i.refused && !isOwn:
		return nil, fmt.Errorf("%w: %s", ErrRefused, r.text())
	case i.busy:
		held := i.heldError(a.name)
		if s.hasFacts() && !i.Held {
			held.Reason = r.text()
		}
		return nil, held
	}
	a.maybeGranted = false
	return nil, fmt.Errorf("%w: %s: the server replied %s, %w", ErrRefused, a.name, r, errNoHolder)
}

// take returns the Lock of a grant. If the grant is not as the options require, take releases it.
func (a *acquisition) take(ctx context.Context, s *session, h Holder, path string, sent time.Time) (*Lock, error) {
	l := newLock(a.endpoint, s, a.name, a.o)
	l.path = path
	l.confirmed(h, sent)
	unfit := l.lease.tooShort()
	if a.o.Shared && !h.Shared {
		unfit = "the request was for a shared lock, but the server grants it to one holder alone"
	}
	if unfit != "" {
		r, err := s.ask(ctx, "RMD "+a.name)
		a.maybeGranted = err != nil || !r.positive()
		l.end(ErrReleased)
		return nil, fmt.Errorf("%w: %s: %s", ErrRefused, path, unfit)
	}
	if h.Token == 0 {
		l.directory, _ = s.describe(ctx, a.name, "") // keep connects again if this loses the connection
	}
	l.start()
	a.s = nil
	return l, nil
}

// matchUnknown returns an error that matches ErrUnknown if the lock may have been granted. Its text stays, because another try follows.
func (a *acquisition) matchUnknown(err error) error {
	if !a.maybeGranted {
		return err
	}
	return &causedError{err, []error{ErrUnknown}}
}

// withUnknown adds ErrUnknown to an error if the lock may have been granted.
func (a *acquisition) withUnknown(err error) error {
	if !a.maybeGranted || errors.Is(err, ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w (%w: the reply to MKD was lost)", err, ErrUnknown)
}

// giveUp returns the error of an acquisition whose time is over.
func (a *acquisition) giveUp() error {
	if a.ctx.Err() == nil { // TryAcquire could not find out whether it has the lock
		return a.withUnknown(a.last)
	}
	if held, ok := errors.AsType[*HeldError](a.last); ok {
		a.last = a.newestHolder(*held)
	}
	return a.withUnknown(waitEnded(a.ctx, a.name, a.last))
}

// waitEnded returns the error of a wait that ctx has ended: why there was no lock, and the cause of ctx unless that is a deadline.
func waitEnded(ctx context.Context, name string, why error) error {
	cause := context.Cause(ctx)
	if why == nil {
		why = cause
	}
	text := why.Error()
	if !strings.Contains(text, name) {
		text = name + ": " + text
	}
	if !errors.Is(cause, context.DeadlineExceeded) && !strings.Contains(text, cause.Error()) {
		text += "; the wait ended: " + cause.Error()
	}
	return &causedError{errors.New(text), []error{why, ended(ctx)}}
}

// newestHolder returns the present holder after a deadline, or the last known holder and the age of that answer.
func (a *acquisition) newestHolder(last HeldError) error {
	if last.Age = time.Since(a.answered); last.Age < time.Second || !errors.Is(a.ctx.Err(), context.DeadlineExceeded) {
		return &last
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), holderTimeout)
	defer cancel()
	if a.connect(ctx) != nil {
		return &last
	}
	i, err := a.s.status(ctx, a.name)
	if err != nil || !i.busy || a.s.hasFacts() && !i.Held || len(i.Holders) > 0 && i.Holders[0].Mine { // Mine: a grant that the server undoes
		return &last
	}
	return i.heldError(a.name)
}
