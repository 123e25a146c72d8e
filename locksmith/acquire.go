package locksmith

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// Acquire takes the lock. It returns when the lock is held, when it was refused for good, when Wait is over (a *HeldError), or when ctx
// ends (its cause). A lock that was granted in a reply that was lost is found and kept, or given back; ErrUnknown says that this
// could not be done, for example since the server is gone: the lock may then stand until its age ends. Clearing up takes up to Timeout
// after the end of Wait or ctx.
//
// A connection that is lost while Acquire waits is made again, until Wait or ctx ends; the first one is tried once.
// ctx is not kept: a Lock lives until Release.
func Acquire(ctx context.Context, o Options) (*Lock, error) {
	e, err := o.Server.resolve()
	if err != nil {
		return nil, err
	}
	o.setDefaults()
	if o.Path == "" {
		return nil, fmt.Errorf("%w: no lock is named", ErrRefused)
	}
	a := &acquisition{o: o, e: e, began: time.Now()}
	if err := a.connect(ctx); err != nil {
		return nil, err
	}
	l, err := a.run(ctx)
	if err != nil && a.s != nil {
		a.s.leave(context.WithoutCancel(ctx))
	}
	return l, err
}

func (o *Options) setDefaults() {
	if o.Poll <= 0 {
		o.Poll = 3 * time.Second
	}
	if o.Keepalive <= 0 {
		o.Keepalive = 5 * time.Second
	}
	if o.Check <= 0 {
		o.Check = 300 * time.Millisecond
	}
	if o.Nonce == "" {
		o.Nonce = rand.Text()
	}
}

// slice is how long a server is asked to let one MKD wait: a connection that died silently is noticed so soon.
const slice = 20 * time.Second

// acquisition is one Acquire.
type acquisition struct {
	o     Options
	e     *endpoint
	began time.Time
	s     *session // nil: there is none at the moment

	last   error   // why there is no lock yet; nil: nothing was refused so far
	told   Refusal // what Waiting was called with last
	tells  bool    // Waiting was called
	unsure bool    // an MKD of ours may have been granted, or may still be
	absent int     // how often the server refused what is not there, in a row
}

// errWaitOver is the cause of the end of Options.Wait.
var errWaitOver = errors.New("the time to wait is over")

// outcome is what one MKD came to.
type outcome int

const (
	failed   outcome = iota // the connection was lost, the reply with it: unsure says whether there was one to lose
	granted                 // by the reply that comes with it
	inTheWay                // last says what is in the way
	refused                 // for good: last says why
	ended                   // the context ended, and this MKD is known to have come to nothing
)

