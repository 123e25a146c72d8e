package lock_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// policies are the same rule for each release policy.
func policies() []lock.Rule {
	return []lock.Rule{
		{Match: "/address/*", MaxAge: time.Hour},
		{Match: "/user/*", MaxAge: time.Hour, Release: lock.ReleaseUser},
		{Match: "/session/*", MaxAge: time.Hour, Release: lock.ReleaseSession},
		{Match: "/anyone/*", MaxAge: time.Hour, Release: lock.ReleaseAnyone},
	}
}

func TestWhoSpeaksForALockAndWhoMayReleaseIt(t *testing.T) {
	const all, none = "address user session anyone", ""
	mine := func(_ *world, holder *lock.Session) *lock.Session { return holder }
	job := func(account, nonce string) func(*world, *lock.Session) *lock.Session {
		return func(w *world, _ *lock.Session) *lock.Session { return w.job(account, nonce) }
	}
	at := func(account, address, nonce string) func(*world, *lock.Session) *lock.Session {
		return func(w *world, _ *lock.Session) *lock.Session {
			s := w.openAt(account, address)
			if err := s.SetNonce(nonce); err != nil {
				w.t.Fatal(err)
			}
			return s
		}
	}
	for _, test := range []struct {
		who     string
		session func(w *world, holder *lock.Session) *lock.Session
		ended   bool   // the holder's session has ended
		speaks  string // under which policies
	}{
		{"the acquiring session", mine, false, all},
		{"the same nonce", job("a", "job"), false, all},
		{"the same nonce, holder ended", job("a", "job"), true, all},
		{"the same nonce from elsewhere", at("a", "198.51.100.1", "job"), false, all},
		{"the same nonce from elsewhere, holder ended", at("a", "198.51.100.1", "job"), true, all},
		{"the same account", job("a", ""), false, none},
		{"the same account, holder ended", job("a", ""), true, "address user"},
		{"the same account from a mapped address, holder ended", at("a", "::ffff:192.0.2.1", ""), true, "address user"},
		{"the same account from elsewhere, holder ended", at("a", "192.0.2.2", ""), true, "user"},
		{"the same account from an unknown address, holder ended", at("a", "", ""), true, "user"},
		{"another nonce, holder ended", job("a", "x"), true, "address user"},
		{"another account with the nonce", job("b", "job"), false, none},
		{"another account with the nonce, holder ended", job("b", "job"), true, none},
	} {
		for policy := range strings.FieldsSeq(all) {
			t.Run(test.who+", "+policy, func(t *testing.T) {
				w := newWorld(t, policies()...)
				n := lock.Name("/" + policy + "/x")
				holder := w.job("a", "job")
				hold := w.acquire(holder, n)
				s := test.session(w, holder)
				if test.ended {
					w.end(holder)
				}
				speaks := strings.Contains(test.speaks, policy)
				got, err := s.SpeaksFor(n)
				if speaks && (err != nil || got.Token != hold.Token) || !speaks && !errors.Is(err, lock.ErrNotYours) {
					t.Errorf("speaks for it: %v", err)
				}
				if _, err := s.Renew(ctx, n); speaks != (err == nil) {
					t.Errorf("renew: %v", err)
				}
				if _, _, ok := s.HoldsUntil(); ok != speaks {
					t.Errorf("holds until: %v", ok)
				}
				if speaks || policy == "anyone" {
					w.release(s, n, nil)
					w.holds(n, "")
				} else {
					w.release(s, n, lock.ErrNotYours)
					w.holds(n, "a")
				}
			})
		}
	}
}

func TestWhichAddressesAreTheSame(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"::ffff:192.0.2.1", "::ffff:192.0.2.2", false}, // of one /64 as IPv6
		{"::1", "::ffff:192.0.2.1", false},
		{"2001:db8::1", "2001:db8::ffff:0:0:2", true},
		{"2001:db8::1", "2001:DB8:0:0::1", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"2001:db8::1%eth0", "2001:db8::2", true},
		{"fe80::1%eth0", "fe80::1%eth0", true},
		{"fe80::1%eth0", "fe80::2%eth0", false}, // all machines of a network have that /64
		{"192.0.2.1", "", false},
		{"", "", true},
		{"nonsense", "nonsense", true},
		{"nonsense", "192.0.2.1", false},
	} {
		for range 2 {
			w := newWorld(t, policies()...)
			s := w.openAt("a", test.a)
			w.acquire(s, "/address/x")
			w.end(s)
			if _, err := w.openAt("a", test.b).SpeaksFor("/address/x"); test.same != (err == nil) {
				t.Errorf("%q for %q: %v", test.b, test.a, err)
			}
			test.a, test.b = test.b, test.a
		}
	}
}

