package driver

import (
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The fact mkd is the result of MKD by the session now, so a program need not read the text of a 550.
func TestFactsContainTheResultOfMkd(t *testing.T) {
	inBothModes(t, `
		few MKD /one_lock => 257 *
		few SITE LOCK INFO /two_lock => 550 /two_lock: this account holds 1 locks, as many as it may
		few MKD /two_lock => 550 /two_lock: this account holds 1 locks, as many as it may
		a MKD /pool/1 => 257 *
		b MKD /pool/2 => 550 *
		b SITE LOCK INFO /pool/2 => 211-Lock /pool/2\n not held: the limit of 1 locks is reached*\n type=busy;waiting=0;mkd=later; /pool/2\n211 End
		a RMD /pool/1 => 250 *
		b SITE LOCK INFO /pool/2 => 211-Lock /pool/2\n not held\n type=free;waiting=0;mkd=granted; /pool/2\n211 End
		b SITE LOCK INFO /none => 550 /none: no rule makes that name a lock; /none_lock would be one
		b SITE LOCK INFO /a-lock => 550 /a-lock: no rule makes that name a lock; /a_lock would be one
		a MKD /a_lock => 257 *
		b SITE LOCK INFO /a_lock => 211-*;mine=no;waiting=0;mkd=later; /a_lock\n211 End
		# lock_delay
		boss SITE LOCK BREAK /a_lock => 550 *
		boss MKD /late/x => 257 *
		- pass 2m
		boss SITE LOCK INFO /late/x => 211-*\n not held: cannot be acquired for *\n type=busy;waiting=0;mkd=later; /late/x\n211 End`, func(o *setup) {
		o.rules = []lock.Rule{
			{Match: "/**/*_lock", MaxAge: time.Hour},
			{Match: "/pool/*", MaxAge: time.Hour, Contention: &lock.Contention{Limit: 1}},
			{Match: "/late/*", MaxAge: time.Minute, LockDelay: time.Hour},
		}
	})
}

// The facts contain the idle limit, and the grace of the client or of the rule.
func TestFactsHaveTheLimitsOfALock(t *testing.T) {
	plays(t, `
		a SITE LOCK DISCONNECT RELEASE 15 => 200 *
		a MKD /x_lock => 257 *
		- late 5s
		a SITE LOCK INFO /x_lock => 211-*;held=5.000;expires=*;left=30.000;longest=3595.000;age=3600.000;idle=30.000;grace=10.000;shared=no;*\n211 End
		a MKD /half;50%_lock => 257 *
		a SITE LOCK INFO /half;50%_lock => 211-*;mkd=later; /half;50%_lock\n211 End`, func(o *setup) {
		o.rules = []lock.Rule{{Match: "/*_lock", MaxAge: time.Hour, MaxIdle: 30 * time.Second, OnDisconnect: lock.ReleaseOnDisconnect, Grace: 10 * time.Second}}
	})
	f := new(facts)
	if f.add("account", "a;b c%"); f.String() != "account=a%3Bb%20c%25;" {
		t.Errorf("escaped: %s", f)
	}
}
