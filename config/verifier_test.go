package config

import (
	"context"
	"errors"
	"fmt"
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
	for range 2 { // the second time from memory
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

// full takes every slot of a verifier, so that a slow hash cannot begin, and returns the undo.
func full(v *Verifier) (release func()) {
	slots := v.turns.free
	for range slots {
		_ = v.turns.take(context.Background(), 0)
	}
	return func() {
		for range slots {
			v.turns.done()
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

func TestOnlyTheOwnerOfAKnownPasswordIsQuick(t *testing.T) {
	v := NewVerifier(1)
	accounts := accountsOf("one", "two")
	if _, err := v.Login(t.Context(), accounts, Attempt{Name: "nobody", Password: "one"}); err != ErrLogin {
		t.Fatal(err)
	}
	if !needsSlowHash(v, accounts, "user0", "one") {
		t.Error("what an unknown name tried is remembered")
	}
	for i, password := range []string{"one", "two"} {
		if _, err := v.Login(t.Context(), accounts, Attempt{Name: fmt.Sprint("user", i), Password: password}); err != nil {
			t.Fatal(err)
		}
	}
	if needsSlowHash(v, accounts, "user0", "one") {
		t.Error("a known password is slow")
	}
	changed := accountsOf("one") // by a reload: the same password, another hash
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

func TestAnUnknownNameIsAlwaysCheckedAgainstTheSameAccount(t *testing.T) {
	v := NewVerifier(1)
	picked := make(map[int]bool)
	for i := range 100 {
		name := fmt.Sprint("nobody", i)
		first := v.standIn(name, 3)
		picked[first] = true
		for range 3 {
			if v.standIn(name, 3) != first {
				t.Fatal(name)
			}
		}
	}
	if len(picked) != 3 {
		t.Error("the unknown names do not spread over the accounts:", picked)
	}
}

func TestNoMoreSlowHashesAtATimeThanAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVerifier(2)
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
			t.Errorf("%d went past the two that were under way", n)
		}
		release()
		all.Wait()
		if v.turns.free != 2 {
			t.Error("slots are lost")
		}
	})
}

func TestManyWhoWaitForTheSamePasswordNeedOneHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVerifier(1)
		accounts := []Account{DefaultAccount("user0", "no hash: to compute it fails")}
		release := full(v)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if _, err := v.Login(t.Context(), accounts, Attempt{Name: "user0", Password: "one"}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		v.remember(v.digest(accounts[0].Password, "one")) // whoever had the slot found that it fits
		release()
		all.Wait()
	})
}

func TestMemoryIsBounded(t *testing.T) {
	v := NewVerifier(1)
	sum := func(i int) digest { return v.digest("hash", fmt.Sprint(i)) }
	for i := range 3*maxVerified + 10 {
		v.remember(sum(i))
		if !v.knows(sum(i)) || len(v.verified) > maxVerified {
			t.Fatalf("%d: %d are known", i, len(v.verified))
		}
	}
}

func TestDigestsTellWhereTheHashEnds(t *testing.T) {
	v := NewVerifier(1)
	if v.digest("a", "bc") == v.digest("ab", "c") {
		t.Error("two pairs have one digest")
	}
	if v.digest("a", "b") == NewVerifier(1).digest("a", "b") {
		t.Error("two processes share a secret")
	}
}
