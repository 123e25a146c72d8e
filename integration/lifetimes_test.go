package integration

import (
	"runtime"
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
	c.want(250, "CWD /locks")
	for _, line := range []string{"/locks/short/a expires in 5m0s", "/locks/endless/a never expires", "/locks/a expires in 1h0m0s"} {
		name, life, _ := strings.Cut(line, " ")
		c.want(257, "MKD "+name, life)
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
	c.want(250, "RMD /locks/endless/a")
	c.want(550, "RMD /locks/short/a", "older than 5m0s")
}

func TestRenewGivesAFullAgeToItsHolderOnly(t *testing.T) {
	t.Parallel()
	s, clock := startStepped(t, hour)
	c, other := s.session(account), s.session("other")
	granted := token(c.want(257, "MKD /locks/job"))
	clock.pass(50 * time.Minute)
	other.want(550, "SITE LOCK RENEW /locks/job", "not yours")
	r := c.want(200, "SITE LOCK RENEW /locks/job", "expires in 1h0m0s")
	if token(r) != granted {
		t.Errorf("%v, want token %d", r, granted)
	}
	clock.pass(50 * time.Minute)
	other.wantAges("/locks/job", 100*time.Minute, 10*time.Minute)
	clock.pass(10 * time.Minute)
	other.want(257, "MKD /locks/job")
	c.want(550, "SITE LOCK RENEW /locks/job", "taken away", "older than 1h0m0s")
}

func TestClientMayAskForAShorterAge(t *testing.T) {
	t.Parallel()
	s, clock := startStepped(t, hour)
	c := s.session(account)
	c.want(200, "SITE LOCK AGE 300")
	c.want(257, "MKD /locks/short", "expires in 5m0s")
	c.want(200, "SITE LOCK AGE 7200")
	c.want(257, "MKD /locks/long", "expires in 1h0m0s")
	c.want(200, "SITE LOCK AGE 0")
	c.want(257, "MKD /locks/usual", "expires in 1h0m0s")
	clock.pass(4 * time.Minute)
	c.want(200, "SITE LOCK RENEW /locks/short", "expires in 5m0s")
	clock.pass(4 * time.Minute)
	c.want(211, "SITE LOCK INFO /locks/short")
	clock.pass(time.Minute)
	c.want(550, "RMD /locks/short", "older than 5m0s")
	c.want(250, "RMD /locks/usual")
}

func TestHolderIsToldHowItLostItsLock(t *testing.T) {
	t.Parallel()
	s, clock := startStepped(t, `
[[lock]]
match = "**/phone_lock"
max_age = "6m"
[[lock]]
match = "/idle/**"
max_age = "1h"
max_idle = "6m"
`)
	c := s.session(account)
	c.want(257, "MKD /data")
	c.want(257, "MKD /data/phone_lock")
	c.want(257, "MKD /idle/job")
	clock.pass(6 * time.Minute)
	clock.step(2*time.Minute, 2*time.Minute)
	for line, want := range map[string]string{
		"RMD /data/phone_lock": "/data/phone_lock: taken away 2m?s ago: older than 6m0s",
		"RMD /idle/job":        "/idle/job: taken away 2m?s ago: no sign of life for 6m0s",
	} {
		got := c.want(550, line).text
		before, after, _ := strings.Cut(want, "?")
		if !strings.HasPrefix(got, before) || !strings.HasSuffix(got, after) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
		c.want(550, line, "not held") // it is told once
	}
}

func TestNobodyGetsALockSoonAfterItWasTakenAway(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		take func(s *server, clock *clock, holder *session)
		back bool // it was given back, so there is no delay
	}{
		{"reaped", func(_ *server, clock *clock, _ *session) { clock.pass(time.Hour) }, false},
		{"broken", func(s *server, _ *clock, _ *session) { s.command("break", "/locks/job") }, false},
		{"disconnected", func(s *server, _ *clock, holder *session) {
			holder.conn.Close()
			s.log.await(s.t, "cause=disconnect", 1)
		}, false},
		{"given back", func(_ *server, _ *clock, holder *session) { holder.want(250, "RMD /locks/job") }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, clock := startStepped(t, hour+"on_disconnect = \"release\"\nlock_delay = \"10m\"\n")
			holder, other := s.session(account), s.session("other")
			holder.want(257, "MKD /locks/job")
			tc.take(s, clock, holder)
			if tc.back {
				other.want(257, "MKD /locks/job")
				return
			}
			r := other.want(550, "MKD /locks/job", "kept back for ")
			if !strings.HasSuffix(r.text, "after it was taken away") {
				t.Errorf("told %q", r.text)
			}
			clock.pass(9 * time.Minute)
			other.want(550, "MKD /locks/job", "kept back for ")
			clock.pass(time.Minute)
			other.want(257, "MKD /locks/job")
		})
	}
}

