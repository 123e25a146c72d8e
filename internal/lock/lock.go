// Package lock says who holds which lock, who may have it next, and until when.
//
// Its types: a [Name] is a path in the served tree; a [Rule] says how locks of
// some names live; a [Hold] is one grant of a name to one [Owner], marked with a
// fencing [Token]; a [Store] makes changes atomic and lasting; a [Table] is the
// one owner of lock state in a process, a [Session] is what a client is to it, and a [Waiting] what it waits for.
//
// What is promised: of the holds of one name at most one is exclusive at any time;
// a client that waits for a lock gets it before all that came later and want the same, and so does one that polls for it where the
// rule has [QueueFair];
// tokens of one server grow with every grant, across releases and restarts; a hold
// is ended by its token and never by its name alone, so that nothing ends a newer
// hold by mistake.
//
// What is not: a client that was told of its grant and then paused for longer than
// the lock's age goes on believing that it holds it. Compare tokens, or let the
// server refuse the write.
//
// Start reading at [Table] and [Session].
package lock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"strconv"
	"strings"
	"time"
)

// Name is the name of a lock: a slash-separated absolute path in the served
// tree, cleaned, the links in its parent resolved. It is a string of bytes as the
// client sent them, in no particular encoding. "/" is the tree itself and never a lock.
type Name string

// Parent returns the directory that the name lies in.
func (n Name) Parent() Name { return Name(path.Dir(string(n))) }

// Base returns the last element of the name.
func (n Name) Base() string { return path.Base(string(n)) }

// Within reports whether n is dir itself or lies below it.
func (n Name) Within(dir Name) bool {
	if dir == "/" || n == dir {
		return true
	}
	return strings.HasPrefix(string(n), string(dir)+"/")
}

// Depth returns how many elements the name has; 0 for "/".
func (n Name) Depth() int {
	if n == "/" {
		return 0
	}
	return strings.Count(string(n), "/")
}

// Token is a fencing token (Kleppmann 2016; Chubby's sequencer): a number that
// grows with every grant of one server. It is the revision of the store, too.
// 0 is no token.
type Token uint64

// SessionID tells one client connection from every other, also from those
// before a restart of the server. 0 is no session.
type SessionID uint64

// String returns the number of the server's start and that of the session since then: "3-17".
func (id SessionID) String() string {
	return strconv.FormatUint(uint64(id>>32), 10) + "-" + strconv.FormatUint(uint64(uint32(id)), 10)
}

// ParseSessionID reads what String writes.
func ParseSessionID(text string) (SessionID, error) {
	start, number, _ := strings.Cut(text, "-")
	high, err := strconv.ParseUint(start, 10, 32)
	low, lerr := strconv.ParseUint(number, 10, 32)
	if err != nil || lerr != nil {
		return 0, fmt.Errorf("%q is no session id; one looks like 3-17", text)
	}
	return SessionID(high<<32 | low), nil
}

// Owner is whom a hold belongs to.
type Owner struct {
	Account string    // the account that logged in; "host" for a program on the server's own machine
	Address string    // its IP address, without the port
	Session SessionID // the connection that acquired it; 0 for the host
	Nonce   string    // what the client gave with SITE LOCK AS, or ""
}

// HostAccount is the Account of holds that a program on the host made with mkdir.
const HostAccount = "host"

// String returns account@address, or the account alone.
func (o Owner) String() string {
	if o.Address == "" {
		return o.Account
	}
	return o.Account + "@" + o.Address
}

// Instant is a moment on both clocks: Boot for ages, Wall for people and for the
// time after another boot.
type Instant struct {
	Wall   time.Time
	Boot   time.Duration // since boot, suspend included (CLOCK_BOOTTIME); may be negative after a restart
	BootID string        // which boot
}

// Clock is where a table takes its time from.
type Clock interface {
	Now() Instant
}

// ReleasePolicy says who may give a lock back.
type ReleasePolicy string

// The release policies.
const (
	// ReleaseAddress is as ReleaseSession. When the acquiring session has ended, its account from its address (of IPv6: the same /64)
	// may release the lock, too. While that session lives, such a session may if it did Work since the grant: a program transfers over
	// several connections. But then no session of that account and address may have been refused the lock since the grant, wait for it,
	// or have lost it: that would be another program.
	ReleaseAddress ReleasePolicy = "address"
	ReleaseUser    ReleasePolicy = "user"    // as ReleaseSession; when that session has ended, its account
	ReleaseSession ReleasePolicy = "session" // the session that acquired it, or one with its nonce
	ReleaseAnyone  ReleasePolicy = "anyone"  // whoever asks
)

// Disconnect says what the end of the acquiring connection does to its holds.
type Disconnect string

