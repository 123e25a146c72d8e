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

	"github.com/ftplockd/ftplockd/config"
)

const (
	// FirstDelay is the delay of the reply to the first wrong password.
	FirstDelay = 300 * time.Millisecond

	doublings    = 4                // how often the delay doubles
	maxFailures  = 10               // of a network before it is refused
	refusedFor   = 5 * time.Minute  // from the last failure on
	forgiveEvery = 30 * time.Second // for each failure
	maxTallies   = 10_000           // of a memory
	maxNameBytes = 64               // compared bytes of an account's name
)

// ErrRefused is returned while a network is refused.
var ErrRefused = errors.New("too many wrong passwords from this address")

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
	return &Limiter{ctx: ctx, log: log, delay: delay, strangers: memory{}, familiar: memory{}}
}

// Try calls check when it is the client's turn, and returns its error. It counts and delays config.ErrLogin. It returns ErrRefused,
// config.ErrGone, or the error of ctx if it did not call check.
func (l *Limiter) Try(ctx context.Context, account string, from netip.Prefix, gone func() bool, check func() error) error {
	client := subject{account[:min(len(account), maxNameBytes)], from}
	t, known := l.enter(client)
	defer l.leave(t)
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	began := time.Now()
	switch {
	case !known && t.refused(began):
		return ErrRefused
	case gone():
		return config.ErrGone
	}
	err := check()
	switch {
	case err == nil:
		l.mu.Lock()
		l.familiar.get(client)
		l.mu.Unlock()
	case errors.Is(err, config.ErrLogin):
		delay := l.delay << min(t.add(time.Now())-1, doublings)
		if !known && t.refused(time.Now()) {
			l.log.Warn("address refused", "remote", from.Addr().String(), "for", refusedFor)
		}
		for took := time.Since(began); took > delay; { // so the delay does not show whether a hash was computed
			delay += l.delay
		}
		sleep(l.ctx, delay-time.Since(began))
	}
	return err
}

// enter returns the tally of a client, and whether its account has logged in from its network before. Call leave when the login is over.
func (l *Limiter) enter(client subject) (t *tally, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t, known = l.familiar[client]; !known {
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

// subject is a network, or an account in it, whose failures are counted.
type subject struct {
	account string
	network netip.Prefix
}

// tally counts failures.
type tally struct {
	users int           // calls of Try under way, under Limiter.mu: it is not forgotten
	turn  chan struct{} // has an element while a client has its turn. That client uses the rest.

	failures float64 // as of at
	at       time.Time
}

// add counts a failure, and returns the number of failures that are not forgiven yet.
func (t *tally) add(now time.Time) int {
	left := max(0, t.failures-float64(now.Sub(t.at))/float64(forgiveEvery))
	t.failures, t.at = min(left+1, maxFailures), now
	return int(math.Ceil(t.failures))
}

// refused reports whether the last failure was one too many, not long ago.
func (t *tally) refused(now time.Time) bool {
	return math.Ceil(t.failures) >= maxFailures && now.Sub(t.at) < refusedFor
}

// memory has the tallies of maxTallies subjects, and of those with users.
type memory map[subject]*tally

// get returns the tally of a subject, and makes it if there is none.
func (m memory) get(by subject) *tally {
	t := m[by]
	if t == nil {
		if len(m) >= maxTallies {
			maps.DeleteFunc(m, func(_ subject, t *tally) bool { return t.users == 0 })
		}
		t = &tally{turn: make(chan struct{}, 1)}
		m[by] = t
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
