package config

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTheMemoryOfHashesIsGivenBackNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVerifier(2)
		given := 0
		v.free = func() { given++ }
		accounts := accountsOf("one")
		for _, c := range []struct {
			after    time.Duration
			password string
			given    int
		}{
			{0, "one", 1},
			{freePause, "one", 1}, // no hash
			{0, "wrong", 2},
			{freePause - 1, "wrong", 2},
			{1, "wrong", 3},
		} {
			time.Sleep(c.after)
			_, _ = v.Login(t.Context(), accounts, Attempt{Name: "user0", Password: c.password})
			if given != c.given {
				t.Errorf("%q after %v: given back %d times, want %d", c.password, c.after, given, c.given)
			}
		}
	})
}
