package guessing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/config"
)

// guesser tries passwords with a Limiter.
type guesser struct {
	t *testing.T
	*Limiter
}

// guesses runs a test in a bubble of synctest, in which a check of a password takes 30 ms.
func guesses(t *testing.T, test func(t *testing.T, g guesser)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, guesser{t, New(t.Context(), slog.New(slog.DiscardHandler), FirstDelay)})
	})
}

func stays() bool { return false }

// network returns the network of an address like control.NetworkOf.
func network(from string) netip.Prefix {
	ip := netip.MustParseAddr(from).Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}

// try logs in. It returns the duration, or the error if the password was not checked.
func (g guesser) try(account, from string, right bool) (time.Duration, error) {
	g.t.Helper()
	began := time.Now()
	err := g.Try(g.t.Context(), account, network(from), stays, func() error {
		time.Sleep(30 * time.Millisecond)
		if !right {
			return config.ErrLogin
		}
		return nil
	})
	if errors.Is(err, config.ErrLogin) {
		err = nil
	}
	return time.Since(began), err
}

func (g guesser) wrong(account, from string, want time.Duration) {
	g.t.Helper()
	if took, err := g.try(account, from, false); err != nil || took != want {
		g.t.Errorf("a wrong password of %s from %s: %v after %v, want it after %v", account, from, err, took, want)
	}
}

func (g guesser) right(account, from string, want time.Duration) {
	g.t.Helper()
	if took, err := g.try(account, from, true); err != nil || took != want+30*time.Millisecond {
		g.t.Errorf("the right password of %s from %s: %v after %v, want it after %v", account, from, err, took, want+30*time.Millisecond)
	}
}

func (g guesser) refused(account, from string) {
	g.t.Helper()
	if took, err := g.try(account, from, true); !errors.Is(err, ErrRefused) || took > 0 {
		g.t.Errorf("%s from %s: %v after %v", account, from, err, took)
	}
}

func TestWrongPasswordsDelayThenRefuseANetwork(t *testing.T) {
	guesses(t, func(t *testing.T, g guesser) {
		for i := range maxFailures {
			// Different names: logins of one name wait for each other.
			g.wrong(fmt.Sprint("user", i), "192.0.2.1", FirstDelay<<min(i, doublings))
		}
		g.refused("user", "192.0.2.1")
		g.right("user", "192.0.2.2", 0)
		time.Sleep(refusedFor - 10*time.Second)
		g.refused("user", "192.0.2.1")
		time.Sleep(10 * time.Second)
		g.right("user", "192.0.2.1", 0)
		for range 100 { // a job that fails each minute is never refused
			time.Sleep(time.Minute)
			g.wrong("stale", "192.0.2.3", FirstDelay)
		}
		// An IPv6 /64 counts as one address.
		g.wrong("a", "2001:db8::1", FirstDelay)
		g.wrong("b", "2001:db8::ffff:1%eth0", 2*FirstDelay)
		g.wrong("c", "2001:db8:0:1::1", FirstDelay)
		g.wrong("d", "192.0.2.4", FirstDelay)
		g.wrong("e", "::ffff:192.0.2.4", 2*FirstDelay)
	})
}

// Many connections from one address check no more passwords than one connection.
func TestAnAddressTriesOnePasswordAtATime(t *testing.T) {
	guesses(t, func(t *testing.T, g guesser) {
		var checked, refused int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 600 {
			all.Go(func() {
				_, err := g.try(fmt.Sprint("user", i), "192.0.2.1", false)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					checked++
				} else if errors.Is(err, ErrRefused) {
					refused++
				}
			})
		}
		all.Wait()
		if checked > maxFailures+1 || checked+refused != 600 {
			t.Errorf("%d passwords were checked, %d refused", checked, refused)
		}
	})
}

func TestGuessingNeverLocksTheOwnerOut(t *testing.T) {
	guesses(t, func(t *testing.T, g guesser) {
		g.right("phoneacc", "192.0.2.1", 0)
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				for range 20 {
					_, _ = g.try("phoneacc", fmt.Sprintf("10.0.%d.%d", i/250, i%250), false)
				}
			})
		}
		time.Sleep(20 * time.Second)
		g.right("phoneacc", "192.0.2.1", 0)
		g.right("phoneacc", "192.0.2.2", 0)
		g.right("other", "192.0.2.3", 0)
		all.Wait()
	})
}

