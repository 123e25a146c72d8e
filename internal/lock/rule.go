package lock

import "time"

// ReleasePolicy names the sessions that may release a lock.
type ReleasePolicy string

// The release policies.
const (
	// ReleaseAddress is as ReleaseSession. When the acquiring session has ended, its account from its address (of IPv6: the same /64)
	// may release the lock, too, except a session with another job key. While that session is open, a session of its account and address may
	// release the lock if it did Work since the grant, and no other such session tried to acquire, waits for, shares, or lost the lock. A
	// program transfers over several connections; one that wants the lock is another program.
	ReleaseAddress ReleasePolicy = "address"
	ReleaseUser    ReleasePolicy = "user"    // as ReleaseAddress after the end of that session, from any address
	ReleaseSession ReleasePolicy = "session" // the session that acquired it, or one with its job key
	ReleaseAnyone  ReleasePolicy = "anyone"  // every session
)

// Disconnect is the effect that the end of the acquiring connection has on its holds.
type Disconnect string

// The effects of a disconnect.
const (
	KeepOnDisconnect    Disconnect = "keep"
	ReleaseOnDisconnect Disconnect = "release"
)

// Rule describes the life of the locks whose names match. The zero value of a duration turns that limit off.
type Rule struct {
	Match        string        // a doublestar glob over the Name
	MaxAge       time.Duration // the lock ends so long after it was acquired or renewed; 0: never
	MaxIdle      time.Duration // the lock ends so long after the holder's last sign of life, see [Session.Touch] and [Session.Work]; 0: off
	OnDisconnect Disconnect    // "" is KeepOnDisconnect
	Grace        time.Duration // with ReleaseOnDisconnect: the lock ends so long after the connection
	LockDelay    time.Duration // for so long after the lock was taken away from its holder it cannot be acquired
	Release      ReleasePolicy // "" is ReleaseAddress
	AllowCwd     bool          // every session may change into the lock directory
	Protection   *Protection   // the files that only the holder may change; nil: none. Never set in a Hold
	Contention   *Contention   // for clients that try to acquire it while it is held; nil: the defaults. Never set in a Hold
}

// Protection names the files that the locks of a rule protect.
type Protection struct {
	// Paths are patterns for paths of the served tree that only a lock's holder may change: globs, in which $1,
	// $2, ... stand for the text that the wildcards of Match matched, taken literally. Each pattern has all of them, so that a
	// path alone leads to its locks: with the Match /locks/*/*, /data/$1/$2 is a pattern, and /data/$1 is none. The $n of a **
	// is an element of its own; where it is empty, that element is left out.
	Paths []string
	// WriteAs names the sessions that change them under the hold of a session that has ended.
	WriteAs WritePolicy
	// Automatic makes a path that another rule protects, too, need only the lock of that rule.
	Automatic bool
	// Advises makes the paths known, see [Rules.AutomaticLock], without any refusal.
	Advises bool
}

// WritePolicy names the sessions that may change the files that a held lock protects. Files in its directory may be changed by every
// session that acts for the holder: programs make a connection for each command, and have no job key.
type WritePolicy string

// The write policies.
const (
	WriteAsHolder  WritePolicy = "holder"  // the session that acquired it, and those of its account with its job key; "" is the same
	WriteAsAccount WritePolicy = "account" // every session that acts for the holder
)

// MemberPolicy names the sessions that may acquire locks below a held lock.
type MemberPolicy string

// The member policies.
const (
	MembersOfHolder MemberPolicy = "holder" // those that may release it; "" is the same
	MembersAnyone   MemberPolicy = "anyone"
)

// Contention is for clients that try to acquire a lock while others hold it. The zero value is the defaults.
type Contention struct {
	Wait         time.Duration // how long an acquire waits; 0: not at all
	Shared       []string      // the accounts that may hold it together
	ReadersShare bool          // with no Shared: sessions that may only read hold it together, see SetReader
	Members      MemberPolicy  // the sessions that may acquire locks below it while it is held
	Limit        int           // at most so many locks of the rule directly below one directory; 0: any number
}
