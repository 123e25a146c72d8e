package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The kinds of lines, in addition to the kinds of records.
const (
	heldLine    lock.Kind = lock.Published + 1 + iota // a copy of a hold from an earlier segment
	segmentLine                                       // the first line of a segment
	syncedLine                                        // the bytes before the number are synced
	closedLine                                        // the server stopped in order; the number is the last token
)

// keys are the first bytes of the lines of each kind.
var keys = [...]string{
	lock.Granted: `{"grant":`, lock.Ended: `{"end":`, lock.Changed: `{"change":`, lock.Published: `{"publish":`,
	heldLine: `{"held":`, segmentLine: `{"segment":`, syncedLine: `{"synced":`, closedLine: `{"closed":`,
}

// line is one line of the journal.
type line struct {
	kind   lock.Kind
	record *lock.Record  // of a record or repeated hold
	held   time.Duration // of an end: the age of the hold
	number uint64        // of the other kinds
	header header        // of a head
}

// version is the version of the format, in the first line of each segment.
const version = 1

// header is the first line of a segment, without its number.
type header struct {
	Version     uint32
	Start       uint32       // the start of the server that wrote it
	Boot        string       // the id of the boot that its times are of
	At          lock.Instant // when it began
	Last        lock.Token   // the largest token before it
	Reserved    lock.Token   // tokens up to this one may have been given
	FirstNeeded uint64       // the first segment that a start must read to find all holds
	Length      uint64       // the length of the lines of the segment before it
}

// writeLine appends a line with its checksum and newline to c.b.
func (c *coder) writeLine(l *line) {
	begin := len(c.b)
	c.line(l)
	c.b = append(appendSum(c.b, c.b[begin:]), '\n')
}

// readLine parses one line, without its newline. It accepts only lines in the form that writeLine writes. The record is valid until the next call.
func (c *coder) readLine(b []byte, l *line) error {
	body := b[:max(0, len(b)-sumLength)]
	if sum := b[len(body):]; !bytes.Equal(sum, appendSum(make([]byte, 0, sumLength), body)) {
		return errors.New("the checksum is wrong")
	}
	c.reading, c.b, c.err = true, body, nil
	record := l.record
	if record == nil {
		record = new(lock.Record)
	}
	*record = lock.Record{}
	*l = line{record: record, kind: lock.Kind(len(keys))}
	for kind, key := range keys {
		if key != "" && bytes.HasPrefix(body, []byte(key)) {
			l.kind = lock.Kind(kind)
		}
	}
	if int(l.kind) == len(keys) {
		return errors.New("an unknown kind of line")
	}
	c.line(l)
	if c.err == nil && len(c.b) > 0 {
		c.fail("an unknown field")
	}
	if c.err == nil && l.kind <= heldLine && (record.Hold.Name == "" || record.Hold.Name[0] != '/' || record.Cause == "" && l.kind != heldLine) {
		return errors.New("a record without a name or cause")
	}
	return c.err
}

var checksums = crc32.MakeTable(crc32.Castagnoli)

// sumLength is the length of the end of every line, which appendSum writes.
const sumLength = len(`,"crc":"01234567"}`)

func appendSum(b, of []byte) []byte {
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(of, checksums))
	return append(hex.AppendEncode(append(b, `,"crc":"`...), sum[:]), `"}`...)
}

// line codes a line up to its checksum.
func (c *coder) line(l *line) {
	c.literal(keys[l.kind])
	if l.kind <= heldLine {
		c.record(l)
		return
	}
	numberValue(c, &l.number)
	if h := &l.header; l.kind == segmentLine {
		number(c, `,"version":`, &h.Version)
		number(c, `,"start":`, &h.Start)
		text(c, `,"boot_id":`, &h.Boot)
		c.instant(`,"time":`, `,"boot":`, &h.At, lock.Instant{})
		number(c, `,"last":`, &h.Last)
		number(c, `,"reserved":`, &h.Reserved)
		number(c, `,"from":`, &h.FirstNeeded)
		number(c, `,"length":`, &h.Length)
	}
}

// record codes a record.
func (c *coder) record(l *line) {
	r := l.record
	h := &r.Hold
	if c.reading {
		r.Kind = l.kind
	}
	textValue(c, &h.Name)
	number(c, `,"token":`, &h.Token)
	text(c, `,"cause":`, &r.Cause)
	c.instant(`,"time":`, `,"boot":`, &r.At, lock.Instant{})
	text(c, `,"account":`, &h.Owner.Account)
	text(c, `,"address":`, &h.Owner.Address)
	number(c, `,"session":`, &h.Owner.Session)
	text(c, `,"nonce":`, &h.Owner.JobKey)
	if c.key(`,"by":`, r.By != h.Owner) {
		textValue(c, &r.By.Account)
		text(c, `,"by_address":`, &r.By.Address)
		number(c, `,"by_session":`, &r.By.Session)
		text(c, `,"by_nonce":`, &r.By.JobKey)
	} else if c.reading {
		r.By = h.Owner
	}
	number(c, `,"replaces":`, &r.Replaces)
	number(c, `,"held":`, &l.held)
	text(c, `,"note":`, &r.Note)
	if c.key(`,"file":`, r.File != nil) {
		c.file(r)
	}
	if l.kind == lock.Granted || l.kind == lock.Changed || l.kind == heldLine {
		c.hold(h, r.At)
	}
	if l.kind == lock.Ended {
		c.flag(`,"automatic":`, &h.Job)
	}
}

func (c *coder) file(r *lock.Record) {
	if c.reading {
		r.File = new(lock.Publication)
	}
	textValue(c, &r.File.Path)
	number(c, `,"bytes":`, &r.File.Bytes)
	text(c, `,"sha256":`, &r.File.SHA256)
}

// hold codes the fields of a held lock, except for its name, token and owner.
func (c *coder) hold(h *lock.Hold, at lock.Instant) {
	c.instant(`,"acquired":`, `,"acquired_boot":`, &h.Acquired, at)
	c.instant(`,"renewed":`, `,"renewed_boot":`, &h.Renewed, h.Acquired)
	c.flag(`,"shared":`, &h.Shared)
	c.flag(`,"automatic":`, &h.Job)
	number(c, `,"asked_age":`, &h.Asked.Age)
	c.flag(`,"asked_release":`, &h.Asked.Release)
	number(c, `,"asked_grace":`, &h.Asked.Grace)
	number(c, `,"inode":`, &h.Directory.Inode)
	number(c, `,"birth":`, &h.Directory.Birth)
	number(c, `,"parent":`, &h.Directory.Parent)
	if c.key(`,"rule":`, h.Rule != nil) {
		if c.reading {
			h.Rule = new(lock.Rule)
		}
		c.rule(h.Rule)
	}
	text(c, `,"hold_note":`, &h.Note)
}

func (c *coder) rule(r *lock.Rule) {
	textValue(c, &r.Match)
	number(c, `,"max_age":`, &r.MaxAge)
	number(c, `,"max_idle":`, &r.MaxIdle)
	text(c, `,"on_disconnect":`, &r.OnDisconnect)
	number(c, `,"grace":`, &r.Grace)
	number(c, `,"lock_delay":`, &r.LockDelay)
	text(c, `,"release":`, &r.Release)
	c.flag(`,"allow_cwd":`, &r.AllowCwd)
}

// damaged returns the error for a line that is neither whole nor the torn end of a segment.
func damaged(path string, number int, err error) error {
	return fmt.Errorf("%s:%d: damaged: %w", path, number, err)
}
