package journal

import (
	"hash/crc32"
	"strconv"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The journal's own words; every other event is a [lock.Cause].
const (
	eventJournal   lock.Cause = "journal"   // the first line of a file: version, generation, tokens reserved
	eventStart     lock.Cause = "start"     // earlier versions: the store was opened
	eventTokens    lock.Cause = "tokens"    // a block of tokens was reserved
	eventClose     lock.Cause = "close"     // earlier versions: the store was closed
	eventDirectory lock.Cause = "directory" // the directory of the lock with this token was made
	eventKept      lock.Cause = "kept"      // a record that stood when the file was begun
	eventTombstone lock.Cause = "tombstone" // a lock with a directory that was released before the file was begun
)

// version is that of the format, in the first line of each file.
const version = 1

// line is one line of the journal. It says what the name's record is afterwards (Token is its
// revision, Holds are all that stand), so the last line of a name is all that counts.
type line struct {
	Event      lock.Cause
	Name       lock.Name
	Token      lock.Token
	At         lock.Instant
	By         lock.Owner
	Held       time.Duration // how long the oldest hold that ended here had stood
	Note       string
	Holds      []lock.Hold
	Directory  lock.DirectoryID // of the lock that was released, or made
	Version    int
	Generation uint32
	Reserved   lock.Token // tokens up to this one may have been given
	// Of a publication, whose Token is the hold's and which changes no record:
	File   lock.Name
	Bytes  int64
	SHA256 string
}

// own reports whether the line is the journal's own business, no change of a record.
func (l *line) own() bool {
	switch l.Event {
	case eventJournal, eventStart, eventTokens, eventClose, eventDirectory, eventKept, eventTombstone:
		return true
	}
	return false
}

// named reports whether lines of this kind speak of a lock.
func (l *line) named() bool {
	switch l.Event {
	case eventJournal, eventStart, eventTokens, eventClose:
		return false
	}
	return true
}

var checksums = crc32.MakeTable(crc32.Castagnoli)

// sumLength is the length of the end of every line: ,"crc":"01234567"}
const sumLength = 18

// appendLine appends the line with its checksum and newline. It is written by hand since a lock's
// cost is largely what is done per line; the tests hold it against parseLine, field by field.
func appendLine(b []byte, l *line) []byte {
	start := len(b)
	b = append(b, `{"event":`...)
	b = appendText(b, string(l.Event))
	if l.Name != "" {
		b = append(b, `,"name":`...)
		b = appendText(b, string(l.Name))
	}
	b = appendNumber(b, "token", uint64(l.Token))
	b = appendInstantFields(b, l.At, "", true)
	b = appendOwner(b, l.By)
	b = appendSigned(b, "held", int64(l.Held))
	b = appendField(b, "note", l.Note)
	b = appendNumber(b, "version", uint64(l.Version))
	b = appendNumber(b, "generation", uint64(l.Generation))
	b = appendNumber(b, "reserved", uint64(l.Reserved))
	b = appendField(b, "file", string(l.File))
	b = appendSigned(b, "bytes", l.Bytes)
	b = appendField(b, "sha256", l.SHA256)
	b = appendDirectory(b, l.Directory)
	if len(l.Holds) > 0 {
		b = append(b, `,"holds":[`...)
		for i := range l.Holds {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendHold(b, &l.Holds[i], l.At.BootID)
		}
		b = append(b, ']')
	}
	sum := crc32.Checksum(b[start:], checksums)
	b = append(b, `,"crc":"`...)
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, lowerHex[sum>>shift&15])
	}
	return append(b, "\"}\n"...)
}

const (
	lowerHex = "0123456789abcdef"
	upperHex = "0123456789ABCDEF"
)