func (a *acquisition) connect(ctx context.Context) error {
	s, err := connect(ctx, a.e)
	if err != nil {
		return err
	}
	if err := s.identify(ctx, a.o.Nonce); err != nil {
		s.drop()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	a.s = s
	return nil
}

func (a *acquisition) disconnect() {
	if a.s != nil {
		a.s.drop()
		a.s = nil
	}
}

// run tries until there is a result.
func (a *acquisition) run(ctx context.Context) (*Lock, error) {
	limited, cancel := ctx, context.CancelFunc(func() {})
	if a.o.Wait > 0 {
		limited, cancel = context.WithTimeoutCause(ctx, a.o.Wait, errWaitOver)
	}
	defer cancel()
	first := true
	for {
		seconds := 0
		if !first && a.absent == 0 && a.o.Wait >= 0 {
			seconds = a.seconds(limited)
		}
		began := time.Now()
		result, r := a.attempt(limited, seconds)
		switch result {
		case granted:
			if ctx.Err() != nil {
				return nil, a.giveUp(ctx, true)
			}
			return a.take(ctx, r)
		case refused:
			return nil, a.last
		case inTheWay:
			if a.o.Wait < 0 && a.absent == 0 {
				return a.conclude(ctx)
			}
			a.tell()
			waited := time.Since(began) >= time.Duration(seconds)*time.Second/2
			switch {
			case a.absent > 0: // it may have been given back a moment ago
				pause(limited, min(a.o.Poll, 100*time.Millisecond))
			case a.s.waits && (first || waited): // the queue is where to wait
			default:
				pause(limited, a.o.Poll)
			}
			first = false
		case failed:
			a.disconnect()
			if a.o.Wait < 0 {
				return a.conclude(ctx)
			}
			pause(limited, min(a.o.Poll, time.Second))
		}
		if limited.Err() != nil {
			return a.conclude(ctx)
		}
	}
}

// seconds is how long the next MKD waits at the server: as long as is left, and a little more, since the end of Wait is ours to say.
func (a *acquisition) seconds(ctx context.Context) int {
	left := slice
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	return max(1, int((left+time.Second-1)/time.Second))
}

// attempt says MKD once. The reply is the 257.
func (a *acquisition) attempt(ctx context.Context, seconds int) (outcome, reply) {
	if a.s == nil {
		if err := a.connect(ctx); err != nil {
			if errors.Is(err, ErrLogin) || errors.Is(err, ErrTLS) || errors.Is(err, ErrRefused) {
				a.last = a.doubtful(err)
				return refused, reply{}
			}
			return failed, reply{}
		}
	}
	if err := a.s.waitFor(ctx, seconds); err != nil {
		return failed, reply{}
	}
	if !a.s.waits {
		seconds = 0
	}
	if err := a.s.send("MKD " + a.o.Path); err != nil {
		a.unsure = a.unsure || a.s.sent
		if errors.Is(err, ErrRefused) {
			a.last = err
			return refused, reply{}
		}
		return failed, reply{}
	}
	r, err := a.s.await(ctx, time.Duration(seconds)*time.Second)
	if errors.Is(err, errInterrupted) {
		r, err = a.withdraw(seconds > 0)
	}
	if err != nil {
		a.unsure = true
		return failed, reply{}
	}
	return a.judge(context.WithoutCancel(ctx), r)
}

// withdraw ends an MKD whose caller waits no longer, and returns its reply. Any command ends the waiting on ftplockd; other
// servers answer soon anyhow. The lock may have been granted in the same moment.
func (a *acquisition) withdraw(waits bool) (reply, error) {
	a.s.hurry(min(a.e.Timeout, patience))
	defer a.s.hurry(0)
	if waits {
		conn, err := a.s.arm(a.e.Timeout)
		if err != nil {
			return reply{}, err
		}
		if _, err := conn.Write([]byte("NOOP\r\n")); err != nil {
			return reply{}, a.s.fail("sending a command", err)
		}
	}
	r, err := a.s.await(context.Background(), 0)
	if err == nil && waits {
		_, err = a.s.await(context.Background(), 0) // of NOOP
		if err != nil && r.code != 257 {
			return r, nil // what MKD came to is known
		}
	}
	return r, err
}

// judge says what a reply to MKD means.
func (a *acquisition) judge(ctx context.Context, r reply) (outcome, reply) {
	_, locked := r.grant()
	switch {
	case r.good() && a.s.nonce && !locked:
		return a.undo(ctx, r)
	case r.good():
		a.unsure = false
		return granted, r
	case r.transient() && a.s.nonce: // "cannot tell whether that happened": as if the reply had been lost
		a.unsure = true
		a.last = fmt.Errorf("%w: %s", ErrUnknown, r.text())
		return failed, r
	case a.s.nonce:
		a.unsure = false
		return a.judgeRefusal(r)
	case r.unknown() || r.code == 530 || r.code == 532:
		a.last = fmt.Errorf("%w: %s: the server said %s", ErrRefused, a.o.Path, r)
		return refused, r
	}
	return a.judgeByLooking(ctx, r)
}

// undo removes what MKD has made on a server that knows locks, and is none: nobody else would be kept from anything by it.
func (a *acquisition) undo(ctx context.Context, r reply) (outcome, reply) {
	a.unsure = false
	a.last = fmt.Errorf("%w: no rule of the server makes %s a lock", ErrRefused, a.named(r))
	if back, err := a.s.ask(ctx, "RMD "+a.o.Path); err != nil || !back.good() {
		a.last = fmt.Errorf("%w; the directory that was made stands", a.last)
	}
	return refused, r
}

// judgeRefusal is for a server whose words are known: ftplockd.
func (a *acquisition) judgeRefusal(r reply) (outcome, reply) {
	if r.waitable() {
		a.last = &HeldError{Path: a.o.Path, Waited: time.Since(a.began), Refusal: r.refusal()}
		return inTheWay, r
	}
	if r.withdrawn() {
		if a.last == nil {
			a.last = &HeldError{Path: a.o.Path, Refusal: Refusal{Reply: r.text()}}
		}
		return ended, r
	}
	a.last = fmt.Errorf("%w: %s", ErrRefused, r.text())
	return refused, r
}

// judgeByLooking is for servers that say no more than "Create directory operation failed". A directory that is there is somebody's lock. One
// that is not there may have been removed meanwhile; refused again and again, it cannot be made.
func (a *acquisition) judgeByLooking(ctx context.Context, r reply) (outcome, reply) {
	const enough = 3
	for _, how := range looks(a.s) {
		m, is, err := how.look(ctx, a.s, a.o.Path)
		if err != nil {
			return failed, r
		}
		if is == present {
			a.absent = 0
			f := r.refusal()
			if age := time.Since(m.since); !m.since.IsZero() && age > 0 {
				f.Held = age
			}
			a.last = &HeldError{Path: a.o.Path, Waited: time.Since(a.began), Refusal: f}
			return inTheWay, r
		}
	}
	a.unsure = false
	a.absent++
	a.last = fmt.Errorf("%w: %s: the server said %s, though nothing is there", ErrRefused, a.o.Path, r)
	if a.absent >= enough {
		return refused, r
	}
	return inTheWay, r
}

// tell calls Waiting if there is something new.
func (a *acquisition) tell() {
	held, ok := errors.AsType[*HeldError](a.last)
	if !ok || a.o.Waiting == nil {
		return
	}
	f := held.Refusal
	same := f.Holder == a.told.Holder && f.At == a.told.At && f.Of == a.told.Of && (f.Holder != "" || f.Reply == a.told.Reply)
	if a.tells && same {
		return
	}
	a.told, a.tells = f, true
	a.o.Waiting(f)
}
