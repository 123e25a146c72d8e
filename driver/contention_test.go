package driver

import (
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// contention sets the rules of /locks, and some others.
func contention(c lock.Contention) func(*setup) {
	return func(o *setup) {
		o.rules = []lock.Rule{
			{Match: "/locks/**", MaxAge: 10 * time.Minute, Contention: &c},
			{Match: "/idle/*", MaxIdle: 30 * time.Second},
			{Match: "/cwd/*", MaxAge: 6 * time.Minute, AllowCwd: true},
			{Match: "**/*_lock", Contention: &lock.Contention{Wait: time.Minute}},
		}
	}
}

var patient = contention(lock.Contention{Wait: time.Minute, ReadersShare: true})

func TestMkdWaitsForItsTurn(t *testing.T) {
	inBothModes(t, `
		a MKD /locks/x => 257 "/locks/x" locked, token *
		b MKD /locks/x ...
		- waiting /locks/x 1
		b2 MKD /locks/x ...
		- waiting /locks/x 2
		boss SITE LOCKS => 211-1 locks are held:\n /locks/x: held by phoneacc@*; 2 in the queue\n type=lock;*;waiting=2;mkd=later; /locks/x\n211 End
		boss SITE LOCK INFO /locks/x => 211-*\n held by *\n 2 in the queue\n type=lock;*;waiting=2;mkd=later; /locks/x\n211 End
		a RMD /locks/x => 250 *
		b => 257 "/locks/x" locked, token *, expires in 10m0s
		b RMD /locks/x => 250 *
		b2 => 257 *
		a SITE WAIT x => 501 *
		a SITE WAIT 0 => 200 this session does not wait for locks
		a MKD /locks/x => 550 /locks/x: held by other@127.0.0.1 for 0s, expires in 10m0s
		a SITE WAIT 1 => 200 *
		a MKD /locks/x ...
		- waiting /locks/x 1
		- pass 2s
		a => 550 /locks/x: waited 2s: held by other@*; place 1 of 1 in the queue, *
		# the lock is shared by accounts that only read
		reader MKD /locks/y => 257 *
		reader2 MKD /locks/y => 257 *
		reader2 SITE LOCK INFO /locks/y => 211-*\n shared by reader@127.0.0.1 *\n type=lock;*;shared=yes;*;mine=no;*\n type=lock;*;mine=session;*\n211 End`, patient)
}

func TestAWaitThatEndedKeepsItsPlace(t *testing.T) {
	inBothModes(t, `
		boss MKD /locks/x => 257 *
		a SITE WAIT 20 => 200 *
		a MKD /locks/x ...
		- waiting /locks/x 1
		- pass 15s
		b MKD /locks/x ...
		- waiting /locks/x 2
		- pass 5s
		a => 550 /locks/x: waited 20s: held by boss@*; place 1 of 2 in the queue, *
		a SITE LOCK INFO /locks/x => 211-*\n held by *\n 1 in the queue\n your place 1 of 2 in the queue, kept for 5s\n type=lock;*;waiting=1;place=1;mkd=later; /locks/x\n211 End
		- pass 4s
		a MKD /locks/x ...
		- waiting /locks/x 2
		boss RMD /locks/x => 250 *
		a => 257 *
		# b has the lock next: a has used its place
		a RMD /locks/x => 250 *
		b => 257 *
		# a client that does not come back loses it
		a MKD /locks/x ...
		- waiting /locks/x 1
		a2 MKD /locks/x ...
		- waiting /locks/x 2
		- pass 20s
		a => 550 /locks/x: waited 20s: *
		- pass 5s
		a SITE LOCK INFO /locks/x => 211-*\n held by *\n 1 in the queue\n type=lock;*;waiting=1;mkd=later; /locks/x\n211 End
		a MKD /locks/x ...
		- waiting /locks/x 2
		b RMD /locks/x => 250 *
		a2 => 257 *`, patient)
}

func TestAWaitingMkdIsWithdrawn(t *testing.T) {
	plays(t, `
		a MKD /locks/x => 257 *
		b MKD /locks/x ...
		- waiting /locks/x 1
		- close b
		- waiting /locks/x 0
		b MKD /locks/x ...
		- waiting /locks/x 1
		b NOOP ...
		b => 550 /locks/x: the wait ended: another command came, or the session ends
		b => 200 *
		- waiting /locks/x 0
		b2 MKD /locks/x ...
		- waiting /locks/x 1
		a RMD /locks/x => 250 *
		b2 => 257 *
		# the directory above the lock is removed meanwhile
		a MKD /plain => 257 *
		a MKD /plain/x_lock => 257 *
		b2 MKD /plain/x_lock ...
		- waiting /plain/x_lock 1
		- remove /plain
		a RMD /plain/x_lock => 250 *
		b2 => 550 /plain/x_lock: the directory above it does not exist
		- free /plain/x_lock`, patient, plainLocks)
}

// Listings, and making and removing directories, as programs do that remove old locks, are no signs of life.
func TestOnlyTransfersAndChangesAreSignsOfLifeOfAnEndedSession(t *testing.T) {
	for line, lives := range map[string]string{
		"STOR /f": "held", "RETR /f": "held", "DELE /f": "held", "MKD /new": "free", "RMD /dir": "free", "LIST /": "free", "RETR /idle/a/whose": "free", "MKD /idle/a": "free", "MLST /f": "free",
	} {
		t.Run(line, func(t *testing.T) {
			plays(t, `
				- write /f x
				- mkdir /dir
				a MKD /idle/a => 257 *
				a STOR /idle/a/whose <<< mine => 226 *
				- alone
				- pass 15s
				a `+line+` => * >>> *
				- pass 25s
				- `+lives+` /idle/a`, patient, plainLocks)
		})
	}
}

// RMD releases the lock that was acquired by that path, although a link is part of the path now.
func TestRmdReleasesTheLockOfAPathThatBecameALink(t *testing.T) {
	inBothModes(t, `
		- mkdir /a
		- mkdir /b
		a MKD /a/x_lock => 257 *
		b MKD /b/x_lock => 257 *
		- rename /a /c
		- link /a b
		# a path is the name of the lock that is held under it, and is resolved otherwise
		b RMD /a/x_lock => 550 /a/x_lock: not yours*
		a RMD /a/x_lock => 250 *
		b RMD /a/x_lock => 250 *
		- free /a/x_lock
		- free /b/x_lock
		a RMD /a/x_lock => 550 /a/x_lock: not held*`)
}
