package lock

import "time"

// Entry is one event of the history of a lock, or of a file that locks protect. A store may keep a history.
type Entry struct {
	At    Instant
	Cause Cause
	Name  Name
	Token Token         // the revision of the record that the event made
	By    Owner         // who asked for it
	Held  time.Duration // how long the oldest hold that ended by it had stood; 0 if none did
	Note  string
	Holds []Hold // those that stood afterwards
	// Of a publication: which file, how long it is, its digest. Token is that of the hold.
	File   Name
	Bytes  int64
	SHA256 string
}
