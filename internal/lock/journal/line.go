package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"

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
	lock.Entry
	Directory  lock.DirectoryID // of the lock that was released, or made
	Version    int
	Generation uint32
	Reserved   lock.Token // tokens up to this one may have been given
}

// own reports whether the line is the journal's own business, no change of a record.
func (l *line) own() bool {
	return !l.named() || l.Cause == eventDirectory || l.Cause == eventKept || l.Cause == eventTombstone
}

// named reports whether lines of this kind speak of a lock.
func (l *line) named() bool {
	switch l.Cause {
	case eventJournal, eventStart, eventTokens, eventClose:
		return false
	}
	return true
}

// appendLine appends the line with its checksum and newline.
func appendLine(b []byte, l *line) []byte {
	c := coder{b: b}
	c.line(l)
	return append(appendSum(c.b, c.b[len(b):]), '\n')
}

// parseLine reads one line, without its newline. It accepts only what appendLine can have written, in this version or an
// earlier one.
func parseLine(b []byte) (l line, err error) {
	body := b[:max(0, len(b)-sumLength)]
	if sum := b[len(body):]; !bytes.Equal(sum, appendSum(nil, body)) {
		return l, errors.New("the checksum is wrong")
	}
	c := coder{b: body, reading: true}
	c.line(&l)
	if c.err == nil && len(c.b) > 0 {
		c.fail("an unknown field")
	}
	if c.err != nil {
		return line{}, c.err
	}
	return l, l.check()
}

// check says what a line lacks for its event.
func (l *line) check() error {
	switch {
	case l.Cause == "":
		return errors.New("no event")
	case l.named() && (l.Name == "" || l.Name[0] != '/' || l.Token == 0):
		return fmt.Errorf("%s without a name and a token", l.Cause)
	case l.Cause == lock.CausePublish && (l.File == "" || l.File[0] != '/' || len(l.Holds) > 0):
		return errors.New("publish without a file")
	}
	return nil
}

var checksums = crc32.MakeTable(crc32.Castagnoli)

// sumLength is the length of the end of every line, which appendSum writes.
const sumLength = len(`,"crc":"01234567"}`)

func appendSum(b, of []byte) []byte {
	sum := binary.BigEndian.AppendUint32(make([]byte, 0, 4), crc32.Checksum(of, checksums))
	return append(hex.AppendEncode(append(b, `,"crc":"`...), sum), `"}`...)
}

// line codes a line up to its checksum. [concerns] knows that event and name come first.
func (c *coder) line(l *line) {
	c.literal(`{"event":`)
	textValue(c, &l.Cause)
	text(c, "name", &l.Name)
	number(c, "token", &l.Token)
	c.time(&l.At.Wall)
	number(c, "boot", &l.At.Boot)
	text(c, "boot_id", &l.At.BootID)
	c.owner(&l.By)
	number(c, "held", &l.Held)
	text(c, "note", &l.Note)
	number(c, "version", &l.Version)
	number(c, "generation", &l.Generation)
	number(c, "reserved", &l.Reserved)
	text(c, "file", &l.File)
	number(c, "bytes", &l.Bytes)
	text(c, "sha256", &l.SHA256)
	c.directory(&l.Directory)
	if !c.key("holds", len(l.Holds) > 0) {
		return
	}
	c.literal("[")
	for i, more := 0, true; more; i++ {
		if c.reading {
			l.Holds = append(l.Holds, lock.Hold{})
		}
		c.hold(&l.Holds[i], l.At.BootID)
		more = c.optional(",", i+1 < len(l.Holds))
	}
	c.literal("]")
}

func (c *coder) hold(h *lock.Hold, bootID string) {
	c.literal(`{"token":`)
	numberValue(c, &h.Token)
	c.owner(&h.Owner)
	c.instant("acquired", &h.Acquired, bootID, lock.Instant{}, true)
	c.instant("renewed", &h.Renewed, bootID, h.Acquired, !sameInstant(h.Renewed, h.Acquired))
	c.instant("ended", &h.Ended, bootID, lock.Instant{}, !sameInstant(h.Ended, lock.Instant{}))
	c.literal(`,"rule":{"match":`)
	textValue(c, &h.Rule.Match)
	number(c, "max_age", &h.Rule.MaxAge)
	number(c, "max_idle", &h.Rule.MaxIdle)
	text(c, "on_disconnect", &h.Rule.OnDisconnect)
	number(c, "grace", &h.Rule.Grace)
	number(c, "lock_delay", &h.Rule.LockDelay)
	text(c, "release", &h.Rule.Release)
	c.flag("allow_cwd", &h.Rule.AllowCwd)
	c.literal("}")
	c.flag("shared", &h.Shared)
	c.directory(&h.Directory)
	c.literal("}")
}

// instant codes a moment, which is another one where it is left out. A boot id is left out that is the line's: it is 36 characters.
func (c *coder) instant(key string, at *lock.Instant, bootID string, absent lock.Instant, has bool) {
	if !c.key(key, has) {
		if c.reading {
			*at = absent
		}
		return
	}
	c.literal(`{"boot":`)
	numberValue(c, &at.Boot)
	c.time(&at.Wall)
	if c.key("boot_id", at.BootID != bootID) {
		textValue(c, &at.BootID)
	} else if c.reading {
		at.BootID = bootID
	}
	c.literal("}")
}

func sameInstant(a, b lock.Instant) bool {
	return a.Wall.Equal(b.Wall) && a.Boot == b.Boot && a.BootID == b.BootID
}

func (c *coder) owner(o *lock.Owner) {
	text(c, "account", &o.Account)
	text(c, "address", &o.Address)
	number(c, "session", &o.Session)
	text(c, "nonce", &o.Nonce)
}

func (c *coder) directory(id *lock.DirectoryID) {
	if !c.key("directory", *id != lock.DirectoryID{}) {
		return
	}
	c.literal(`{"inode":`)
	numberValue(c, &id.Inode)
	number(c, "birth", &id.Birth)
	var generation uint32 // earlier versions wrote it
	number(c, "generation", &generation)
	c.literal("}")
}
