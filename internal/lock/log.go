package lock

import (
	"context"
	"iter"
)

// Position is the end of a record in a log.
type Position int64

// Log keeps the records of the kinds Granted, Ended, Changed and Published in the order in which they were appended.
//
// A log loses nothing that was appended, as long as the process runs: it writes in the background until it succeeds, or it ends the
// server. So the state in memory never goes back.
type Log interface {
	// Load returns the holds that stand, in the order of their tokens, and where tokens and starts go on. The log maps times
	// that another boot or machine recorded to this machine's boot clock, as far back as the wall clock says; a wall clock that
	// went backwards gives a full new age. A log is loaded once, before the first Append.
	Load(ctx context.Context) (Loaded, error)
	// Room reports whether grants with tokens up to this one can be appended: these tokens are reserved, and there is space for the
	// record of each one that was not appended yet, and for the end of every hold. It reads memory only. The table calls it with its
	// mutex held; locks with smaller tokens may still wait for their directories.
	Room(token Token) bool
	// MakeRoom waits until Room may be true. The errors are ErrFull, a *SuspendedError and that of ctx.
	MakeRoom(ctx context.Context, token Token) error
	// Append adds the records after all earlier ones, in order, and returns the end of the last. It copies them into memory,
	// never blocks and never fails. The table calls it with its mutex held. Ends, changes and publications need no Room.
	Append(records []Record) Position
	// Wait returns nil when everything up to the position is written: the end of the process loses nothing of it. With durable, and
	// if the log was opened as durable, a loss of power loses nothing of it either. An error is ErrUncertain, with the
	// error of ctx if that ended the waiting: the record may be written later, or the server is about to end.
	Wait(ctx context.Context, end Position, durable bool) error
}

// Loaded is the content of a log at the start.
type Loaded struct {
	Holds []Hold
	Last  Token  // no token up to this one is ever given again
	Start uint32 // the number of this start of the server, larger than all before
}

// Disk makes and removes the directories of locks. Its errors contain FTP paths only. It never changes lock state.
type Disk interface {
	// Free reports whether locks have no directories and nothing has the name, so that Make is not needed. It may return false wrongly,
	// must be quick, and changes nothing.
	Free(n Name) bool
	// Make makes the directory of a lock. The errors are a *HostError if a directory without a hold has the name, ErrOccupied if that is
	// not empty, ErrNotDirectory if a file has the name, ErrNoParent if its parent does not exist or there is a link in its path, and
	// those of the file system. Where locks have no directories it only finds out whether the name is free, and returns the zero
	// id; a directory of that name matches fs.ErrExist then.
	// A directory that a crash of this server left between Make and its record is taken over.
	Make(ctx context.Context, n Name) (DirectoryID, error)
	// Create is as Make, for the files in a lock that stands, where locks have no directories otherwise.
	Create(ctx context.Context, n Name) (DirectoryID, error)
	// Remove removes the directory of a hold that is about to end. If the cause is CauseRelease and something is in it, that is
	// ErrNotEmpty; for another cause the directory is moved aside with all that is in it, and the note says where. It is
	// ErrDirectoryGone if a program on the host removed the directory or put another one in its place, which is left alone.
	Remove(ctx context.Context, h Hold, cause Cause) (note string, err error)
	// Gone reports whether a program on the host removed the directory, or put another one in its place, while its parent is the
	// same as at Make. After an error, or when ctx ends, nothing is known.
	Gone(ctx context.Context, h Hold) (bool, error)
	// Freshen sets the modification time of the directory to the moment from which the hold's age counts.
	Freshen(h Hold)
	// Restore compares a hold that a start found with its directory, before anything is served, and returns the directory that it has
	// from now on: the same, or a new one if it was missing. gone reports that a program on the host removed or replaced it while
	// the server was down.
	Restore(ctx context.Context, h Hold) (id DirectoryID, gone bool, err error)
}

// History is a Log that can return its records.
type History interface {
	// History yields the entries of a lock or file, the oldest first.
	History(ctx context.Context, name Name) iter.Seq2[Entry, error]
}
