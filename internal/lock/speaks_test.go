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
	const all, none, here, elsewhere = "address user session anyone", "", "192.0.2.1", "198.51.100.1"
	for _, test := range []struct {
		who    lock.Owner // another session than the holder's, which is a@192.0.2.1 with the nonce "job"
		ended  bool       // the holder's session has ended
		speaks string     // under which policies
	}{
		{lock.Owner{Account: "a", Address: here, Nonce: "job"}, false, all},
		{lock.Owner{Account: "a", Address: here, Nonce: "job"}, true, all},
		{lock.Owner{Account: "a", Address: elsewhere, Nonce: "job"}, false, all},
		{lock.Owner{Account: "a", Address: elsewhere, Nonce: "job"}, true, all},
		{lock.Owner{Account: "a", Address: here}, false, none},
		{lock.Owner{Account: "a", Address: here}, true, "address user"},
		{lock.Owner{Account: "a", Address: "::ffff:" + here}, true, "address user"},
		{lock.Owner{Account: "a", Address: elsewhere}, true, "user"},
		{lock.Owner{Account: "a"}, true, "user"},
		{lock.Owner{Account: "a", Address: here, Nonce: "x"}, true, "address user"},
		{lock.Owner{Account: "b", Address: here, Nonce: "job"}, false, none},
		{lock.Owner{Account: "b", Address: here, Nonce: "job"}, true, none},
	} {
		for policy := range strings.FieldsSeq(all) {
			t.Run(fmt.Sprint(test.who, " ", test.who.Nonce, ", ended ", test.ended, ", ", policy), func(t *testing.T) {
				w := newWorld(t, policies()...)
				n := lock.Name("/" + policy + "/x")
				holder, s := w.job("a", "job"), w.Open(test.who)
				hold := w.acquire(holder, n)
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
	if err := w.release(w.open("a"), "/locks/x", lock.ErrNotHeld); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	a := w.holder("a", "/locks/x")
	w.clock.Advance(12 * time.Second)
	const held, elsewhere = "not yours: held by a@192.0.2.1 for 12s", ", your account but another address"
	wantText(t, w.release(w.open("b"), "/locks/x", lock.ErrNotYours), held)
	wantText(t, w.release(w.open("a"), "/locks/x", lock.ErrNotYours), held) // its session lives
	wantText(t, w.release(w.openAt("a", "192.0.2.2"), "/locks/x", lock.ErrNotYours), held+elsewhere)
	w.end(a)
	wantText(t, w.release(w.openAt("a", "192.0.2.2"), "/locks/x", lock.ErrNotYours), held+elsewhere)
	wantText(t, w.release(w.openAt("b", "192.0.2.2"), "/locks/x", lock.ErrNotYours), held)
}

func TestLateReleaseOfALostLockEndsNoNewerHold(t *testing.T) {
	for _, policy := range []string{"address", "user", "anyone"} {
		w := newWorld(t, policies()...)
		n := lock.Name("/" + policy + "/x")
		late := w.holder("a", n)
		w.pass(time.Hour, n)
		next := w.holder("a", n, "/"+lock.Name(policy)+"/y")
		w.end(next) // the holds are the account's own now, but late has lost one
		if _, err := late.SpeaksFor(n); !errors.Is(err, lock.ErrNotYours) {
			t.Error(err)
		}
		w.release(late, "/"+lock.Name(policy)+"/y", nil) // it lost none of that name
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
	s := w.holder("a", "/locks/x")
	w.pass(10*time.Minute, "/locks/x")
	w.acquire(s, "/locks/x") // its own again, before it was told
	w.release(s, "/locks/x", nil)
	if _, ok := lock.Lost(s, "/locks/x"); ok {
		t.Error("the loss of the hold before is remembered")
	}
	w.holder("b", "/locks/x")
	wantText(t, w.release(s, "/locks/x", lock.ErrNotYours), "not yours: held by b@192.0.2.1 for 0s")
}

func TestSessionThatLostTooMuchSpeaksForNothingOfItsAccount(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	var names []lock.Name
	for i := range lock.MaxLost + 1 {
		names = append(names, lock.Name(fmt.Sprintf("/locks/%d", i)))
		w.acquire(s, names[i])
	}
	w.pass(10*time.Minute, names...)
	w.end(w.holder("a", names...))
	told := 0
	for _, n := range names {
		if err := w.release(s, n, lock.ErrNotYours); errors.As(err, new(*lock.LostError)) {
			told++
		}
	}
	if told != lock.MaxLost {
		t.Errorf("remembers %d", told)
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
		if err := publish(first, "/locks/x", old.Token, nothing); !errors.As(err, new(*lock.ProtectedError)) {
			t.Errorf("the old token: %v", err)
		}
		if _, ok := lock.Lost(first, "/locks/x"); ok {
			t.Error("an adopted hold counts as lost")
		}
		w.refused(again, "/locks/x", lock.ErrHeld) // not by the session that acquired it
		w.pass(10*time.Minute - 1)
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
	s := w.holder("a", "/locks/x")
	w.ok(s.SetNonce("job"))
	w.refused(w.job("a", "job"), "/locks/x", lock.ErrHeld)
	w.release(s, "/locks/x", nil)
}

func TestUndoEndsJustThatGrant(t *testing.T) {
	w := newWorld(t)
	s := w.open("a")
	old := w.acquire(s, "/locks/x").Token
	w.release(s, "/locks/x", nil)
	token := w.acquire(s, "/locks/x").Token
	undo := func(s *lock.Session, token lock.Token) {
		t.Helper()
		if err := s.Undo(ctx, "/locks/x", token); !errors.Is(err, lock.ErrStale) {
			t.Errorf("token %d: %v", token, err)
		}
	}
	undo(s, old)
	undo(s, 0)
	undo(s, token+1)
	undo(w.open("a"), token)
	w.end(s)
	w.ok(s.Undo(ctx, "/locks/x", token))
	w.holds("/locks/x", "")
	undo(s, token)
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
	breaks := func(want error) {
		t.Helper()
		if err := w.Break(ctx, "/locks/x", old.Token, admin, "stuck"); !errors.Is(err, want) || want == nil && err != nil {
			t.Error(err)
		}
	}
	breaks(lock.ErrNotHeld)
	hold := w.acquire(s, "/locks/x")
	breaks(lock.ErrStale)
	w.holds("/locks/x", "a")
	old = hold
	breaks(nil)
	wantText(t, w.release(s, "/locks/x", lock.ErrNotHeld), "taken away 0s ago: broken by root, stuck")
	old = w.acquire(s, "/locks/x")
	w.store.Inject(func(lock.Change) error { // the host is faster
		w.store.Inject(nil)
		w.store.Outside("/locks/x", lock.CauseHostMade, w.host())
		return nil
	})
	breaks(lock.ErrStale)
	w.holds("/locks/x", lock.HostAccount)
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

// A program that transfers over several connections releases over any of them (lftp's mirror --parallel). Another program on the
// same machine does not: one that was refused the lock, waits for it or has lost it, or that transferred nothing.
func TestAnotherConnectionOfTheClientReleases(t *testing.T) {
	const n = lock.Name("/address/x")
	for _, test := range []struct {
		name     string
		before   func(w *world) // the grant
		after    func(w *world) // it
		releases bool
	}{
		{"it worked", nil, nil, true},
		{"another was refused", nil, func(w *world) { w.refused(w.open("a"), n, lock.ErrHeld) }, false},
		{"another was refused and is gone", nil, func(w *world) {
			s := w.open("a")
			w.refused(s, n, lock.ErrHeld)
			w.end(s)
		}, false},
		{"another account was refused", nil, func(w *world) { w.refused(w.open("b"), n, lock.ErrHeld) }, true},
		{"another address was refused", nil, func(w *world) { w.refused(w.openAt("a", "192.0.2.9"), n, lock.ErrHeld) }, true},
		{"another was refused before", func(w *world) {
			first := w.holder("b", n)
			w.refused(w.open("a"), n, lock.ErrHeld)
			w.release(first, n, nil)
		}, nil, true},
		{"another waits", nil, func(w *world) {
			s := w.open("a")
			s.SetWait(time.Minute)
			_, waiting, err := s.AcquireOrWait(ctx, n, func() {})
			w.ok(err)
			w.t.Cleanup(waiting.Withdraw)
		}, false},
		{"another has waited since before", func(w *world) {
			first := w.holder("b", n)
			s := w.open("a")
			s.SetWait(time.Minute)
			holder := w.open("a")
			holder.SetWait(time.Minute)
			_, turn, err := holder.AcquireOrWait(ctx, n, func() {})
			w.ok(err)
			_, waiting, err := s.AcquireOrWait(ctx, n, func() {})
			w.ok(err)
			w.t.Cleanup(waiting.Withdraw)
			w.release(first, n, nil)
			if _, over, err := turn.Poll(ctx); !over || err != nil {
				w.t.Fatal(over, err)
			}
		}, nil, false},
		{"another has lost it", func(w *world) {
			w.holder("a", n)
			w.pass(time.Hour, n)
		}, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, policies()...)
			s := w.open("a")
			if test.before != nil {
				test.before(w)
			}
			w.clock.Advance(time.Second)
			if _, held := w.Get(n); !held {
				w.holder("a", n)
			}
			w.clock.Advance(time.Second)
			if test.after != nil {
				test.after(w)
			}
			s.Work()
			want := lock.ErrNotYours
			if test.releases {
				want = nil
			}
			w.release(s, n, want)
		})
	}
	for policy, owner := range map[string]lock.Owner{
		"address": {Account: "a", Address: "192.0.2.9"}, "user": {Account: "a", Address: "192.0.2.1"}, "session": {Account: "a", Address: "192.0.2.1"},
	} {
		t.Run(policy+" "+owner.String(), func(t *testing.T) {
			w := newWorld(t, policies()...)
			n := lock.Name("/" + policy + "/x")
			w.holder("a", n)
			s := w.Open(owner)
			s.Work()
			w.release(s, n, lock.ErrNotYours)
		})
	}
	t.Run("no work since the grant", func(t *testing.T) {
		w := newWorld(t, policies()...)
		s := w.open("a")
		w.release(s, n, lock.ErrNotHeld)
		s.Work()
		w.clock.Advance(time.Second)
		w.holder("a", n)
		s.Touch()
		w.release(s, n, lock.ErrNotYours)
		w.release(w.open("a"), n, lock.ErrNotYours)
	})
}