func TestWhoMayGiveALockBack(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		policy string
		who    string // of another session
		ended  bool   // the acquiring session has ended
		may    bool
	}{
		{"address", account, false, false},
		{"address", account, true, true},
		{"address", "other", true, false},
		{"user", account, false, false},
		{"user", account, true, true},
		{"user", "other", true, false},
		{"session", account, false, false},
		{"session", account, true, false},
		{"anyone", account, false, true},
		{"anyone", "other", false, true},
		{"anyone", "other", true, true},
	} {
		name := tc.policy + " " + tc.who
		if tc.ended {
			name += ", the session has ended"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, hour+"release = \""+tc.policy+"\"\n")
			holder, another := s.session(account), s.session(tc.who)
			holder.want(257, "MKD /locks/job")
			if tc.ended {
				holder.want(221, "QUIT")
				s.onlySessionOf(t, tc.who)
			}
			if tc.may {
				another.want(250, "RMD /locks/job")
				return
			}
			another.want(550, "RMD /locks/job", "not yours: held by "+account)
			if !tc.ended {
				holder.want(250, "RMD /locks/job")
			}
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
	holder.want(257, "MKD /site_lock")
	holder.want(221, "QUIT")
	await(t, "the holder's session ends", func() bool { return len(s.sessions(account)) == 2 })
	const refusal = "not yours: held by " + account + "@127.0.0.1 for "
	if r := elsewhere.want(550, "RMD /site_lock", refusal); !strings.HasSuffix(r.text, ", your account but another address") {
		t.Errorf("told %q", r.text)
	}
	elsewhere.want(550, "SITE LOCK RENEW /site_lock", refusal)
	same.want(250, "RMD /site_lock")
}

func TestNonceMakesTwoConnectionsOneJob(t *testing.T) {
	t.Parallel()
	s := startServer(t, hour+"release = \"session\"\n")
	first, second, stranger := s.session(account), s.session(account), s.session("other")
	for _, c := range []*session{first, second, stranger} {
		c.want(200, "SITE LOCK AS job-17")
	}
	old := token(first.want(257, "MKD /locks/job"))
	stranger.want(550, "MKD /locks/job", "held by "+account)
	stranger.want(550, "RMD /locks/job", "not yours")
	if adopted := token(second.want(257, "MKD /locks/job")); adopted <= old {
		t.Errorf("adopted with token %d after %d", adopted, old)
	}
	second.want(200, "SITE LOCK AS another")
	s.session(account).want(550, "RMD /locks/job", "not yours")
	first.want(250, "RMD /locks/job") // the same job still
	stranger.want(257, "MKD /locks/job")
	first.want(501, "SITE LOCK AS two words")
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
		c.want(257, "MKD "+name)
	}
	clock.pass(30 * time.Minute)
	c.want(257, "MKD /locks/young")
	s.configure(canary + strings.Replace(hour, "1h", "20m", 1))
	s.mustReload()
	// At once, with a line that says what, why, whose and how old.
	s.log.await(t, "msg=\"lock ended\" lock=/locks/old cause=expire holder="+account+"@127.0.0.1 age=30m", 1)
	c.want(550, "RMD /locks/old", "taken away", "older than 20m0s")
	other.wantAges("/locks/young", 0, 20*time.Minute)
	other.wantAges("/left/old", 30*time.Minute, 90*time.Minute) // no rule matches it any more: it keeps its own

	s.configure(canary + strings.NewReplacer("1h", "2h", `"0"`, `"10m"`).Replace(hour) + "on_disconnect = \"release\"\n")
	s.mustReload()
	other.wantAges("/locks/young", 0, 10*time.Minute) // idle from the reload on
	c.conn.Close()
	s.log.await(t, "lock=/locks/young cause=disconnect", 1)
	other.want(257, "MKD /locks/young", "expires in 2h0m0s")
	clock.pass(90 * time.Minute)
	other.want(550, "SITE LOCK INFO /left/old", "no rule makes that name a lock")
}