// A job with a stale password does not block accounts that have logged in from its machine.
func TestAKnownAccountIsNotRefused(t *testing.T) {
	guesses(t, func(t *testing.T, g guesser) {
		g.right("phoneacc", "192.0.2.1", 0)
		for range maxFailures + 5 {
			_, _ = g.try("stale", "192.0.2.1", false)
		}
		g.refused("stranger", "192.0.2.1")
		g.right("phoneacc", "192.0.2.1", 0)
		for range maxFailures + 5 { // wrong passwords of phoneacc itself: delayed, never refused
			if took, err := g.try("phoneacc", "192.0.2.1", false); err != nil || took > FirstDelay<<doublings {
				t.Errorf("%v after %v", err, took)
			}
		}
		g.right("phoneacc", "192.0.2.1", 0)
		time.Sleep(maxFailures * forgiveEvery)
		g.wrong("phoneacc", "192.0.2.1", FirstDelay)
	})
}

// The reply to a wrong password is equally late with and without a hash.
func TestTheDelayHidesTheTimeOfTheHash(t *testing.T) {
	guesses(t, func(t *testing.T, g guesser) {
		for hash, want := range map[time.Duration]time.Duration{
			0: FirstDelay, FirstDelay: FirstDelay, FirstDelay + 1: 2 * FirstDelay, 5*FirstDelay - 1: 5 * FirstDelay,
		} {
			began := time.Now()
			err := g.Try(t.Context(), fmt.Sprint("user", hash), network("192.0.2.1"), stays, func() error {
				time.Sleep(hash)
				return config.ErrLogin
			})
			if took := time.Since(began); took != want || err != config.ErrLogin {
				t.Errorf("%v: %v after %v, want it after %v", hash, err, took, want)
			}
			time.Sleep(forgiveEvery)
		}
	})
}

func TestALoginThatGivesUpIsNotCounted(t *testing.T) {
	guesses(t, func(t *testing.T, g guesser) {
		unreachable := func() error { t.Error("a password was checked"); return nil }
		var all sync.WaitGroup
		all.Go(func() {
			g.Try(t.Context(), "user", network("192.0.2.1"), stays, func() error {
				time.Sleep(2 * time.Second)
				return errors.New("not checked")
			})
		})
		synctest.Wait()
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 20 {
			for ctx, want := range map[context.Context]error{brief: context.DeadlineExceeded, t.Context(): config.ErrGone} {
				all.Go(func() {
					err := g.Try(ctx, "user", network("192.0.2.1"), func() bool { return true }, unreachable)
					if !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				})
			}
		}
		all.Wait()
		g.wrong("user", "192.0.2.1", FirstDelay)
	})
}

// The number of tallies is bounded, and the tally of a login under way is kept.
func TestTheMemoryOfFailuresIsBounded(t *testing.T) {
	guesses(t, func(t *testing.T, g guesser) {
		flooded := make(chan struct{})
		var busy sync.WaitGroup
		busy.Go(func() {
			g.Try(t.Context(), "busy", network("192.0.2.1"), stays, func() error { <-flooded; return config.ErrLogin })
		})
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		g.ctx = ended // without delays
		for i := range 3 * maxTallies {
			from := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
			g.Try(t.Context(), strings.Repeat("x", i%500)+fmt.Sprint(i), from, stays, func() error {
				if i%2 == 0 {
					return nil
				}
				return config.ErrLogin
			})
		}
		for name, m := range map[string]memory{"strangers": g.strangers, "familiar": g.familiar} {
			if n := len(m); n > maxTallies+1 {
				t.Errorf("%s: %d tallies", name, n)
			}
		}
		close(flooded)
		busy.Wait()
		g.ctx = t.Context()
		g.wrong("busy", "192.0.2.1", 2*FirstDelay)
	})
}
