// Package record is the text form of lock records, one line for each. The journal, the values in etcd and both histories consist of such lines.
//
// [Append], [AppendEntry] and [AppendHold] write a line, and [Line.Decode] reads it. [Seal] adds the checksum to a text, and [Open] checks and
// removes it. A line:
//
//	grant /locks/a_lock 12 acquire 1764345384123456789+10801234567 ada 192.0.2.1 3-17 rule=/locks/** 86400s 1800s 60s 0 release user 1a2b3c4d
//
// It begins with the kind, the name, the token, the cause and the time, then account, address and session of the hold's owner. Fields with a
// key follow, in the order of coder.record; a field with a zero value is left out. A rule has its match, max_age, max_idle, grace, lock_delay,
// on_disconnect and release. The last word is the CRC-32C of the text before the blank.
//
// A time is the nanoseconds since 1970, then a sign and the nanoseconds since boot. A duration is in nanoseconds, or in seconds with an s. In a
// text, '%' and each byte that is not visible ASCII are percent-encoded, because a name may have any bytes.
//
// Guarantees: Decode returns what Append wrote, or a zero Line and an error with the byte's position and what belongs there. A line that was cut, or has
// a wrong bit, is an error. A line has no zero byte and no newline.
package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Held is the kind of a line that is a hold and not a change of one. It has no cause, and its time is that of the grant.
const Held = lock.Published + 1

// kinds has the first word of each kind's lines.
var kinds = [...]string{lock.Granted: "grant ", lock.Ended: "end ", lock.Changed: "change ", lock.Published: "publish ", Held: "held "}

// Line is a line that was read.
type Line struct {
	lock.Record
	Held time.Duration // of an end: the age of the hold
}

// Append appends the line of a record, without a newline.
func Append(b []byte, r *lock.Record) []byte { return appendRecord(b, r, age(r)) }

// AppendEntry appends the line of a record's entry in the history. It lacks the rule and the directory of the hold, and its time is that of the wall
// clock only.
func AppendEntry(b []byte, r *lock.Record) []byte {
	h, at := &r.Hold, lock.Instant{Wall: r.At.Wall}
	return appendRecord(b, &lock.Record{
		Kind: r.Kind, Cause: r.Cause, By: r.By, At: at, Note: r.EntryNote(), File: r.File,
		Hold: lock.Hold{Name: h.Name, Token: h.Token, Owner: h.Owner, Job: h.Job, Acquired: at, Renewed: at},
	}, age(r))
}

// AppendHold appends the line of a hold.
func AppendHold(b []byte, h *lock.Hold) []byte {
	return appendRecord(b, &lock.Record{Kind: Held, Hold: *h, By: h.Owner, At: h.Acquired}, 0)
}

// age returns the age of a hold at its end.
func age(r *lock.Record) time.Duration {
	if r.Kind != lock.Ended || r.Hold.Acquired == (lock.Instant{}) {
		return 0
	}
	return max(0, r.At.Boot-r.Hold.Acquired.Boot)
}

func appendRecord(b []byte, r *lock.Record, held time.Duration) []byte {
	c := coder{b: b}
	c.record(r, &held)
	return Seal(c.b, len(b))
}

// Decode reads a line without its newline. After an error the Line is zero.
func (l *Line) Decode(text []byte) error {
	*l = Line{}
	body, err := Open(text)
	if err != nil {
		return err
	}
	c := coder{reading: true, b: body, length: len(body)}
	for kind := lock.Granted; kind <= Held && l.Kind == 0; kind++ {
		if c.key(kinds[kind], false) {
			l.Kind = kind
		}
	}
	if l.Kind == 0 {
		c.fail("grant, end, change, publish or held")
	}
	c.record(&l.Record, &l.Held)
	if len(c.b) > 0 {
		c.fail("a known field")
	}
	if c.err != nil {
		*l = Line{}
	}
	return c.err
}

// IsEntry reports whether a record is in the history.
func IsEntry(r *lock.Record) bool { return r.Kind <= lock.Published && r.Cause != lock.CauseDirectory }

// Entry returns the entry of the history.
func (l *Line) Entry() lock.Entry {
	h := &l.Hold
	return lock.Entry{
		At: l.At, Cause: l.Cause, Name: h.Name, Token: h.Token, By: l.By, Owner: h.Owner, Held: l.Held, Note: l.EntryNote(), File: l.File, Job: h.Job,
	}
}

var checksums = crc32.MakeTable(crc32.Castagnoli)

// sumLength is the length of what Seal appends.
const sumLength = len(" 01234567")

// Seal appends a blank and the checksum of b[from:].
func Seal(b []byte, from int) []byte { return appendSum(b, b[from:]) }

func appendSum(b, of []byte) []byte {
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(of, checksums))
	return hex.AppendEncode(append(b, ' '), sum[:])
}

// Open returns the text that Seal sealed, or an error if the checksum is wrong.
func Open(text []byte) ([]byte, error) {
	body := text[:max(0, len(text)-sumLength)]
	if found, want := text[len(body):], appendSum(nil, body); !bytes.Equal(found, want) {
		return nil, fmt.Errorf("at byte %d: want the checksum %q, found %q", len(body)+1, want, found)
	}
	return body, nil
}