// What a disconnect does.
const (
	KeepOnDisconnect    Disconnect = "keep"
	ReleaseOnDisconnect Disconnect = "release"
)

// Rule says how the locks whose names match live. The zero value of each
// duration turns that limit off.
type Rule struct {
	Match        string        // a doublestar glob over the Name
	MaxAge       time.Duration // ended so long after it was acquired or renewed; 0: never
	MaxIdle      time.Duration // ended so long after the holder's last sign of life, see [Session.Touch] and [Session.Work]; 0: off
	OnDisconnect Disconnect    // "" is KeepOnDisconnect
	Grace        time.Duration // with ReleaseOnDisconnect: so long after it
	LockDelay    time.Duration // nobody gets it for so long after it was taken away
	Release      ReleasePolicy // "" is ReleaseAddress
	AllowCwd     bool          // anyone may change into the lock directory
	Protection   *Protection   // what only its holder may change; nil: nothing. Never set in a Hold
	Contention   *Contention   // for clients that want it while others hold it; nil: the defaults. Never set in a Hold
}

// Protection says what the locks of a rule protect.
type Protection struct {
	// Paths are patterns for paths of the served tree that only a lock's holder may change: globs, in which $1,
	// $2, ... stand for what the wildcards of Match matched, taken literally. Each pattern has all of them, so that a
	// path leads to its locks without a look at what is held. The $n of a ** is an element of its own; where it is
	// empty, that element is left out.
	Paths []string
	// WriteAs says which sessions change them by the hold of a session that has ended.
	WriteAs WritePolicy
}

// WritePolicy says which sessions may change what a held lock protects. What lies in its directory may be changed by every
// session that speaks for it: programs make a connection for each command, and know no nonce.
type WritePolicy string

// The write policies.
const (
	WriteAsHolder  WritePolicy = "holder"  // the session that acquired it, and those of its account with its nonce; "" is the same
	WriteAsAccount WritePolicy = "account" // every session that speaks for it
)

// MemberPolicy says who may acquire locks below a held lock.
type MemberPolicy string

// The member policies.
const (
	MembersOfHolder MemberPolicy = "holder" // those that may release it; "" is the same
	MembersAnyone   MemberPolicy = "anyone"
)

// QueuePolicy says whether clients that try again and again have a place in the queue.
type QueuePolicy string

// The queue policies.
const (
	QueueOff  QueuePolicy = "off"  // only clients that wait have a place; those that poll compete
	QueueFair QueuePolicy = "fair" // clients that poll keep their place, for at most twice their last interval
)

// Contention says what becomes of clients that want a lock which others hold. The zero value is the defaults.
type Contention struct {
	Wait         time.Duration // how long AcquireOrWait waits; 0: not at all
	Queue        QueuePolicy   // "" is QueueOff
	QueueHold    time.Duration // with QueueFair: how long a freed lock is kept for one that polls, at most; 0: as QueueOff
	Reentrant    bool          // the holding session may take it again, and again
	Shared       []string      // the accounts that may hold it together
	ReadersShare bool          // with no Shared: the sessions that may only read hold it together, see SetReader
	Members      MemberPolicy  // who may acquire locks below it while it is held
	Limit        int           // at most so many locks of the rule directly below one directory; 0: any number
}

// Hold is one grant of a name. Rule is a copy of the rule it was granted under,
// kept up to date by reloads as the documentation of [Table.SetRules] says.
type Hold struct {
	Token    Token
	Owner    Owner
	Acquired Instant // when it was granted
	Renewed  Instant // when its age was last counted from anew; Acquired at first
	Rule     Rule
	Shared   bool // others may hold the name at the same time, shared, too
	// Adopted is the token of the hold that this one was adopted from. It is known only to the session that adopts, from AcquireOrWait; zero
	// otherwise.
	Adopted Token
	// Ended is when the acquiring connection ended, while the hold waits for its
	// Grace; zero otherwise.
	Ended Instant
	// Directory tells the lock's directory from another of the same name that is made later.
	// It is the store's business; zero when there is none.
	Directory DirectoryID
}

// Host reports whether a program on the host made the lock.
func (h Hold) Host() bool { return h.Owner.Account == HostAccount && h.Owner.Session == 0 }

// DirectoryID identifies one directory on disk for as long as it exists.
type DirectoryID struct {
	Inode uint64
	Birth int64 // nanoseconds since 1970, as coarse as the file system's clock; 0 where it records none
}

// Tombstone is a directory that the last lock of a name had.
type Tombstone struct {
	Name      Name
	Directory DirectoryID
	Token     Token   // the revision of the release
	At        Instant // when it was released
}

// Record is all that a store knows of one name: Revision is the token of the
// last change, Holds are those that stand.
type Record struct {
	Name     Name
	Revision Token
	Holds    []Hold
}

