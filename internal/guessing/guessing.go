// Package guessing slows down the guessing of passwords. Its type is [Limiter], with one method, [Limiter.Try].
//
// It counts wrong passwords by network (one IPv4 address, or an IPv6 /64). The reply to one is delayed, each time for twice as long,
// and a network has one password checked at a time. After ten the network is refused for five minutes.
//
// An account that has logged in from a network is counted apart from the others there, and is never refused: a job with a stale
// password does not keep out the other accounts of its machine. Failures elsewhere do not count against it, so no client in another network
// can keep an account out; one in the account's own network can delay its logins.
//
// Every thirty seconds one wrong password is forgiven. The memory is bounded: the oldest counts are forgotten first. Nothing outlives the process.
package guessing

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/netip"
	"sync"
	"time"
)

const (
	// FirstDelay is how late the first wrong password is answered.
	FirstDelay = 300 * time.Millisecond

	doublings     = 4                // how often the delay doubles
	mostFailures  = 10               // of a network, before it is refused
	refusedFor    = 5 * time.Minute  // how long it is refused
	forgivenAfter = 30 * time.Second // for each failure
	mostTallies   = 10_000           // of a memory; it may have twice as many
	mostName      = 64               // bytes of an account's name that are compared
)

var (
	// ErrWrong is the error of a check that found the password wrong.
	ErrWrong = errors.New("login incorrect")
	// ErrRefused is returned while a network is refused.
	ErrRefused = errors.New("too many wrong passwords from this address")
	// ErrGone is returned if the client did not wait for its turn.
	ErrGone = errors.New("the client has gone")
)

// Limiter counts wrong passwords. Use New. It is for use by several goroutines.
type Limiter struct {
	ctx   context.Context
	log   *slog.Logger
	delay time.Duration

	mu        sync.Mutex
	strangers memory // by network
	familiar  memory // by network and account: those that have logged in
}

// New returns a Limiter whose first delay is that long; usually that is FirstDelay. When ctx ends, so do all delays.
func New(ctx context.Context, log *slog.Logger, delay time.Duration) *Limiter {
	return &Limiter{ctx: ctx, log: log, delay: delay}
}

// Try calls check when a password for the account may be checked, with the number of failures that count against the client. Its error is that of
// check; ErrWrong is counted and delayed. Without calling check it returns ErrRefused, ErrGone, or the error of ctx if that ends before the turn.
func (l *Limiter) Try(ctx context.Context, account string, from netip.Prefix, gone func() bool, check func(failures int) error) error {
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
	failures, refused := t.count(began), began.Before(t.refused)
	l.mu.Unlock()
	switch {
	case refused:
		return ErrRefused
	case gone():
		return ErrGone
	}
	err := check(failures)
	switch {
	case err == nil:
		l.mu.Lock()
		l.familiar.get(client)
		l.mu.Unlock()
	case errors.Is(err, ErrWrong):
		// The time that a hash has taken, if one was made, is not to be seen.
		delay := l.failed(t, !known, from)
		for unit := l.delay; time.Since(began) > delay; {
			delay += unit
		}
		sleep(l.ctx, delay-time.Since(began))
	}
	return err
}

// begin returns what counts against a client, and whether its account has logged in from its network before.
func (l *Limiter) begin(client subject) (t *tally, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t = l.familiar.find(client)
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

// failed counts a wrong password, and returns how long its reply is delayed.
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

// subject is what failures are counted by: a network, or an account in it.
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
	users    int // if there are any it is not forgotten
}

// count returns how many failures are not forgiven yet.
func (t *tally) count(now time.Time) int { return int(math.Ceil(t.left(now))) }

func (t *tally) left(now time.Time) float64 {
	return max(0, t.failures-float64(now.Sub(t.at))/float64(forgivenAfter))
}

func (t *tally) add(now time.Time) int {
	t.failures, t.at = min(t.left(now)+1, mostFailures), now
	return t.count(now)
}

// memory has the tallies of mostTallies subjects, and of those before them. The zero value is ready for use.
type memory struct{ now, before map[subject]*tally }

// find returns the tally of a subject, or nil.
func (m *memory) find(by subject) *tally {
	t := m.now[by]
	if t == nil {
		if t = m.before[by]; t != nil {
			m.add(by, t)
		}
	}
	return t
}

// get returns the tally of a subject; a new one if there is none.
func (m *memory) get(by subject) *tally {
	t := m.find(by)
	if t == nil {
		t = &tally{turn: make(chan struct{}, 1)}
		m.add(by, t)
	}
	return t
}

func (m *memory) add(by subject, t *tally) {
	if m.now == nil || len(m.now) >= mostTallies {
		m.before, m.now = m.now, make(map[subject]*tally)
		for by, t := range m.before {
			if t.users > 0 {
				m.now[by] = t
			}
		}
	}
	m.now[by] = t
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