func TestRefusedReleaseSaysWhy(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("a"), w.open("b")
	err := w.release(a, "/locks/x", lock.ErrNotHeld)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	w.acquire(a, "/locks/x")
	w.clock.Advance(12 * time.Second)
	err = w.release(b, "/locks/x", lock.ErrNotYours)
	wantText(t, err, "not yours: held by a@192.0.2.1 for 12s")
	const elsewhere = "not yours: held by a@192.0.2.1 for 12s, your account but another address"
	wantText(t, w.release(w.open("a"), "/locks/x", lock.ErrNotYours), "not yours: held by a@192.0.2.1 for 12s") // its session lives
	wantText(t, w.release(w.openAt("a", "192.0.2.2"), "/locks/x", lock.ErrNotYours), elsewhere)
	w.end(a)
	wantText(t, w.release(w.openAt("a", "192.0.2.2"), "/locks/x", lock.ErrNotYours), elsewhere)
	wantText(t, w.release(w.openAt("b", "192.0.2.2"), "/locks/x", lock.ErrNotYours), "not yours: held by a@192.0.2.1 for 12s")
}

func TestLateReleaseOfALostLockEndsNoNewerHold(t *testing.T) {
	for _, policy := range []string{"address", "user", "anyone"} {
		w := newWorld(t, policies()...)
		n := lock.Name("/" + policy + "/x")
		late := w.open("a")
		w.acquire(late, n)
		w.clock.Advance(time.Hour)
		w.expires(n)
		next := w.open("a")
		w.acquire(next, n)
		w.end(next) // the hold is the account's own now, but late has lost one
		if _, err := late.SpeaksFor(n); !errors.Is(err, lock.ErrNotYours) {
			t.Error(err)
		}
		w.clock.Advance(5 * time.Second)
		err := w.release(late, n, lock.ErrNotYours)
		wantText(t, err, "taken away 5s ago: older than 1h0m0s")
		if errors.Is(err, lock.ErrNotHeld) {
			t.Error("matches ErrNotHeld")
		}
		w.holds(n, "a")
		w.release(late, n, nil) // its own release cleared that
		w.holds(n, "")
	}
}

func TestAReleaseOfALaterHoldForgetsTheLoss(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	w.acquire(s, "/locks/x")
	w.clock.Advance(10 * time.Minute)
	w.expires("/locks/x")
	w.acquire(s, "/locks/x") // its own again, before it was told
	w.release(s, "/locks/x", nil)
	if _, ok := lock.Lost(s, "/locks/x"); ok {
		t.Error("the loss of the hold before is remembered")
	}
	w.acquire(w.open("b"), "/locks/x")
	wantText(t, w.release(s, "/locks/x", lock.ErrNotYours), "not yours: held by b@192.0.2.1 for 0s")
}

func TestLossIsThisSessionsAndThisNamesOnly(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	w.acquire(s, "/locks/x")
	w.clock.Advance(10 * time.Minute)
	w.expires("/locks/x")
	dead := w.open("a")
	w.acquire(dead, "/locks/x")
	w.acquire(dead, "/locks/y")
	w.end(dead)
	w.release(s, "/locks/y", nil)
	w.release(w.open("a"), "/locks/x", nil)
}

func TestSessionThatLostTooMuchSpeaksForNothingOfItsAccount(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	for i := range lock.MaxLost + 1 {
		w.acquire(s, lock.Name(fmt.Sprintf("/locks/%d", i)))
	}
	w.clock.Advance(10 * time.Minute)
	if n := w.Expire(ctx); n != lock.MaxLost+1 {
		t.Fatal(n)
	}
	told := 0
	for i := range lock.MaxLost + 1 {
		if _, ok := lock.Lost(s, lock.Name(fmt.Sprintf("/locks/%d", i))); ok {
			told++
		}
	}
	if told != lock.MaxLost {
		t.Errorf("remembers %d", told)
	}
	dead := w.open("a")
	for i := range lock.MaxLost + 1 {
		w.acquire(dead, lock.Name(fmt.Sprintf("/locks/%d", i)))
	}
	w.end(dead)
	for i := range lock.MaxLost + 1 {
		w.release(s, lock.Name(fmt.Sprintf("/locks/%d", i)), lock.ErrNotYours)
	}
}

func TestSameJobAdoptsItsHoldUnderANewToken(t *testing.T) {
	for _, ended := range []bool{false, true} {
		w := newWorld(t)
		first := w.job("a", "job")
		old := w.acquire(first, "/locks/x")
		if ended {
			w.end(first)
		}
		w.clock.Advance(time.Minute)
		w.refused(w.job("a", "other"), "/locks/x", lock.ErrHeld)
		w.refused(w.job("b", "job"), "/locks/x", lock.ErrHeld)
		w.refused(w.open("a"), "/locks/x", lock.ErrHeld)
		again := w.job("a", "job")
		hold := w.acquire(again, "/locks/x")
		if hold.Token <= old.Token || hold.Adopted != old.Token || hold.Owner.Session != again.ID() || hold.Acquired != w.clock.Now() {
			t.Errorf("%+v after %+v", hold, old)
		}
		if r := w.stored("/locks/x"); len(r.Holds) != 1 || r.Holds[0].Token != hold.Token || r.Holds[0].Adopted != 0 {
			t.Errorf("stored %+v", r)
		}
		if err := publish(first, "/locks/x", old.Token, func() error { return nil }); !errors.As(err, new(*lock.ProtectedError)) {
			t.Errorf("the old token: %v", err)
		}
		if _, ok := lock.Lost(first, "/locks/x"); ok {
			t.Error("an adopted hold counts as lost")
		}
		w.refused(again, "/locks/x", lock.ErrHeld) // not by the session that acquired it
		w.clock.Advance(10*time.Minute - 1)
		w.expires()
		w.release(again, "/locks/x", nil)
	}
}

