package lock

import (
	"context"
	"iter"
)

// Position is the end of a record in a log.
type Position int64

// Log stores the records that have a kind, in the order of Append.
//
// A log never drops an appended record while the process runs: it writes until it succeeds, or it ends the server. So the state in memory
// never goes back.
type Log interface {
	// Load returns the holds that stand, in the order of their tokens, and the last token. It converts times to this
	// machine's boot clock. For another boot or machine it takes the time since the last record from the wall clock. Call it once, before the
	// first Append.
	Load(ctx context.Context) (Loaded, error)
	// Room reports whether the log can store every record up to the grant with this token, and the ends of all holds. Each other record that
	// needs room takes one token. Room reads memory only; the table calls it with its mutex held.
	Room(token Token) bool
	// MakeRoom waits until Room may return true. The errors are ErrFull, ErrClosed, a *SuspendedError,
	// that of ctx, and those of a log that has failed.
	MakeRoom(ctx context.Context, token Token) error
	// Append adds the records after all earlier ones and returns the end of the last. It copies them, never blocks and never fails.
	// The table calls it with its mutex held, after Room except for ends, undone adoptions, and directories that a start makes again.
	Append(records []Record) Position
	// Wait returns nil when everything up to the position is written, so that the end of the process does not lose it. With durable,
	// in a log that was opened as durable, it is also synced, so that a loss of power does not lose it. The error is ErrUncertain, with
	// the error of ctx if ctx ended the wait, or ErrFull if a full disk delayed it for ten seconds: the records may be written later, or the
	// server is about to end.
	Wait(ctx context.Context, end Position, durable bool) error
}

// Loaded is the content of a log at the start.
type Loaded struct {
	Holds []Hold
	Last  Token  // new tokens are larger than this one
	Start uint32 // number of this start of the server, larger than all before
}

// Disk makes and removes the directories of locks. Its errors contain FTP paths only. It does not change the lock state.
type Disk interface {
	// Free returns true if locks have no directories and no file or directory has the name: a grant needs no Make then. It may return
	// false wrongly, must be quick, and changes nothing.
	Free(n Name) bool
	// Make makes the directory of a lock. The errors are a *HostError if a directory without a hold has the name, ErrNotDirectory if a file
	// has the name, ErrNoParent if the parent does not exist or the path contains a link, and those of the file system. If locks have no
	// directories, Make only checks that the name is free and returns the zero id. Then the error for an existing directory is no *HostError,
	// but matches fs.ErrExist: no session waits for it to go.
	// Make removes a directory that a crash of this server left between Make and its record, or moves it aside with its files.
	Make(ctx context.Context, n Name) (DirectoryID, error)
	// Check returns nil if a grant without a directory may have the name. With directories of locks the errors are those of Make, except
	// ErrNoParent; without them Check returns nil.
	Check(ctx context.Context, n Name) error
	// Create makes the directory for the first file in a held lock, if locks have no directories otherwise. Its errors are those of Make.
	Create(ctx context.Context, n Name) (DirectoryID, error)
	// Remove removes the directory of a hold that is about to end. If it is not empty, the error is ErrNotEmpty for CauseRelease; for
	// another cause Remove moves the directory aside with its content, and the note names the new place. The error is ErrDirectoryGone if
	// a program on the host removed or replaced the directory; a replacement stays.
	Remove(ctx context.Context, h Hold, cause Cause) (note string, err error)
	// Gone reports whether a program on the host removed or replaced the directory. It also returns false if the parent was
	// replaced.
	// After an error, such as that of ctx, the result means nothing.
	Gone(ctx context.Context, h Hold) (bool, error)
	// Freshen sets the modification time of the directory to the start of the hold's age.
	Freshen(h Hold)
	// Restore compares a loaded hold with its directory before the server serves clients. It returns the directory of the hold, which is
	// new if the hold had none or its directory is missing. gone reports that a program on the host replaced the directory while the
	// server was down. After an error the hold stands with its old directory.
	Restore(ctx context.Context, h Hold) (id DirectoryID, gone bool, err error)
}

// History is a Log that can return its records.
type History interface {
	// History yields the entries of a lock or file, the oldest first.
	History(ctx context.Context, name Name) iter.Seq2[Entry, error]
}