// Cause says why a record changed.
type Cause string

// The causes of changes; these words stand in the journal.
const (
	CauseAcquire    Cause = "acquire"
	CauseAdopt      Cause = "adopt" // the same nonce took it up again
	CauseRenew      Cause = "renew"
	CauseRelease    Cause = "release"
	CauseExpire     Cause = "expire" // older than its age
	CauseIdle       Cause = "idle"   // no sign of life
	CauseBreak      Cause = "break"  // by an administrator
	CauseDisconnect Cause = "disconnect"
	CauseUndeliver  Cause = "undelivered" // the grant could not be told to the client
	CauseUndo       Cause = "undo"        // the directory could not be made
	CauseHostMade   Cause = "host-made"
	CauseHostGone   Cause = "host-removed"
	CauseRules      Cause = "rules"   // a reload changed its rule
	CauseUnknown    Cause = "unknown" // the store has something else than the server knew, and does not say why
)

// Change asks a store to replace all holds of one name, if nobody else did meanwhile.
type Change struct {
	Name  Name
	If    Token  // the Revision that the caller knows; 0: no record
	Holds []Hold // what is to stand; none: released. A hold with Token 0 is new and gets the new revision
	Cause Cause
	By    Owner  // who asked
	Note  string // for the journal's reader
}

// Event is a change that somebody else made: another server, a program on the host.
type Event struct {
	Record Record
	Cause  Cause
}

// Store makes a change atomic and lasting. It never waits for a lock to come free.
// A store is for use by several goroutines, and serialises changes of one name itself.
type Store interface {
	// Commit makes the change and returns its revision, which is larger than every one before, or
	// an error, and then nothing has changed: a *ConflictError if the record is not at change.If,
	// ErrNotEmpty if the directory of a lock that is to be released has something in it,
	// ErrNoParent if there is no directory to make the lock in, ErrNotDirectory if a file has the name.
	// An error that matches ErrUncertain means that nobody knows whether it changed; a *SuspendedError that no change is
	// possible now.
	Commit(ctx context.Context, change Change) (Token, error)
	// Get returns the record of a name as it is; without holds, and at revision 0, if nobody holds it. Of a name of which an uncertain
	// change may still be under way it finds out first what becomes of that, or fails.
	Get(ctx context.Context, name Name) (Record, error)
	// All yields every record with at least one hold. It stops at the first error.
	All(ctx context.Context) iter.Seq2[Record, error]
	// Watch yields what others change from now on, until ctx ends, and what became of a change of which Commit could not tell: the
	// record as it is, at its revision; without holds, at one above every earlier change of it. Of one that was not made after all
	// that is the record from before.
	Watch(ctx context.Context) iter.Seq[Event]
}

// Looker is a [Store] whose holds a program on the host may end.
type Looker interface {
	// Look looks at one held lock, and returns what the host changed, which Watch yields, too. It returns false if nothing
	// changed, if it cannot tell within 100 ms, and while the name is being changed.
	Look(ctx context.Context, name Name) (Event, bool)
}

// The errors of this package. ErrHeld matches [fs.ErrExist], ErrNotHeld and ErrNoParent match [fs.ErrNotExist].
var (
	ErrHeld         error = &kind{"held", fs.ErrExist}
	ErrNotHeld      error = &kind{"not held", fs.ErrNotExist}
	ErrNoParent     error = &kind{"no such directory to make it in", fs.ErrNotExist}
	ErrNotYours     error = &kind{"not yours", fs.ErrPermission}
	ErrStale              = errors.New("the token is not the lock's any more")
	ErrMembers            = errors.New("there are locks below it")
	ErrNotEmpty           = errors.New("its directory is not empty")
	ErrOccupied     error = &kind{"a directory that is not empty has that name, so it is no lock", fs.ErrExist}
	ErrNotDirectory       = errors.New("a file has that name")
	ErrNoRule             = errors.New("no rule makes that name a lock")
	ErrConflict           = errors.New("somebody else changed it")
	ErrUncertain          = errors.New("the result is unknown")
	ErrUnrecorded         = errors.New("the release could not be recorded, the lock is still held")
	ErrClosed             = errors.New("the store is closed")
)

type kind struct {
	text string
	is   error
}

func (k *kind) Error() string        { return k.text }
func (k *kind) Is(target error) bool { return target == k.is }

// ConflictError is returned by [Store.Commit] with the record as it is. It matches ErrConflict.
type ConflictError struct {
	Record Record
	Cause  Cause // why it is so, if the store knows
}

func (e *ConflictError) Error() string   { return string(e.Record.Name) + ": somebody else changed it" }
func (e *ConflictError) Is(t error) bool { return t == ErrConflict }
