package locksmith

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	random "math/rand/v2"
	"net"
	"path"
	"strings"
	"time"
)

// Acquire takes the lock, and waits for it until ctx ends.
//
// Errors match the sentinels of this package. An error at the end of ctx also matches the cause of ctx: a *HeldError, if another client
// holds the lock, or ErrUnreachable. ErrUnknown says that a lock may have been granted in a reply that was lost, and could neither be found nor
// given back.
//
// If ctx has a deadline, a server that cannot be reached is tried until then; otherwise the first connection is tried
// once, and one that is lost later is made again until ctx ends. With TryOnce a reply that was lost is cleared up within the
// server's Timeout. After the end of ctx, clearing up takes two seconds at most.
//
// ctx is not kept: a Lock lives until Release.
func Acquire(ctx context.Context, o Options) (*Lock, error) {
	e, err := o.Server.resolve()
	if err != nil {
		return nil, err
	}
	if o.Path == "" {
		return nil, fmt.Errorf("%w: no lock is named", ErrRefused)
	}
	if o.Poll <= 0 {
		o.Poll = defaultPoll
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.Nonce == "" {
		o.Nonce = rand.Text()
	}
	a := &acquisition{o: o, e: e, began: time.Now()}
	l, err := a.run(ctx)
	if err != nil && a.s != nil {
		a.s.leave()
	}
	return l, err
}

// acquisition is one Acquire.
type acquisition struct {
	o     Options
	e     *endpoint
	began time.Time
	s     *session  // nil: there is none at the moment
	sent  time.Time // before the last MKD was said

	last   error // why there is no lock yet; nil: nothing was refused so far
	unsure bool  // an MKD of ours may have been granted, or may still be
}

// outcome is what one MKD came to.
type outcome int

const (
	failed   outcome = iota // the connection was not made, or was lost with the reply: last says why
	granted                 // by the reply that comes with it
	inTheWay                // last says what is in the way
	absent                  // another server refused it, though nothing is there
	refused                 // for good: last says why
)

// defaultPoll is the mean pause between two tries.
const defaultPoll = 3 * time.Second

// defaultGrace is how long a lock outlives its connection, where the server can end it then.
const defaultGrace = 15 * time.Second

// slice is how long a server is asked to let one MKD wait: a connection that died silently is noticed so soon.
const slice = 20 * time.Second

// run tries until there is a result.
func (a *acquisition) run(ctx context.Context) (*Lock, error) {
	_, timed := ctx.Deadline()
	seconds := 0 // how long the next MKD waits at the server
	for tries := 0; ; tries++ {
		began := time.Now()
		result, r := a.attempt(ctx, seconds)
		if result == granted && ctx.Err() == nil {
			heard, err := a.s.confirm(context.WithoutCancel(ctx))
			if err == nil {
				return a.take(ctx, r, heard)
			}
			result, a.last, a.unsure = failed, err, true
		}
		switch {
		case result == refused:
			return nil, a.doubtful(a.last)
		case result == granted, ctx.Err() != nil:
			return nil, a.giveUp(ctx, result == granted)
		case result == failed:
			never := a.s == nil && tries == 0
			a.disconnect()
			switch {
			case a.o.TryOnce && !a.unsure, never && (!timed || isUnknownHost(a.last)):
				return nil, a.doubtful(a.last)
			case a.o.TryOnce && tries == 0: // to find out what became of the only try
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, a.e.Timeout)
				defer cancel()
			}
			pause(ctx, min(a.o.Poll, time.Second))
		case a.o.TryOnce:
			return nil, a.doubtful(a.last)
		default:
			if held, ok := errors.AsType[*HeldError](a.last); ok && a.o.Waiting != nil {
				a.o.Waiting(held.Refusal)
			}
			waits := a.s.can("SITE", "WAIT")
			if !waits || seconds > 0 && time.Since(began) < slice/2 { // else the queue is where to wait
				pause(ctx, a.o.Poll)
			}
			if waits {
				seconds = int(slice / time.Second)
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

func (a *acquisition) disconnect() {
	if a.s != nil {
		a.s.drop()
		a.s = nil
	}
}

// attempt connects if need be and says MKD. The reply is the 257. What is refused though nothing is there may have been given back
// between the two looks; refused again and again for some seconds, it cannot be made.
func (a *acquisition) attempt(ctx context.Context, seconds int) (outcome, reply) {
	if a.s == nil {
		s, err := join(ctx, a.e, a.o)
		if err != nil {
			if _, held := errors.AsType[*HeldError](a.last); !held || !errors.Is(err, ErrUnreachable) {
				a.last = err
			}
			if errors.Is(err, ErrUnreachable) {
				return failed, reply{}
			}
			return refused, reply{}
		}
		a.s = s
	}
	began := time.Now()
	for tries := 1; ; tries++ {
		result, r := a.try(ctx, seconds)
		switch {
		case result != absent, ctx.Err() != nil:
			return result, r
		case tries >= 3 && (a.o.TryOnce || time.Since(began) >= 3*time.Second):
			return refused, r
		}
		pause(ctx, min(a.o.Poll, 100*time.Millisecond))
	}
}

// try says MKD once.
func (a *acquisition) try(ctx context.Context, seconds int) (outcome, reply) {
	r, err := a.mkdir(ctx, seconds)
	switch {
	case errors.Is(err, ErrRefused):
		a.last = err
		return refused, r
	case err != nil:
		if a.last == nil {
			a.last = err
		}
		return failed, r
	}
	return a.judge(r)
}

// mkdir says MKD, and ends its waiting when ctx ends: on ftplockd any other command does that. Other servers answer soon anyhow. The
// lock may have been granted in the same moment.
func (a *acquisition) mkdir(ctx context.Context, seconds int) (reply, error) {
	s := a.s
	if err := s.waitFor(ctx, seconds); err != nil {
		return reply{}, err
	}
	s.link.wait(s.Timeout + time.Duration(seconds)*time.Second)
	defer s.link.wait(s.Timeout)
	a.sent = now()
	id, err := s.send("MKD " + a.o.Path)
	if err != nil {
		a.unsure = a.unsure || !errors.Is(err, ErrRefused)
		return reply{}, err
	}
	var noop uint
	var nerr error
	sent := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(sent)
		if seconds > 0 {
			noop, nerr = s.send("NOOP")
		}
		s.link.hurry(farewell)
	})
	r, err := s.receive(id)
	if !stop() {
		<-sent
		if err == nil && seconds > 0 && nerr == nil {
			_, _ = s.receive(noop)
		}
		s.link.hurry(0)
	}
	if err == nil {
		r, err = s.whole(ctx, a.o.Path, r)
	}
	a.unsure = a.unsure || err != nil
	return r, err
}

// judge says what a reply to MKD means.
func (a *acquisition) judge(r reply) (outcome, reply) {
	knows := a.s.knowsLocks()
	_, locked := r.grant()
	switch {
	case r.good() && knows && !locked:
		return a.undo(r)
	case r.good():
		a.unsure = false
		return granted, r
	case r.transient() && knows: // "cannot tell whether that happened": as if the reply had been lost
		a.unsure = true
		a.last = fmt.Errorf("%w: %s", ErrUnknown, r.text())
		return failed, r
	case knows:
		a.unsure = false
		return a.judgeRefusal(r)
	}
	return a.judgeByLooking(r)
}

// undo removes what MKD has made where ftplockd has no such lock: nobody else would be kept from anything by it.
func (a *acquisition) undo(r reply) (outcome, reply) {
	a.unsure = false
	a.last = fmt.Errorf("%w: no rule of the server makes %s a lock", ErrRefused, a.named(r))
	if back, err := a.s.ask(context.Background(), "RMD "+a.o.Path); err != nil || !back.good() {
		a.last = fmt.Errorf("%w; the directory that was made stands", a.last)
	}
	return refused, r
}

// judgeRefusal is for ftplockd, whose words are known.
func (a *acquisition) judgeRefusal(r reply) (outcome, reply) {
	words := reply{r.code, strings.TrimPrefix(r.said, a.s.abs(a.o.Path))} // the path may contain any of them
	switch {
	case r.withdrawn() && a.last != nil:
		return inTheWay, r
	case r.withdrawn(), words.waitable():
		refusal := words.refusal()
		refusal.Reply = r.text()
		a.last = &HeldError{Path: a.o.Path, Refusal: refusal}
		return inTheWay, r
	}
	a.last = fmt.Errorf("%w: %s", ErrRefused, r.text())
	return refused, r
}

// judgeByLooking is for servers that say no more than "Create directory operation failed". A directory that is there is somebody's lock.
func (a *acquisition) judgeByLooking(r reply) (outcome, reply) {
	got, _, err := a.s.see(a.o.Path)
	if err != nil {
		a.last = err
		return failed, r
	}
	if got.there {
		f := Refusal{Reply: r.text()}
		if age := time.Since(got.since); got.exact && age > 0 {
			f.Held = age
		}
		a.last = &HeldError{Path: a.o.Path, Refusal: f}
		return inTheWay, r
	}
	a.unsure = false
	a.last = fmt.Errorf("%w: %s: the server said %s, though nothing is there", ErrRefused, a.o.Path, r)
	return absent, r
}

// named is the lock's name in the 257, unless that is of another one: there is none in it, or its quotes are not doubled (pure-ftpd).
func (a *acquisition) named(r reply) string {
	asked := path.Clean(a.s.abs(a.o.Path))
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

// giveUp is the end of ctx: it leaves no lock behind, or says that it cannot tell. has: the last reply was a grant.
func (a *acquisition) giveUp(ctx context.Context, has bool) error {
	cause := context.Cause(ctx)
	err := cause
	if errors.Is(cause, context.DeadlineExceeded) && a.last != nil {
		err = &because{a.last, []error{cause}}
	}
	if has || a.unsure {
		work, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(a.e.Timeout, farewell))
		defer cancel()
		a.giveBack(work, has)
	}
	return a.doubtful(err)
}

// giveBack gives back what was granted (has), or may have been. What became of an MKD whose reply was lost is found out by saying it
// again: ftplockd knows our nonce and has us adopt what we have. If it cannot tell, it leaves a.unsure.
func (a *acquisition) giveBack(ctx context.Context, has bool) {
	why := a.last
	defer func() { a.last = why }()
	for ; ; pause(ctx, 200*time.Millisecond) {
		result := granted
		if !has {
			result, _ = a.attempt(ctx, 0)
		}
		if result == granted {
			r, err := a.s.ask(ctx, "RMD "+a.o.Path)
			a.unsure = err != nil || r.transient() || !r.good() && !a.s.knowsLocks()
			if err != nil {
				result = failed
			}
		}
		if result != failed || ctx.Err() != nil {
			return
		}
		a.disconnect()
		has = false
	}
}

// take makes a Lock of a grant; heard is when the last command was sent that the server answered.
func (a *acquisition) take(ctx context.Context, r reply, heard time.Time) (*Lock, error) {
	ctx = context.WithoutCancel(ctx)
	l := newLock(a, a.named(r))
	if a.s.knowsLocks() {
		g, _ := r.grant()
		if g.expires > 0 && now().Sub(a.sent) > g.expires/10 { // the age began while the server let MKD wait
			if err := l.renew(a.s); err != nil {
				a.giveBack(ctx, true)
				return nil, a.doubtful(err)
			}
		} else {
			l.granted(g, a.sent, heard)
		}
	}
	if a.o.Shared && !l.shared(ctx) {
		a.last = fmt.Errorf("%w: %s: the server grants it to one holder alone, and it was to be shared", ErrRefused, l.path)
		a.giveBack(ctx, true)
		return nil, a.doubtful(a.last)
	}
	if l.Token() == 0 {
		_ = l.takeMark(a.s) // a connection that is lost here is made again by keep
	}
	l.start()
	return l, nil
}
