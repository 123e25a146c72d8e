package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/ftplockd/ftplockd/locksmith"
)

// releaseTime bounds how long giving a lock back may take at the end.
const releaseTime = 10 * time.Second

// slack is how much longer than --timeout a server may take to say that the time is over, and who has the lock.
const slack = 500 * time.Millisecond

// errNoAnswer is why the waiting ended when a server is silent.
var errNoAnswer = fmt.Errorf("%w within the time", locksmith.ErrUnreachable)

// acquire takes the lock of a target, and shows on a terminal who is in the way. Its errors have a status.
func acquire(ctx context.Context, t *target) (*locksmith.Lock, error) {
	if err := t.needLock(); err != nil {
		return nil, err
	}
	if err := t.needOther(); err != nil {
		return nil, err
	}
	p := newProgress(t)
	defer p.done()
	o := t.options
	if !t.until.IsZero() {
		o.Wait = max(time.Millisecond, time.Until(t.until)) // the password took some of it
	}
	o.Waiting = p.waiting
	if o.Wait > 0 {
		// Wait is for a lock that is held; a server that does not answer is to end in that time, too.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Wait+slack, errNoAnswer)
		defer cancel()
	}
	lock, err := locksmith.Acquire(ctx, o)
	if errors.Is(err, errNoAnswer) {
		if last, ok := p.lastRefusal(); ok {
			err = &locksmith.HeldError{Path: o.Path, Waited: o.Wait, Refusal: last}
		}
	}
	return lock, classify(err, t)
}

// release gives a lock back at the end, and says what went wrong before or with it.
func release(lock *locksmith.Lock, t *target) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	return classify(lock.Release(ctx), t)
}

// progress says on a terminal who has the lock, and nothing elsewhere.
type progress struct {
	out   *os.File // nil: it is no terminal
	where string

	mu    sync.Mutex
	last  locksmith.Refusal
	any   bool
	shown bool
}

func newProgress(t *target) *progress {
	p := &progress{where: t.where()}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		p.out = os.Stderr
	}
	return p
}

// waiting is locksmith.Options.Waiting.
func (p *progress) waiting(r locksmith.Refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.any = r, true
	if p.out != nil && hasRoom(p.out) {
		p.shown = true
		fmt.Fprintf(p.out, "\r\x1b[Kwaiting for %s: %s", p.where, oneLine(describe(r, time.Now())))
	}
}

// done takes the line away: what comes next is somebody else's.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown && hasRoom(p.out) {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func (p *progress) lastRefusal() (locksmith.Refusal, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.any
}

// describe says who has a lock since when, in words that stay true while they are shown.
func describe(r locksmith.Refusal, now time.Time) string {
	if r.Holder == "" {
		return r.Reply
	}
	text := "held by " + r.Holder + " since " + now.Add(-r.Held).Format("15:04:05")
	if r.At > 0 {
		text += fmt.Sprintf(", place %d of %d", r.At, r.Of)
	}
	return text
}
