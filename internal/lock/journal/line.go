package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/record"
)

// line is one line of the journal: a record, a copy of a hold, or a mark.
type line struct {
	record.Line      // Kind is 0 if the line is a mark
	mark        mark // its kind is "" if the line is no mark
}

// mark is a line about the journal itself.
type mark struct {
	kind   string
	number uint64
	header header
}

// The kinds of marks. The first word of the line is the kind.
const (
	segmentLine = "segment" // the first line of a segment
	syncedLine  = "synced"  // the bytes before the number are synced
	closedLine  = "closed"  // the server stopped in order; the number is the last token
)

// version is the version of the format, in the first line of each segment. The form of package record belongs to it.
const version = 2

// header is the first line of a segment, as JSON.
type header struct {
	Number      uint64       `json:"number"`
	Version     uint32       `json:"version"`
	Start       uint32       `json:"start"`        // the start of the server that wrote it
	Boot        string       `json:"boot_id"`      // the id of the boot that its times are of
	At          lock.Instant `json:"at"`           // when it began
	Last        lock.Token   `json:"last"`         // the largest token before it
	Reserved    lock.Token   `json:"reserved"`     // tokens up to this one may have been given
	FirstNeeded uint64       `json:"first_needed"` // the first segment that a start must read to find all holds
	Length      uint64       `json:"length"`       // the length of the lines of the segment before it
}

// appendTo appends the line of a mark, without a newline.
func (m *mark) appendTo(b []byte) []byte {
	begin := len(b)
	b = append(append(b, m.kind...), ' ')
	if m.kind == segmentLine {
		text, _ := json.Marshal(m.header) // it has no value that JSON cannot have
		b = append(b, text...)
	} else {
		b = strconv.AppendUint(b, m.number, 10)
	}
	return record.Seal(b, begin)
}

// read reads a line without its newline. After an error the line is zero.
func (l *line) read(text []byte) (err error) {
	*l = line{}
	kind, _, _ := bytes.Cut(text, []byte(" "))
	if k := string(kind); k != segmentLine && k != syncedLine && k != closedLine {
		return l.Decode(text)
	}
	body, err := record.Open(text)
	if err != nil {
		return err
	}
	m := mark{kind: string(kind)}
	value := body[min(len(body), len(kind)+1):]
	if m.kind == segmentLine {
		err = json.Unmarshal(value, &m.header)
	} else {
		m.number, err = strconv.ParseUint(string(value), 10, 64)
	}
	if err != nil {
		return fmt.Errorf("at byte %d: want the value of %s: %w", len(kind)+2, kind, err)
	}
	l.mark = m
	return nil
}

// damaged returns the error for a line that is neither whole nor the torn end of a segment.
func damaged(path string, number int, err error) error {
	return fmt.Errorf("%s:%d: damaged: %w", path, number, err)
}
