package driver

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
)

// guessing slows down the guessing of passwords.
//
// It counts failed logins by address (of IPv6: by /64). The reply to a failure is delayed, each time for twice as long,
// and an address has one password looked at at a time. After too many failures the address is refused for minutes.
//
// It counts them by account, too: after failures a login from an address that the account has not logged in from before
// waits for a moment. That is all, so nobody can keep an account out by guessing its password.
//
// An account that has logged in from an address is counted apart from the others there, and is never refused: a job with
// a stale password does not keep out the rest of its machine. Whoever guesses from the account's own address can make it
// wait.
//
// Failures are forgiven one by one with time. What is remembered is bounded: the oldest is forgotten first. Nothing outlives
// the process.
type guessing struct {
	log   *slog.Logger
	delay time.Duration // of the reply to the first failure

	mu        sync.Mutex
	addresses tallies // by address
	accounts  tallies // by account
	familiar  tallies // by both: accounts that have logged in from an address
}

// subject is what failures are counted by.
type subject struct {
	account string
	address netip.Prefix
}

const (
	firstDelay    = 300 * time.Millisecond
	doublings     = 4                // how often the delay of a reply grows
	mostFailures  = 10               // of an address, before it is refused
	refusedFor    = 5 * time.Minute  // how long it is
	forgivenAfter = 30 * time.Second // for each failure
	mostThirds    = 3                // of the first delay: how long a login waits because of failures of its account
	mostTallies   = 10_000           // of each kind
	mostName      = 64               // bytes of an account's name that are told apart
)

// errRefused says that the address may not try for now.
var errRefused = errors.New("too many wrong passwords from this address")

// errGone says that the client did not wait for its turn.
var errGone = errors.New("the client has gone")

func newGuessing(log *slog.Logger) *guessing {
	return &guessing{log: log, delay: firstDelay}
}

// guess is one login under way. It ends with right, wrong or withdrawn.
type guess struct {
	all   *guessing
	from  subject
	known bool // the account has logged in from the address
	tally *tally
	began time.Time
	// failures are those that count against it.
	failures int
}

// begin waits until a password from that address may be looked at. It returns errRefused if it may not, errGone if the
// client has hung up meanwhile, or ctx's error.
func (g *guessing) begin(ctx context.Context, account string, from netip.Addr, gone func() bool) (*guess, error) {
	t := &guess{all: g, from: subject{account[:min(len(account), mostName)], control.NetworkOf(from)}}
	g.mu.Lock()
	now := time.Now()
	pause := time.Duration(0)
	if g.familiar.find(t.from) != nil {
		t.known = true
		t.tally = g.familiar.use(t.from)
	} else {
		t.tally = g.addresses.use(t.byAddress())
		if by := g.accounts.find(t.byAccount()); by != nil {
			pause = time.Duration(min(by.count(now), mostThirds)) * g.delay / 3
		}
	}
	g.mu.Unlock()

	err := sleep(ctx, pause)
	if err == nil {
		select {
		case t.tally.turn <- struct{}{}:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		t.leave()
		return nil, err
	}
	g.mu.Lock()
	t.began = time.Now()
	t.failures = t.tally.count(t.began)
	refused := t.began.Before(t.tally.refused)
	g.mu.Unlock()
	switch {
	case refused:
		err = errRefused
	case gone():
		err = errGone
	default:
		return t, nil
	}
	t.withdrawn()
	return nil, err
}

// right says that the password was right.
func (t *guess) right() {
	g := t.all
	g.mu.Lock()
	if !t.known {
		g.familiar.use(t.from)
		g.familiar.leave(t.from, true)
	}
	g.mu.Unlock()
	t.withdrawn()
}

// wrong says that it was not. It returns when the client may be told so; meanwhile nobody else from there has a turn.
func (t *guess) wrong(ctx context.Context) {
	g := t.all
	g.mu.Lock()
	now := time.Now()
	t.tally.add(now)
	failures := t.tally.count(now)
	refused := false
	if !t.known {
		g.accounts.use(t.byAccount()).add(now)
		g.accounts.leave(t.byAccount(), true)
		if refused = failures >= mostFailures; refused {
			t.tally.refused = now.Add(refusedFor)
		}
	}
	g.mu.Unlock()
	if refused {
		g.log.Warn("address refused", "remote", t.from.address.Addr().String(), "for", refusedFor)
	}
	// The time that a hash has taken, if one was made, is not to be seen.
	delay := g.delay << min(max(failures-1, 0), doublings)
	for now.Sub(t.began) > delay {
		delay += g.delay
	}
	_ = sleep(ctx, delay-now.Sub(t.began))
	t.withdrawn()
}

// withdrawn says that the password was not looked at.
func (t *guess) withdrawn() {
	<-t.tally.turn
	t.leave()
}

func (t *guess) leave() {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.known {
		t.all.familiar.leave(t.from, true)
		return
	}
	t.all.addresses.leave(t.byAddress(), t.tally.count(time.Now()) > 0)
}

func (t *guess) byAddress() subject { return subject{address: t.from.address} }
func (t *guess) byAccount() subject { return subject{account: t.from.account} }

// tally counts failures. It is guarded by guessing.mu, but for turn.
type tally struct {
	by       subject
	failures float64   // as of at
	at       time.Time // of the last one
	refused  time.Time // until then
	turn     chan struct{}
	users    int // if there are any it is not forgotten
}

// count is how many failures are not forgiven yet.
func (t *tally) count(now time.Time) int {
	return int(math.Ceil(max(0, t.failures-float64(now.Sub(t.at))/float64(forgivenAfter))))
}

func (t *tally) add(now time.Time) {
	t.failures = min(max(0, t.failures-float64(now.Sub(t.at))/float64(forgivenAfter))+1, mostFailures)
	t.at = now
}

// tallies remembers mostTallies of them. The zero value is ready for use.
type tallies struct {
	elements map[subject]*list.Element
	order    list.List // of *tally, the least recently used first
}

// find returns the tally of a subject, or nil.
func (s *tallies) find(by subject) *tally {
	if e, ok := s.elements[by]; ok {
		return e.Value.(*tally)
	}
	return nil
}

// use returns the tally of a subject, and keeps it until leave.
func (s *tallies) use(by subject) *tally {
	e, ok := s.elements[by]
	if !ok {
		if s.elements == nil {
			s.elements = make(map[subject]*list.Element)
		}
		e = s.order.PushBack(&tally{by: by, turn: make(chan struct{}, 1)})
		s.elements[by] = e
	}
	s.order.MoveToBack(e)
	t := e.Value.(*tally)
	t.users++
	return t
}

// leave ends a use. The tally goes if nobody uses it and there is nothing in it to keep, and so do the oldest ones if there
// are too many.
func (s *tallies) leave(by subject, keep bool) {
	e := s.elements[by]
	t := e.Value.(*tally)
	if t.users--; t.users == 0 && !keep {
		s.remove(e)
	}
	for e := s.order.Front(); e != nil && len(s.elements) > mostTallies; {
		next := e.Next()
		if e.Value.(*tally).users == 0 {
			s.remove(e)
		}
		e = next
	}
}

func (s *tallies) remove(e *list.Element) {
	delete(s.elements, e.Value.(*tally).by)
	s.order.Remove(e)
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
