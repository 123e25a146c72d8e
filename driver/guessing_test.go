package driver

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

	"github.com/ftplockd/ftplockd/internal/control"
)

// What the failures of an account make a login wait.
const (
	accountDelay = 100 * time.Millisecond
	accountMost  = 300 * time.Millisecond
)

// guesser tries passwords, without a server.
type guesser struct {
	t *testing.T
	*guessing
}

// guesses runs a test in a bubble of synctest, in which looking at a password takes 30 ms.
func guesses(t *testing.T, test func(t *testing.T, g guesser)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, guesser{t, newGuessing(slog.New(slog.DiscardHandler))}) })
}

func stays() bool { return false }

// try is one login: it returns how long that took in all, or why the password was not looked at.
func (g guesser) try(account, from string, right bool) (time.Duration, error) {
	g.t.Helper()
	began := time.Now()
	guess, err := g.begin(g.t.Context(), account, netip.MustParseAddr(from), stays)
	if err != nil {
		return time.Since(began), err
	}
	time.Sleep(30 * time.Millisecond)
	if right {
		guess.right()
	} else {
		guess.wrong(g.t.Context())
	}
	return time.Since(began), nil
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
	if took, err := g.try(account, from, true); !errors.Is(err, errRefused) || took > accountMost {
		g.t.Errorf("%s from %s: %v after %v", account, from, err, took)
	}
}

func TestWrongPasswordsDelayAndThenRefuseAnAddress(t *testing.T) {
	guesses(t, func(t *testing.T, g guesser) {
		for i := range mostFailures {
			// Other names, so that none of them is waited for.
			g.wrong(fmt.Sprint("user", i), "192.0.2.1", firstDelay<<min(i, doublings))
		}
		g.refused("user", "192.0.2.1")
		g.right("user", "192.0.2.2", 0)
		time.Sleep(refusedFor - 10*time.Second)
		g.refused("user", "192.0.2.1")
		time.Sleep(10 * time.Second)
		g.right("user", "192.0.2.1", 0)
		for range 100 { // a job that fails each minute is never refused
			time.Sleep(time.Minute)
			g.wrong("stale", "192.0.2.3", firstDelay)
		}
		// Of IPv6 a network is one address.
		g.wrong("a", "2001:db8::1", firstDelay)
		g.wrong("b", "2001:db8::ffff:1%eth0", 2*firstDelay)
		g.wrong("c", "2001:db8:0:1::1", firstDelay)
		g.wrong("d", "192.0.2.4", firstDelay)
		g.wrong("e", "::ffff:192.0.2.4", 2*firstDelay)
	})
}

// Many connections of one address do not have more passwords looked at than one.
func TestAnAddressTriesOnePasswordAtATime(t *testing.T) {
	guesses(t, func(t *testing.T, g guesser) {
		var looked, refused int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 600 {
			all.Go(func() {
				_, err := g.try(fmt.Sprint("user", i), "192.0.2.1", false)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					looked++
				} else if errors.Is(err, errRefused) {
					refused++
				}
			})
		}
		all.Wait()
		if looked > mostFailures+1 || looked+refused != 600 {
			t.Errorf("%d were looked at, %d refused", looked, refused)
		}
	})
}

// Guessing the password of an account never keeps its owner out.
func TestNobodyLocksAnotherOut(t *testing.T) {
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
		g.right("phoneacc", "192.0.2.1", 0)           // it has logged in from there
		g.right("phoneacc", "192.0.2.2", accountMost) // it has not
		g.right("phoneacc", "192.0.2.2", 0)
		g.right("other", "192.0.2.3", 0)
		all.Wait()
	})
}

// A job with a stale password does not keep out the other accounts of its machine that work.
func TestAnAddressIsNotRefusedToWhoHasLoggedInFromThere(t *testing.T) {
	guesses(t, func(t *testing.T, g guesser) {
		g.right("phoneacc", "192.0.2.1", 0)
		for range mostFailures + 5 {
			_, _ = g.try("stale", "192.0.2.1", false)
		}
		g.refused("stranger", "192.0.2.1")
		g.right("phoneacc", "192.0.2.1", 0)
		for range mostFailures + 5 { // its own password is guessed there: it is delayed, and no more
			if took, err := g.try("phoneacc", "192.0.2.1", false); err != nil || took > firstDelay<<doublings {
				t.Errorf("%v after %v", err, took)
			}
		}
		g.right("phoneacc", "192.0.2.1", 0)
		time.Sleep(mostFailures * forgivenAfter)
		g.wrong("phoneacc", "192.0.2.1", firstDelay)
	})
}

