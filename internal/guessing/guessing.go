// Package guessing slows down the guessing of passwords. Its type is [Limiter], with one method, [Limiter.Try].
//
// It counts wrong passwords by network (one IPv4 address, or an IPv6 /64). It delays the reply to each wrong password, twice as
// long as the one before, and lets a network try one password at a time. After ten it refuses the network for five minutes.
//
// An account that has logged in from a network has a count of its own there, and is never refused: a job with a stale password
// does not keep out the other accounts of its machine. Failures in other networks do not count, so a stranger cannot keep an
// account out; a client in the account's own network can delay its logins.
//
// One wrong password is forgiven every thirty seconds. The memory is bounded: at 10,000 networks the counts without a login under way
// are forgotten, and so at 10,000 accounts. Nothing survives a restart.
package guessing

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"sync"
	"time"
)

const (
	// FirstDelay is the delay of the reply to the first wrong password.
	FirstDelay = 300 * time.Millisecond

	doublings     = 4                // how often the delay doubles
	mostFailures  = 10               // of a network before it is refused
	refusedFor    = 5 * time.Minute  // how long it is refused
	forgivenAfter = 30 * time.Second // for each failure
	mostTallies   = 10_000           // of a memory
	mostName      = 64               // compared bytes of an account's name
)

var (
	// ErrWrong is the error of a check for a wrong password.
	ErrWrong = errors.New("login incorrect")
	// ErrRefused is returned while a network is refused.
	ErrRefused = errors.New("too many wrong passwords from this address")
	// ErrGone is returned if the client hung up before its turn.
	ErrGone = errors.New("the client has gone")
)

// Limiter counts wrong passwords. Use New. Several goroutines may use it.
type Limiter struct {
	ctx   context.Context
	log   *slog.Logger
	delay time.Duration

	mu        sync.Mutex
	strangers memory // by network
	familiar  memory // by network and account: those that have logged in
}

// New returns a Limiter with the given first delay, usually FirstDelay. All delays end with ctx.
func New(ctx context.Context, log *slog.Logger, delay time.Duration) *Limiter {
	return &Limiter{ctx: ctx, log: log, delay: delay}
}

// Try calls check when it is the client's turn. It returns the error of check; it counts and delays ErrWrong. Without a call of check it returns ErrRefused, ErrGone, or the error of ctx.
func (l *Limiter) Try(ctx context.Context, account string, from netip.Prefix, gone func() bool, check func() error) error {
	client := subject{account[:min(len(account), mostName)], from}
	t, known := l.begin(client)
	defer l.leave(t)
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	began := time.Now()
	l.mu.Lock()
	refused := began.Before(t.refused)
	l.mu.Unlock()
	switch {
	case refused:
		return ErrRefused
	case gone():
		return ErrGone
	}
	err := check()
	switch {
	case err == nil:
		l.mu.Lock()
		l.familiar.get(client)
		l.mu.Unlock()
	case errors.Is(err, ErrWrong):
		// The delay hides whether a hash was computed.
		delay := l.failed(t, !known, from)
		for unit := l.delay; time.Since(began) > delay; {
			delay += unit
		}
		sleep(l.ctx, delay-time.Since(began))
	}
	return err
}

// begin returns the tally of a client, and whether its account has logged in from its network before.
func (l *Limiter) begin(client subject) (t *tally, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t = l.familiar[client]
	if known = t != nil; !known {
		t = l.strangers.get(subject{network: client.network})
	}
	t.users++
	return t, known
}

func (l *Limiter) leave(t *tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.users--
}

// failed counts a wrong password, and returns the delay of its reply.
func (l *Limiter) failed(t *tally, stranger bool, from netip.Prefix) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	failures := t.add(now)
	if stranger && failures >= mostFailures {
		t.refused = now.Add(refusedFor)
		l.log.Warn("address refused", "remote", from.Addr().String(), "for", refusedFor)
	}
	return l.delay << min(failures-1, doublings)
}

// subject is a network, or an account in it, whose failures are counted.
type subject struct {
	account string
	network netip.Prefix
}

// tally counts failures. Limiter.mu guards it, but for turn.
type tally struct {
	failures float64   // as of at
	at       time.Time // of the last one
	refused  time.Time // until then
	turn     chan struct{}
	users    int // calls of Try under way: it is not forgotten
}

// count returns the number of failures that are not forgiven yet.
func (t *tally) count(now time.Time) int { return int(math.Ceil(t.left(now))) }

func (t *tally) left(now time.Time) float64 {
	return max(0, t.failures-float64(now.Sub(t.at))/float64(forgivenAfter))
}

func (t *tally) add(now time.Time) int {
	t.failures, t.at = min(t.left(now)+1, mostFailures), now
	return t.count(now)
}

// memory has the tallies of mostTallies subjects, and of those with users. The zero value is ready for use.
type memory map[subject]*tally

// get returns the tally of a subject, and makes it if there is none.
func (m *memory) get(by subject) *tally {
	t := (*m)[by]
	if t == nil {
		if len(*m) >= mostTallies {
			maps.DeleteFunc(*m, func(_ subject, t *tally) bool { return t.users == 0 })
		}
		if *m == nil {
			*m = make(memory)
		}
		t = &tally{turn: make(chan struct{}, 1)}
		(*m)[by] = t
	}
	return t
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
