// Package event tells what happens on the server to those who want to know: the log, the xferlog, the metrics, the page and
// the hooks.
//
// Its types: an [Event] is one thing that happened; a [Bus] takes events from the server and hands them to its sinks, in
// order; [Log] and [Xferlog] make sinks that write lines.
//
// Guarantees: Publish never waits for a sink, so nothing that happens on the server waits for a log or a hook. All sinks
// see events in the order in which they were published. Close returns when the sinks have seen every event.
//
// Caveats: a sink that hangs holds up the others. When more than 100,000 events wait for it, further ones are dropped, and
// counted.
//
// Start reading at [Event].
package event

import "time"

// Kind says what happened.
type Kind string

// The kinds of events. Their words are those of [[hook]] on, of the page and of the JSON that hooks read.
const (
	Acquire     Kind = "acquire"      // a lock was granted
	Refuse      Kind = "refuse"       // a lock was not granted; Reason says why
	Release     Kind = "release"      // its holder gave a lock back, or the end of its connection did; Cause tells them apart
	Expire      Kind = "expire"       // a lock's age or idle time was over
	Break       Kind = "break"        // an administrator, or a program on the host, ended a lock
	Job         Kind = "job"          // a job may not change what an automatic lock protects, or seems to be two; Reason says why
	Protect     Kind = "protect"      // a change of a file was refused, since a lock protects it
	Publish     Kind = "publish"      // an upload was published
	Discard     Kind = "discard"      // an upload was discarded; Reason says why
	Unconfirmed Kind = "unconfirmed"  // a published upload may be a part: its client reset the connection behind the 226
	Download    Kind = "download"     // a file was sent
	Login       Kind = "login"        // a client logged in
	LoginFailed Kind = "login-failed" // a client was not let in; Reason says why
	Reload      Kind = "reload"       // the configuration was read anew; Reason says why it was refused, if it was
	Cluster     Kind = "cluster"      // this server's part in a cluster of several has changed; Cause is its state now, Reason says more
)

// Event is one thing that happened. Which fields are set depends on its Kind; the others are zero.
type Event struct {
	Time    time.Time
	Kind    Kind
	Cause   string        // why a lock changed, in the journal's words: "release", "expire", "idle", "host-removed", ...
	Lock    string        // the lock's name, in bytes as the client sent it; of a publication the one that protects the file
	Token   uint64        // the fencing token of the hold
	Holder  string        // account@address of the holder of the lock
	By      string        // who ended the lock, if that was not its holder
	Session string        // as "ftplockd sessions" shows it
	Account string        // that logged in, or tried to
	Remote  string        // the client's IP address
	Path    string        // the file
	Bytes   int64         // transferred
	SHA256  string        // with Publish of a file that a lock protects: of its content
	Took    time.Duration // the transfer
	ASCII   bool          // it was converted
	Held    time.Duration // how long the lock was held
	Waited  time.Duration // how long the client had waited for it
	Free    time.Duration // with Waited: how long the lock was free before this grant (hand-over)
	Late    time.Duration // with Expire: how long after its time the lock was ended
	Reason  string
	// Automatic is set if a job acquired the lock by its first look or change.
	Automatic bool
}
