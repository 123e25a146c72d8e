// Package lock decides which client holds which lock, and records that.
//
// Its types: a [State] is everything that the decisions depend on, in memory. A [Record] is one change of it, such as the grant of a
// [Hold]. A [Log] keeps the records that must outlive the process, in their order; packages journal and etcd implement it. A [Disk] makes
// and removes the directories of locks; package hostdir implements it. A [Table] guards a State with one mutex and connects it with a log
// and a disk. A [Session] is a client connection to a table, which acquires and releases locks. [Rules] are the rules of the
// configuration.
//
// Guarantees: at most one session holds a lock exclusively. A caller gets the result of a change when its record is
// written, so that the end of the process loses nothing; a grant is also synced, if the log was opened as durable. Tokens grow with every
// grant and are never given twice. A hold ends by its token, never by its name. Sessions that wait get a lock in the order in which they
// came. A lock with others below it ends after them, except by a program on the host that removes its directory.
//
// Caveats: a hold whose time is over stands until [Table.Expire] ends it, which the caller must call in time; [Session.Write] refuses it
// at once. A release is not synced: after a loss of power the hold may stand again until its age ends. A restart forgets queues and
// delays. A client that was stopped for longer than its lock's age does not notice that it lost the lock; it can compare tokens.
//
// Start reading at [State] in state.go. Decisions read it and return an outcome, which is a list of records and a reply: acquire.go and
// automatic.go for grants, release.go for ends, guard.go for writes, next.go for everything that time causes. They change nothing; apply.go
// alone changes the state. Then read table.go: it makes a decision, applies it and appends it to the log in one step. The methods of a
// [Session] in session.go, writing.go and automatic_table.go are for the rest of the server. docs/locking.md is an overview.
package lock
