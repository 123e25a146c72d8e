package integration

import (
	"strings"
	"testing"
	"time"
)

func TestEachLockLivesAsTheFirstRuleThatMatchesSays(t *testing.T) {
	t.Parallel()
	s, clock := startStepped(t, `
[[lock]]
match = "/locks/short/**"
max_age = "5m"
[[lock]]
match = "/locks/endless/**"
max_age = "0s"
max_idle = "0s"
`+hour)
	c := s.session(account)
	c.Want(250, "CWD /locks")
	for _, line := range []string{"/locks/short/a expires in 5m0s", "/locks/endless/a never expires", "/locks/a expires in 1h0m0s"} {
		name, life, _ := strings.Cut(line, " ")
		c.Want(257, "MKD "+name, life)
	}
	held := func(want ...string) {
		t.Helper()
		var got []string
		for _, l := range s.locks() {
			got = append(got, l.Name)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("held: %q, want %q", got, want)
		}
	}
	clock.pass(4 * time.Minute)
	held("/locks/a", "/locks/endless/a", "/locks/short/a")
	clock.pass(time.Minute)
	held("/locks/a", "/locks/endless/a")
	clock.pass(55 * time.Minute)
	held("/locks/endless/a")
	clock.pass(20 * 365 * 24 * time.Hour)
	held("/locks/endless/a")
	c.Want(250, "RMD /locks/endless/a")
	c.Want(550, "RMD /locks/short/a", "older than 5m0s")
}

func TestReloadedLimitsHoldForLocksThatAreHeld(t *testing.T) {
	t.Parallel()
	s, clock := startStepped(t, hour+`
[[lock]]
match = "/left/**"
max_age = "2h"
max_idle = "0"
`)
	c, other := s.session(account), s.session("other")
	for _, name := range []string{"/locks/old", "/left/old"} {
		c.Want(257, "MKD "+name)
	}
	clock.pass(30 * time.Minute)
	c.Want(257, "MKD /locks/young")
	s.configure(canary + strings.Replace(hour, "1h", "20m", 1))
	s.mustReload()
	// At once, with a line that says what, why, whose and how old.
	s.log.Await(t, "msg=\"lock ended\" lock=/locks/old cause=expire holder="+account+"@127.0.0.1 age=30m", 1)
	c.Want(550, "RMD /locks/old", "taken away", "older than 20m0s")
	other.wantAges("/locks/young", 0, 20*time.Minute)
	other.wantAges("/left/old", 30*time.Minute, 90*time.Minute) // no rule matches it any more: it keeps its own

	s.configure(canary + strings.NewReplacer("1h", "2h", `"0"`, `"10m"`).Replace(hour) + "on_disconnect = \"release\"\n")
	s.mustReload()
	other.wantAges("/locks/young", 0, 10*time.Minute) // idle from the reload on
	c.Conn.Close()
	s.log.Await(t, "lock=/locks/young cause=disconnect", 1)
	other.Want(257, "MKD /locks/young", "expires in 2h0m0s")
	clock.pass(90 * time.Minute)
	other.Want(550, "SITE LOCK INFO /left/old", "no rule makes that name a lock")
}