func TestNonceIsOfVisibleASCII(t *testing.T) {
	s := newWorld(t).open("a")
	for _, bad := range []string{"a b", "a\r\n", "é", "\x00", fmt.Sprintf("%0129d", 0)} {
		if err := s.SetNonce(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	if err := s.SetNonce("7f3a-job.42"); err != nil || s.Owner().Nonce != "7f3a-job.42" {
		t.Error(err)
	}
	if err := s.SetNonce(""); err != nil || s.Owner().Nonce != "" {
		t.Error(err)
	}
}

func TestNonceGivenLaterDoesNotMarkEarlierHolds(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	w.acquire(s, "/locks/x")
	if err := s.SetNonce("job"); err != nil {
		t.Fatal(err)
	}
	w.refused(w.job("a", "job"), "/locks/x", lock.ErrHeld)
	w.release(s, "/locks/x", nil)
}

func TestUndoEndsJustThatGrant(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	old := w.acquire(s, "/locks/x")
	w.release(s, "/locks/x", nil)
	hold := w.acquire(s, "/locks/x")
	for _, token := range []lock.Token{old.Token, 0, hold.Token + 1} {
		if err := s.Undo(ctx, "/locks/x", token); !errors.Is(err, lock.ErrStale) {
			t.Errorf("token %d: %v", token, err)
		}
	}
	if err := w.open("a").Undo(ctx, "/locks/x", hold.Token); !errors.Is(err, lock.ErrStale) {
		t.Errorf("another session: %v", err)
	}
	w.end(s)
	if err := s.Undo(ctx, "/locks/x", hold.Token); err != nil {
		t.Error(err)
	}
	w.holds("/locks/x", "")
	if err := s.Undo(ctx, "/locks/x", hold.Token); !errors.Is(err, lock.ErrStale) {
		t.Error(err)
	}
	if _, ok := lock.Lost(s, "/locks/x"); ok {
		t.Error("an undone grant counts as lost")
	}
}

func TestBreakEndsTheTokenItWasToldOf(t *testing.T) {
	w := newWorld(t)
	admin := lock.Owner{Account: "root"}
	s := w.open("a")
	old := w.acquire(s, "/locks/x")
	w.release(s, "/locks/x", nil)
	if err := w.breaks("/locks/x", admin, ""); !errors.Is(err, lock.ErrNotHeld) {
		t.Error(err)
	}
	w.acquire(s, "/locks/x")
	if err := w.Break(ctx, "/locks/x", old.Token, admin, ""); !errors.Is(err, lock.ErrStale) {
		t.Error(err)
	}
	w.holds("/locks/x", "a")
	if err := w.breaks("/locks/x", admin, "stuck"); err != nil {
		t.Error(err)
	}
	w.holds("/locks/x", "")
	w.acquire(s, "/locks/x")
	w.store.Inject(func(lock.Change) error { // the host is faster
		w.store.Inject(nil)
		w.store.Outside("/locks/x", lock.CauseHostMade, lock.Hold{Owner: lock.Owner{Account: lock.HostAccount}, Acquired: w.clock.Now()})
		return nil
	})
	if err := w.breaks("/locks/x", admin, ""); !errors.Is(err, lock.ErrStale) {
		t.Error(err)
	}
	w.holds("/locks/x", lock.HostAccount)
	if w.log.count("cause=break holder=a@192.0.2.1 age=0s token=3 by=root note=stuck") != 1 {
		t.Errorf("log: %q", w.log.lines)
	}
}

func TestHoldsUntilTheLastOneEnds(t *testing.T) {
	w := newWorld(t, lock.Rule{Match: "/locks/**", MaxAge: 10 * time.Minute}, lock.Rule{Match: "/ever"})
	s := w.job("a", "job")
	if _, _, ok := s.HoldsUntil(); ok {
		t.Error("speaks for nothing, but holds")
	}
	now := w.clock.Now().Boot
	w.acquire(s, "/locks/1")
	w.clock.Advance(time.Minute)
	w.acquire(s, "/locks/2")
	check := func(who string, s *lock.Session, until time.Duration, never, ok bool) {
		t.Helper()
		gotUntil, gotNever, gotOK := s.HoldsUntil()
		if gotUntil != until || gotNever != never || gotOK != ok {
			t.Errorf("%s: %v %v %v", who, gotUntil, gotNever, gotOK)
		}
	}
	check("the holder", s, now+11*time.Minute, false, true)
	check("its nonce", w.job("a", "job"), now+11*time.Minute, false, true)
	check("the account", w.open("a"), 0, false, false)
	w.acquire(s, "/ever")
	check("the holder", s, 0, true, true)
	w.end(s)
	check("the account, holder ended", w.open("a"), 0, true, true)
	check("another account", w.open("b"), 0, false, false)
}
