package config

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// waits starts a login that waits for its turn, and returns where its error will be.
func waits(v *Verifier, accounts []Account, a Attempt) chan error {
	done := make(chan error, 1)
	go func() {
		_, err := v.Login(context.Background(), accounts, a)
		done <- err
	}()
	synctest.Wait()
	return done
}

func TestTheFewestFailuresAreServedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVerifier(1)
		release := full(v)
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		for i, failures := range []int{5, 5, 1, 0, 9, 0} {
			all.Go(func() {
				if err := v.turns.take(t.Context(), failures); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, fmt.Sprintf("%d:%d", failures, i))
				mu.Unlock()
				v.turns.done()
			})
			synctest.Wait()
		}
		release()
		all.Wait()
		if want := []string{"0:3", "0:5", "1:2", "5:0", "5:1", "9:4"}; !slices.Equal(order, want) {
			t.Errorf("%s, want %s", order, want)
		}
	})
}

// A waiter gives up before its turn comes, or at the moment when it does.
func TestNoTurnIsLostWithAWaiterWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, comes := range []bool{false, true} {
			v := NewVerifier(1)
			release := full(v)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- v.turns.take(ctx, 0) }()
			synctest.Wait()
			v.turns.mu.Lock()
			cancel()
			if comes {
				v.turns.pass() // before it can say so
			}
			v.turns.mu.Unlock()
			if <-done == nil {
				t.Error("it has not given up")
			}
			if !comes {
				release()
			}
			if v.turns.free != 1 || len(v.turns.waiting) != 0 {
				t.Errorf("%d are free, %d wait", v.turns.free, len(v.turns.waiting))
			}
		}
	})
}

// unhashable is an account whose hash cannot be computed: a try fails in a way that can be told.
func unhashable(networks ...string) []Account {
	account := DefaultAccount("user0", "no hash")
	for _, n := range networks {
		account.Networks = append(account.Networks, Network{Prefix: netip.MustParsePrefix(n)})
	}
	return []Account{account}
}

func TestNoHashIsMadeForAClientThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVerifier(1)
		release := full(v)
		gone := false
		done := waits(v, unhashable(), Attempt{Name: "user0", Gone: func() bool { return gone }})
		gone = true
		release()
		if err := <-done; !errors.Is(err, ErrGone) {
			t.Error(err)
		}
		if v.turns.free != 1 {
			t.Error("its turn is lost")
		}
	})
}

func TestAnAccountMayComeFromItsNetworksOnly(t *testing.T) {
	v := NewVerifier(1)
	accounts := accountsOf("one", "two")
	accounts[0].Networks = unhashable("10.0.0.0/8", "2001:db8::/32")[0].Networks
	for from, allowed := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "2001:db8::1%eth0": true,
		"11.0.0.1": false, "2001:db9::1": false, "::ffff:11.0.0.1": false,
	} {
		_, err := v.Login(t.Context(), accounts, Attempt{Name: "user0", Password: "one", From: netip.MustParseAddr(from)})
		if want := map[bool]error{true: nil, false: ErrLogin}[allowed]; err != want {
			t.Errorf("%s: %v", from, err)
		}
		if _, err := v.Login(t.Context(), accounts, Attempt{Name: "user1", Password: "two", From: netip.MustParseAddr(from)}); err != nil {
			t.Errorf("%s, no networks: %v", from, err)
		}
	}
}

// From elsewhere an account is answered after its turn as everybody is, with the same words, but without a hash.
func TestOutsideOfItsNetworksNoHashIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVerifier(1)
		accounts := unhashable("10.0.0.0/8")
		if _, err := v.Login(t.Context(), accounts, Attempt{Name: "user0", From: netip.MustParseAddr("10.0.0.1")}); err == nil || errors.Is(err, ErrLogin) {
			t.Fatal("the hash was not looked at:", err)
		}
		release := full(v)
		done := waits(v, accounts, Attempt{Name: "user0", Password: strings.Repeat("x", 100), From: netip.MustParseAddr("192.0.2.1")})
		if len(done) > 0 {
			t.Error("it did not wait its turn")
		}
		release()
		if err := <-done; err != ErrLogin {
			t.Error(err)
		}
	})
}
