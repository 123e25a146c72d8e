package lock

import "time"

// Hold is one grant of a name to one owner.
type Hold struct {
	Name     Name
	Token    Token
	Owner    Owner
	Acquired Instant // time of the grant
	Renewed  Instant // start of its age; Acquired at first
	Job      bool    // it is automatic: a session of OpenJob acquired it
	Shared   bool    // other shared holds of the name may stand at the same time
	// Rule limits the hold: the rule in force for its name, or the last one if none matches the name any more. It is never nil, and has no
	// Contention and no Protection. A reload may replace the pointer. The Rule that it points to never changes.
	Rule  *Rule
	Asked Asked // limits that its client set
	// Directory identifies the lock's directory; zero while it has none.
	Directory DirectoryID
	Note      string // the text of SetNote of the session that acquired it; "": none
}

// Asked has the limits that a client set for its next locks. They only shorten those of a rule.
type Asked struct {
	Age     time.Duration // 0: none
	Release bool          // the lock ends Grace after the connection
	Grace   time.Duration
}

// DirectoryID identifies one directory on disk for as long as it exists.
type DirectoryID struct {
	Inode  uint64
	Birth  int64  // nanoseconds since 1970, as coarse as the file system's clock. 0: unknown; -1: unknown, but the directory has the mark of package hostdir
	Parent uint64 // inode of its parent when it was made
}

// Kind is the effect of a Record.
type Kind uint8

// The kinds of records. On a full disk the table does not append records that change no hold and no file, see [Table.Remark]. A record
// without a kind is a volatile change of memory.
const (
	Granted   Kind = iota + 1 // Hold stands, and the hold of the name with the token Replaces has ended
	Ended                     // the hold of Hold.Name with Hold.Token has ended
	Changed                   // the hold with Hold.Token was renewed or got a directory; Hold is its new state
	Published                 // a change of a file became visible; no hold changes
)

// Cause is the reason of a record.
type Cause string

// The causes. The log contains these words.
const (
	CauseAcquire    Cause = "acquire"
	CauseAdopt      Cause = "adopt"   // another session of the same job adopted the hold
	CauseRestore    Cause = "restore" // an adoption was undone
	CauseRenew      Cause = "renew"
	CauseDirectory  Cause = "directory" // the lock got a directory
	CauseRelease    Cause = "release"
	CauseExpire     Cause = "expire" // older than its age
	CauseIdle       Cause = "idle"   // no sign of life
	CauseBreak      Cause = "break"  // by an administrator
	CauseDisconnect Cause = "disconnect"
	CauseUndeliver  Cause = "undelivered"  // the client did not receive the 257
	CauseHostGone   Cause = "host-removed" // a program on the host removed its directory
	CausePublish    Cause = "publish"
	CauseUnused     Cause = "unused" // a session of OpenJob acquired it, and its job did not need it

	// Causes of records of the kind Published without a change of a file.

	CauseRefuse  Cause = "refuse"   // a job was refused, see package job; File has the path of its first change
	CauseTwoRuns Cause = "two-runs" // two programs seem to run as one job
	CauseProtect Cause = "protect"  // a change of a protected file was refused; Note has the reason
	CauseDiscard Cause = "discard"  // an upload of a protected file was discarded; Note has the reason
)

// Notes of records of the kind Published that do not count as changes of their own.
const (
	NoteAttributes  = "time or mode set"
	NoteRenamed     = "renamed to "
	NoteUnconfirmed = "unconfirmed" // a second record of an upload
)

// Record is one change of the lock state. The records that have a kind are, in their order, the log, the history and the events. The others
// are volatile.
type Record struct {
	Kind     Kind
	Cause    Cause
	Hold     Hold
	Replaces Token // of Granted: token of the hold that it ends; 0: none
	By       Owner // the client that caused the change
	At       Instant
	Note     string
	File     *Publication // of Published

	// The log does not store the next fields. Observers read them, and a [LostError] gets Limit.

	Waited time.Duration // of Granted: time that the client waited
	Free   time.Duration // with Waited: time that the lock was free before the grant
	Late   time.Duration // of an expired hold: delay of its end
	Limit  time.Duration // of an expired hold: the limit that it exceeded

	// Only State.apply and the table read the next fields. They are not in the log.

	change change  // without a kind: the change
	claim  *claim  // of Granted: the claim that it fulfils; nil: none
	waiter *waiter // the waiter to wake; of Granted, its waiting is over
}

// isChange reports whether the record is a change of a hold or a file.
func (r *Record) isChange() bool { return r.Kind != Published || r.Cause == CausePublish }

// Publication is a visible change of a protected file. Its Record has the hold that allowed it.
type Publication struct {
	Path   Name
	Bytes  int64  // the length of the file; 0 if it is gone
	SHA256 string // of its content, in hexadecimal; "" if the content did not change or is gone
}

// Entry is one event of the history of a lock or file, as a log returns it.
type Entry struct {
	At    Instant
	Cause Cause
	Name  Name
	Token Token         // of the hold
	By    Owner         // the client that caused it
	Owner Owner         // of the hold
	Held  time.Duration // of an end: age of the hold
	Note  string        // of a grant: the note of the hold
	File  *Publication  // of a publication
	Job   bool          // the hold has Job set
}

// EntryNote returns the Note of the record's Entry.
func (r *Record) EntryNote() string {
	if r.Kind == Granted && r.Note == "" {
		return r.Hold.Note
	}
	return r.Note
}

// Concerns reports whether the entry belongs to the history of a lock, a file or a directory. The history of a directory has the
// publications and the locks of jobs in it.
func (e *Entry) Concerns(name Name) bool {
	return e.Name == name || e.File != nil && e.File.Path.Within(name) || e.Job && e.Name.Within(name)
}
