package lock

import "time"

// Hold is one grant of a name to one owner.
type Hold struct {
	Name     Name
	Token    Token
	Owner    Owner
	Acquired Instant // the moment of the grant
	Renewed  Instant // the moment from which its age counts; Acquired at first
	// Automatic is set if a job acquired it by its first look or change, see [Automatic].
	Automatic bool
	Shared    bool // others may hold the name at the same time, shared too
	// Rule is the rule that limits it, never nil and never changed: the one in force for its name, or, if no rule matches the name
	// any more, the last one that did. It has no Contention and no Protection.
	Rule  *Rule
	Asked Asked // the limits that its client set
	// Directory distinguishes the lock's directory from a later one of the same name; zero while there is none.
	Directory DirectoryID
}

// Asked are limits that a client set for the locks that it acquires. They only shorten those of a rule.
type Asked struct {
	Age     time.Duration // 0: none
	Release bool          // the lock ends Grace after the connection
	Grace   time.Duration
}

// DirectoryID identifies one directory on disk for as long as it exists.
type DirectoryID struct {
	Inode  uint64
	Birth  int64  // nanoseconds since 1970, as coarse as the file system's clock; 0 where it records none
	Parent uint64 // the inode of the directory in which it was made
}

// Kind is the effect of a Record.
type Kind uint8

// The kinds of records. A log keeps all of them. A record without a kind is a volatile change: of memory only.
const (
	Granted   Kind = iota + 1 // Hold stands. It replaces the hold of the name with the token Replaces, unless that is 0
	Ended                     // the hold of Hold.Name with Hold.Token no longer stands
	Changed                   // the hold with Hold.Token is now as in Hold: renewed, or with a directory
	Published                 // a change of a file became visible. It changes no hold
)

// Cause is the reason of a record.
type Cause string

// The causes; these words stand in the log.
const (
	CauseAcquire    Cause = "acquire"
	CauseAdopt      Cause = "adopt"   // another session of the same job took the hold over
	CauseRestore    Cause = "restore" // an adoption was undone
	CauseRenew      Cause = "renew"
	CauseDirectory  Cause = "directory" // the lock got a directory
	CauseRelease    Cause = "release"
	CauseExpire     Cause = "expire" // older than its age
	CauseIdle       Cause = "idle"   // no sign of life
	CauseBreak      Cause = "break"  // by an administrator
	CauseDisconnect Cause = "disconnect"
	CauseUndeliver  Cause = "undelivered"  // the client did not receive the grant
	CauseHostGone   Cause = "host-removed" // a program on the host removed its directory
	CausePublish    Cause = "publish"
	CauseUnused     Cause = "unused" // a job acquired it automatically by a look, and changed nothing in its turn

	// The causes of records of the kind Published that are about no change.

	CauseRefuse  Cause = "refuse"   // a job was refused, see [JobError]; File has the path of the first change
	CauseTwoRuns Cause = "two-runs" // two programs seem to run as one job
)

// The notes of records of the kind Published that count as no change of their own.
const (
	NoteTimes   = "time or mode set"
	NoteRenamed = "renamed to "
)

// Record is one change of the lock state. The sequence of records is the log, the history and the events.
type Record struct {
	Kind     Kind
	Cause    Cause
	Hold     Hold
	Replaces Token // of Granted: the token of the hold that ends by it; 0: none
	By       Owner // the client that caused it
	At       Instant
	Note     string
	File     *Publication // of Published

	// The next fields are for observers. No log keeps them.

	Waited time.Duration // of Granted: how long the client had waited
	Free   time.Duration // with Waited: how long the lock had been free
	Late   time.Duration // of Ended by time: how long after its time
	Limit  time.Duration // of Ended by time: the limit that was exceeded

	// The next fields change memory only.

	change func(*State) // without a kind: the change
	claim  *claim       // of Granted: the claim that it fulfils
	place  *place       // the place whose session must be woken: of Granted, its waiting is over
	view   *view        // of Granted: the view of the job that acquired the lock automatically
	turn   Time         // with view: the end of its turn; 0: it changes something
}

// Publication is a change of a protected file that others can see. The Record has the hold that allowed it.
type Publication struct {
	Path   Name
	Bytes  int64  // the length of the file; 0 if it is gone
	SHA256 string // of its content, in hexadecimal; "" where that did not change or is gone
}

// Entry is one event of the history of a lock or file, as a log returns it.
type Entry struct {
	At    Instant
	Cause Cause
	Name  Name
	Token Token         // of the hold that the event is about
	By    Owner         // the client that caused it
	Owner Owner         // of the hold
	Held  time.Duration // of an end: how long the hold had stood
	Note  string
	File  *Publication // of a publication
	// Automatic is set for the grant of an automatic lock.
	Automatic bool
}

// Concerns reports whether the entry is in the history of a name: of the lock of that name, of a file, or of a directory with files that
// locks protect and with automatic locks in it.
func (e *Entry) Concerns(name Name) bool {
	return e.Name == name || e.File != nil && e.File.Path.Within(name) || e.Automatic && e.Name.Within(name)
}
