// Package lock decides which client holds which lock, and records that.
//
// Its types: a [State] holds in memory everything that a decision depends on. A [Record] is one change of the State, such as the grant
// of a [Hold]. A [Log] stores the records that must outlive the process, in order; packages journal and etcd implement it. A [Disk]
// makes and removes the directories of locks; package hostdir implements it. A [Table] guards a State with one mutex and connects it to
// a log and a disk. A [Session] is one client connection; it acquires and releases locks. [Rules] are the rules of the configuration.
//
// Guarantees: at most one session holds a lock exclusively. A method returns the result of a change after the log has written its record,
// so the end of the process loses nothing. If the log was opened as durable, a grant is also synced. Tokens grow with every grant and are
// never reused. Each end names the token of its hold, so it never ends a later hold of the name. Waiting sessions get a lock in the order
// of their arrival; one that comes during a change of the lock's directory arrives at its end. A session whose wait reached its time limit
// keeps its place for five seconds. A lock and the locks below it, its members, are a group. A lock with members ends after them, unless a
// program on the host removes its directory.
//
// Caveats: an expired hold stands until [Table.Expire] ends it; [Session.Write] refuses it at once. A release is not synced: after a loss
// of power the hold may stand again until it expires. A client that pauses for longer than its lock's age does not notice the loss of the
// lock; it can compare tokens.
//
// A restart forgets sessions, queues, places, delays, writes under way, lost locks, signs of life, the times of EndAt, which grants are
// unacknowledged or contested, and the hold before an adoption, which then cannot be undone.
//
// Start reading at [State] in state.go. A decision reads the State, changes nothing, and returns an outcome: a list of records and a
// reply. acquire.go decides grants, release.go decides ends, guard.go changes of files, next.go those that become due. apply.go changes the
// State by a record, change.go has the changes that are not logged. Then read table.go: it makes a decision, applies it and appends it to
// the log in one step, and serves the queues (serve.go). The rest of the server calls the methods of [Session] in session.go, writing.go,
// and jobs.go. docs/design.md has an overview.
package lock