func appendHold(b []byte, h *lock.Hold, bootID string) []byte {
	b = append(b, `{"token":`...)
	b = strconv.AppendUint(b, uint64(h.Token), 10)
	b = appendOwner(b, h.Owner)
	b = appendInstant(b, "acquired", h.Acquired, bootID)
	if !sameInstant(h.Renewed, h.Acquired) {
		b = appendInstant(b, "renewed", h.Renewed, bootID)
	}
	if !sameInstant(h.Ended, lock.Instant{}) {
		b = appendInstant(b, "ended", h.Ended, bootID)
	}
	b = append(b, `,"rule":{"match":`...)
	b = appendText(b, h.Rule.Match)
	b = appendSigned(b, "max_age", int64(h.Rule.MaxAge))
	b = appendSigned(b, "max_idle", int64(h.Rule.MaxIdle))
	b = appendField(b, "on_disconnect", string(h.Rule.OnDisconnect))
	b = appendSigned(b, "grace", int64(h.Rule.Grace))
	b = appendSigned(b, "lock_delay", int64(h.Rule.LockDelay))
	b = appendField(b, "release", string(h.Rule.Release))
	if h.Rule.AllowCwd {
		b = append(b, `,"allow_cwd":true`...)
	}
	b = append(b, '}')
	if h.Shared {
		b = append(b, `,"shared":true`...)
	}
	b = appendDirectory(b, h.Directory)
	return append(b, '}')
}

func sameInstant(a, b lock.Instant) bool {
	return a.Wall.Equal(b.Wall) && a.Boot == b.Boot && a.BootID == b.BootID
}

func appendInstant(b []byte, key string, at lock.Instant, bootID string) []byte {
	b = appendKey(b, key)
	b = append(b, `{"boot":`...)
	b = strconv.AppendInt(b, int64(at.Boot), 10)
	b = appendInstantFields(b, at, bootID, false)
	return append(b, '}')
}

// appendInstantFields leaves out a boot id that is the line's: it is 36 characters.
func appendInstantFields(b []byte, at lock.Instant, bootID string, boot bool) []byte {
	if !at.Wall.IsZero() {
		b = append(b, `,"time":"`...)
		b = clampYear(at.Wall.UTC()).AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	if boot {
		b = appendSigned(b, "boot", int64(at.Boot))
	}
	if at.BootID != bootID {
		b = appendKey(b, "boot_id")
		b = appendText(b, at.BootID)
	}
	return b
}

// clampYear keeps a modification time that somebody has set on the host to the year 250000 from
// making a line that RFC 3339 cannot express.
func clampYear(t time.Time) time.Time {
	switch {
	case t.Year() > 9999:
		return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	case t.Year() < 1:
		return time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)
	}
	return t
}

func appendOwner(b []byte, o lock.Owner) []byte {
	b = appendField(b, "account", o.Account)
	b = appendField(b, "address", o.Address)
	b = appendNumber(b, "session", uint64(o.Session))
	return appendField(b, "nonce", o.Nonce)
}

func appendDirectory(b []byte, id lock.DirectoryID) []byte {
	if id == (lock.DirectoryID{}) {
		return b
	}
	b = append(b, `,"directory":{"inode":`...)
	b = strconv.AppendUint(b, id.Inode, 10)
	b = appendSigned(b, "birth", id.Birth)
	return append(b, '}')
}

func appendKey(b []byte, key string) []byte {
	b = append(b, ',', '"')
	b = append(b, key...)
	return append(b, '"', ':')
}

func appendNumber(b []byte, key string, n uint64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendUint(appendKey(b, key), n, 10)
}

func appendSigned(b []byte, key string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(appendKey(b, key), n, 10)
}

func appendField(b []byte, key, s string) []byte {
	if s == "" {
		return b
	}
	return appendText(appendKey(b, key), s)
}

// appendText appends a JSON string that holds any bytes: those which are not printable ASCII, and
// '"', '\' and '%', are percent-encoded, as names are bytes and JSON is UTF-8.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		c := s[i]
		if plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return append(b, '"')
}

func plain(c byte) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '%' }
