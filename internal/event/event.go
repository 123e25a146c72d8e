// Package event distributes the events of the server to the log, the xferlog, the metrics, the page and the hooks.
//
// Its types: an [Event] describes what happened; a [Bus] passes events to its sinks; [Log] and [Xferlog] return sinks that write
// lines.
//
// Guarantees: Publish never waits for a sink. All sinks get the events in the order of publication. Close returns after the sinks
// got every event.
//
// Caveats: a sink that hangs delays the others. When 100,000 events wait, further ones are dropped and counted.
//
// Start reading at [Event].
package event

import (
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Kind is the kind of an event.
type Kind string

// The kinds of events. The configuration and the JSON of hooks use these words.
const (
	Acquire     Kind = "acquire"      // a lock was granted
	Refuse      Kind = "refuse"       // a lock was refused, for Reason
	Release     Kind = "release"      // a lock was released by its holder or by the end of its connection, see Cause
	Expire      Kind = "expire"       // a lock reached its maximum age or idle time
	Break       Kind = "break"        // an administrator, or a program on the host, ended a lock
	Job         Kind = "job"          // an automatic lock refused a job, or two programs seem to be one job; see Reason
	Protect     Kind = "protect"      // a change of a protected file was refused
	Publish     Kind = "publish"      // an upload was published
	Discard     Kind = "discard"      // an upload was discarded, for Reason
	Unconfirmed Kind = "unconfirmed"  // a published upload may be incomplete: its client reset the connection after the 226
	Download    Kind = "download"     // a file was sent
	Login       Kind = "login"        // a client logged in
	LoginFailed Kind = "login-failed" // a login failed
	Reload      Kind = "reload"       // the configuration was read again; Reason: why it was refused
	Cluster     Kind = "cluster"      // this server's state in the cluster changed; Cause is the new state, Reason has more
)

// Event describes what happened. Its Kind determines which fields are set; the others are zero.
type Event struct {
	Time    time.Time
	Kind    Kind
	Cause   string     // why a lock changed, in the journal's words: "release", "expire", "idle", "host-removed", ...
	Lock    string     // the name of the lock, in the client's bytes; of a publication, the lock that protects the file
	Token   uint64     // the fencing token of the hold
	Holder  lock.Owner // of the lock
	By      lock.Owner // the party that ended the lock, if not its holder
	Session lock.SessionID
	Account string        // that logged in, or tried to
	Remote  string        // the client's IP address
	Path    string        // the file
	Bytes   int64         // transferred
	SHA256  string        // of a published file that a lock protects
	Took    time.Duration // the transfer
	ASCII   bool          // the transfer was of TYPE A
	Held    time.Duration // how long the lock was held
	Waited  time.Duration // how long the client had waited for it
	Free    time.Duration // with Waited: how long the lock was free before the grant
	Late    time.Duration // with Expire: how late the lock was ended
	Reason  string
	// Automatic is set if a job's first read or change acquired the lock.
	Automatic bool
}
