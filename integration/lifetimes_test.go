package integration

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
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

func TestNobodyGetsALockSoonAfterItWasTakenAway(t *testing.T) {
	t.Parallel()
	s, clock := startStepped(t, hour+"lock_delay = \"10m\"\n")
	s.session(account).Want(257, "MKD /locks/job")
	clock.pass(time.Hour)
	other := s.session("other")
	for range 2 {
		if r := other.Want(550, "MKD /locks/job", "kept back for "); !strings.HasSuffix(r.Text, "after it was taken away") {
			t.Errorf("told %q", r.Text)
		}
		clock.pass(5 * time.Minute)
	}
	other.Want(257, "MKD /locks/job")
}

func TestWhoMayGiveALockBack(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		policy string
		who    string // of another session
		ended  bool   // the acquiring session has ended
		may    bool
	}{
		{"address", account, true, true},
		{"address", "other", true, false},
		{"user", account, true, true},
		{"session", account, true, false},
		{"anyone", "other", false, true},
	} {
		name := tc.policy + " " + tc.who
		if tc.ended {
			name += ", the session has ended"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, hour+"release = \""+tc.policy+"\"\n")
			holder, another := s.session(account), s.session(tc.who)
			holder.Want(257, "MKD /locks/job")
			if tc.ended {
				holder.Want(221, "QUIT")
				s.onlySessionOf(t, tc.who)
			}
			if tc.may {
				another.Want(250, "RMD /locks/job")
				return
			}
			another.Want(550, "RMD /locks/job", "not yours: held by "+account)
		})
	}
}

// All of 127.0.0.0/8 is this machine on Linux, so that a client can come from another address.
func TestOnlyTheSameAddressGivesALockBack(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs a second address")
	}
	s := startServer(t, "")
	holder, elsewhere, same := s.session(account), s.sessionFrom("127.0.0.2", account), s.session(account)
	holder.Want(257, "MKD /site_lock")
	holder.Want(221, "QUIT")
	harness.Await(t, "the holder's session ends", func() bool { return len(s.sessions(account)) == 2 })
	const refusal = "not yours: held by " + account + "@127.0.0.1 for "
	if r := elsewhere.Want(550, "RMD /site_lock", refusal); !strings.HasSuffix(r.Text, ", your account but another address") {
		t.Errorf("told %q", r.Text)
	}
	elsewhere.Want(550, "SITE LOCK RENEW /site_lock", refusal)
	same.Want(250, "RMD /site_lock")
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
