package lock

import "context"

// CausePublish stands in the journal for a change of a protected file; no record changes by it.
const CausePublish Cause = "publish"

// Publication is a change of a protected file that others can see.
type Publication struct {
	Lock   Name  // by which lock it was made
	Token  Token // and by which hold of it
	By     Owner // whose hold that was
	File   Name
	Bytes  int64  // how long the file is; 0 if it is gone
	SHA256 string // of its content, in hexadecimal; "" where that did not change or is gone
	Note   string // what was done, if it was no upload
}

// Publications keeps what was published, for whoever asks later. A [Store] may be one.
type Publications interface {
	// Published writes it down. It need not last through a loss of power. An error says that it is not
	// written down; the file is published all the same.
	Published(ctx context.Context, p Publication) error
}
