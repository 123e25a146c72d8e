package config

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func accountsOf(passwords ...string) []Account {
	var accounts []Account
	for i, p := range passwords {
		accounts = append(accounts, DefaultAccount(fmt.Sprint("user", i), cheap(p)))
	}
	return accounts
}

func TestLogin(t *testing.T) {
	v := NewVerifier(2)
	accounts := accountsOf("one", "two")
	for range 2 { // the second login uses the memory
		for _, c := range []struct {
			name, password string
			want           error
		}{
			{"user0", "one", nil},
			{"user1", "two", nil},
			{"user0", "two", ErrLogin},
			{"user1", "", ErrLogin},
			{"user2", "one", ErrLogin},
			{"user2", "two", ErrLogin},
			{"", "one", ErrLogin},
		} {
			a, err := v.Login(t.Context(), accounts, Attempt{Name: c.name, Password: c.password})
			if err != c.want || (err == nil) != (a.Name == c.name && a.Name != "") {
				t.Errorf("%q %q: %v %v", c.name, c.password, a.Name, err)
			}
		}
	}
	if _, err := v.Login(t.Context(), nil, Attempt{Name: "user0", Password: "one"}); err != ErrLogin {
		t.Error(err)
	}
}

// full uses all slots of a verifier, so no slow hash can begin until release.
func full(v *Verifier) (release func()) {
	for range cap(v.slots) {
		v.slots <- struct{}{}
	}
	return func() {
		for range cap(v.slots) {
			v.releaseSlot()
		}
	}
}

// needsSlowHash reports whether a login must wait for a slot.
func needsSlowHash(v *Verifier, accounts []Account, name, password string) bool {
	defer full(v)()
	waited := errors.New("waited")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(waited)
	_, err := v.Login(ctx, accounts, Attempt{Name: name, Password: password})
	return err == waited
}

func TestOnlyTheRightPasswordOfItsAccountSkipsTheHash(t *testing.T) {
	v := NewVerifier(1)
	accounts := accountsOf("one", "two")
	if _, err := v.Login(t.Context(), accounts, Attempt{Name: "nobody", Password: "one"}); err != ErrLogin {
		t.Fatal(err)
	}
	if !needsSlowHash(v, accounts, "user0", "one") {
		t.Error("the password for an unknown name is remembered")
	}
	for i, password := range []string{"one", "two"} {
		if _, err := v.Login(t.Context(), accounts, Attempt{Name: fmt.Sprint("user", i), Password: password}); err != nil {
			t.Fatal(err)
		}
	}
	if needsSlowHash(v, accounts, "user0", "one") {
		t.Error("a known password is slow")
	}
	changed := accountsOf("one") // after a reload: the same password, another hash
	changed[0].Password, _ = HashPassword("one")
	for name, slow := range map[string]bool{
		"a wrong password":                  needsSlowHash(v, accounts, "user0", "two"),
		"an unknown name, one's password":   needsSlowHash(v, accounts, "nobody", "one"),
		"an unknown name, the other's":      needsSlowHash(v, accounts, "nobody", "two"),
		"an account whose hash was changed": needsSlowHash(v, changed, "user0", "one"),
	} {
		if !slow {
			t.Errorf("%s is quick", name)
		}
	}
}

func TestAnUnknownNameIsCheckedAgainstOneAccount(t *testing.T) {
	v := NewVerifier(1)
	picked := make(map[int]bool)
	for i := range 100 {
		name := fmt.Sprint("nobody", i)
		first := v.standInIndex(name, 3)
		picked[first] = true
		for range 3 {
			if v.standInIndex(name, 3) != first {
				t.Fatal(name)
			}
		}
	}
	if len(picked) != 3 {
		t.Error("unknown names are checked against few accounts:", picked)
	}
}

func TestSlowHashesAtATimeAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVerifier(2)
		if n := cap(v.slots); n != 2 {
			t.Fatalf("%d hashes are computed at a time, want 2", n)
		}
		release := full(v)
		var finished atomic.Int32
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				_, _ = v.Login(t.Context(), accountsOf("one"), Attempt{Name: "user0", Password: fmt.Sprint("wrong", i)})
				finished.Add(1)
			})
		}
		synctest.Wait()
		if n := finished.Load(); n != 0 {
			t.Errorf("%d logins finished while two hashes were under way", n)
		}
		release()
		all.Wait()
		if len(v.slots) > 0 {
			t.Error("a turn is lost")
		}
	})
}

// unhashable returns an account whose hash cannot be computed: Login returns another error than ErrLogin if it tries.
func unhashable(networks ...string) []Account {
	account := DefaultAccount("user0", "no hash")
	for _, n := range networks {
		account.Networks = append(account.Networks, Network{Prefix: netip.MustParsePrefix(n)})
	}
	return []Account{account}
}

// In TestLoginComputesNoUnnecessaryHash logins wait for a turn, and then need no hash.
func TestLoginComputesNoUnnecessaryHash(t *testing.T) {
	for name, c := range map[string]struct {
		accounts  []Account
		from      string
		gone      bool
		meanwhile func(v *Verifier)
		want      error
	}{
		"the client hangs up":                    {accounts: unhashable(), gone: true, want: ErrGone},
		"the address is outside the networks":    {accounts: unhashable("10.0.0.0/8"), from: "192.0.2.1", want: ErrLogin},
		"another login has checked the password": {accounts: unhashable(), meanwhile: func(v *Verifier) { v.remember(v.digest("no hash", "one")) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := NewVerifier(1)
			release := full(v)
			a := Attempt{Name: "user0", Password: "one", Gone: func() bool { return c.gone }}
			a.From, _ = netip.ParseAddr(c.from)
			done := make(chan error, 1)
			go func() {
				_, err := v.Login(t.Context(), c.accounts, a)
				done <- err
			}()
			synctest.Wait()
			if len(done) > 0 {
				t.Errorf("%s: the login did not wait for its turn", name)
			}
			if c.meanwhile != nil {
				c.meanwhile(v)
			}
			release()
			if err := <-done; err != c.want || len(v.slots) > 0 {
				t.Errorf("%s: %v, want %v; %d slots in use", name, err, c.want, len(v.slots))
			}
		})
	}
}

func TestAnAccountLogsInFromItsNetworksOnly(t *testing.T) {
	v := NewVerifier(1)
	accounts := accountsOf("one", "two")
	accounts[0].Networks = unhashable("10.0.0.0/8", "2001:db8::/32")[0].Networks
	for from, want := range map[string]error{
		"10.1.2.3": nil, "::ffff:10.1.2.3": nil, "2001:db8::1%eth0": nil,
		"11.0.0.1": ErrLogin, "2001:db9::1": ErrLogin, "::ffff:11.0.0.1": ErrLogin,
	} {
		if _, err := v.Login(t.Context(), accounts, Attempt{Name: "user0", Password: "one", From: netip.MustParseAddr(from)}); err != want {
			t.Errorf("%s: %v, want %v", from, err, want)
		}
		if _, err := v.Login(t.Context(), accounts, Attempt{Name: "user1", Password: "two", From: netip.MustParseAddr(from)}); err != nil {
			t.Errorf("%s, no networks: %v", from, err)
		}
	}
}

func TestVerifierRemembersALimitedNumberOfPasswords(t *testing.T) {
	v := NewVerifier(1)
	sum := func(i int) digest { return v.digest("hash", fmt.Sprint(i)) }
	for i := range 3*maxVerified + 10 {
		v.remember(sum(i))
		if !v.isVerified(sum(i)) || len(v.verified) > maxVerified {
			t.Fatalf("%d: %d are known", i, len(v.verified))
		}
	}
}

func TestDigestsOfDifferentPairsDiffer(t *testing.T) {
	v := NewVerifier(1)
	if v.digest("a", "bc") == v.digest("ab", "c") {
		t.Error("two pairs have one digest")
	}
	if v.digest("a", "b") == NewVerifier(1).digest("a", "b") {
		t.Error("two processes share a secret")
	}
}