// The reply comes as late without a hash as with one.
func TestTheDelayDoesNotTellHowLongAHashTook(t *testing.T) {
	guesses(t, func(t *testing.T, g guesser) {
		for hash, want := range map[time.Duration]time.Duration{
			0: firstDelay, firstDelay: firstDelay, firstDelay + 1: 2 * firstDelay, 5*firstDelay - 1: 5 * firstDelay,
		} {
			began := time.Now()
			guess, err := g.begin(t.Context(), fmt.Sprint("user", hash), netip.MustParseAddr("192.0.2.1"), stays)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(hash)
			guess.wrong(t.Context())
			if took := time.Since(began); took != want {
				t.Errorf("%v: the reply came after %v, want %v", hash, took, want)
			}
			time.Sleep(forgivenAfter)
		}
	})
}

func TestWhoDoesNotWaitIsNotCounted(t *testing.T) {
	guesses(t, func(t *testing.T, g guesser) {
		from := netip.MustParseAddr("192.0.2.1")
		first, err := g.begin(t.Context(), "user", from, stays)
		if err != nil {
			t.Fatal(err)
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range 20 {
			for ctx, want := range map[context.Context]error{brief: context.DeadlineExceeded, t.Context(): errGone} {
				all.Go(func() {
					if _, err := g.begin(ctx, "user", from, func() bool { return true }); !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				})
			}
		}
		time.Sleep(2 * time.Second)
		first.withdrawn()
		all.Wait()
		if n := len(g.addresses.elements); n != 0 {
			t.Errorf("%d addresses are remembered", n)
		}
		g.wrong("user", "192.0.2.1", firstDelay)
	})
}

// However many try, what is remembered is bounded; who is at it is not forgotten.
func TestTheMemoryOfFailuresIsBounded(t *testing.T) {
	guesses(t, func(t *testing.T, g guesser) {
		busy, err := g.begin(t.Context(), "busy", netip.MustParseAddr("192.0.2.1"), stays)
		if err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 3 * mostTallies {
			from := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
			guess, err := g.begin(t.Context(), strings.Repeat("x", i%500)+fmt.Sprint(i), from, stays)
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				guess.right()
			} else {
				guess.wrong(ended) // without the delay
			}
			time.Sleep(time.Microsecond)
		}
		for name, s := range map[string]*tallies{"addresses": &g.addresses, "accounts": &g.accounts, "familiar": &g.familiar} {
			if n := len(s.elements); n != s.order.Len() || n > mostTallies {
				t.Errorf("%s: %d are remembered", name, n)
			}
		}
		busy.wrong(t.Context())
		g.wrong("busy", "192.0.2.1", 2*firstDelay+accountDelay)
	})
}

func TestWrongPasswordsThroughTheProtocol(t *testing.T) {
	s := start(t, func(s *setup) { s.control.Limits.LoginTimeout = time.Second })
	s.as("phoneacc").want("NOOP", "200 *")
	// A login that waits because of others' failures is over in time, too.
	first, err := s.driver.guessing.begin(t.Context(), "nobody", netip.MustParseAddr("127.0.0.1"), stays)
	if err != nil {
		t.Fatal(err)
	}
	c := s.dial()
	c.want("USER other", "331 *")
	c.want("PASS "+password, "421 the login took too long")
	c.ended()
	first.withdrawn()
	s.control.SetLimits(control.Limits{})
	for i := range mostFailures {
		if i%2 == 0 { // before the connection is ended for it
			c = s.dial()
		}
		c.want("USER nobody", "331 *")
		c.want("PASS wrong", "530 login incorrect")
	}
	c = s.dial()
	c.want("USER other", "331 *")
	c.want("PASS "+password, "421 too many wrong passwords from this address, try again in a few minutes")
	c.ended()
	s.as("phoneacc").want("NOOP", "200 *") // it has logged in from here
}
