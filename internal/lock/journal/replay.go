package journal

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/record"
)

// content is what the segments of a state directory contain.
type content struct {
	holds    map[lock.Token]lock.Hold
	token    lock.Token // the largest in a record
	reserved lock.Token
	clean    bool         // the server stopped in order
	events   bool         // the last segment has entries of the history
	torn     bool         // it ends with a part of a line, or with lines behind a hole
	number   uint64       // the last segment that was begun; 0: there is none
	header   header       // of it
	at       lock.Instant // the time of the last line that has one
	boot     string       // the id of this boot
	length   int64        // where its lines end
}

// reader reads the segments of a state directory.
type reader struct {
	dir  stateDir
	now  lock.Instant
	line line
	content
}

// read reads all segments that matter for the holds that stand. The last one may end with lines that a crash or a loss of power
// tore, see isTorn. Any other fault is an error that names file and line.
func (d stateDir) read(now lock.Instant, boot string) (*content, error) {
	r := &reader{dir: d, now: now, content: content{holds: make(map[lock.Token]lock.Hold), boot: boot}}
	headers, err := r.readHeaders()
	if err != nil || r.number == 0 {
		return &r.content, err
	}
	for number := r.header.FirstNeeded; number <= r.number; number++ {
		limit := int64(-1)
		if number < r.number {
			limit = int64(headers[number+1].Length)
		}
		if r.length, err = r.readSegment(number, limit); err != nil {
			return nil, err
		}
	}
	if !r.sameBoot(r.header) || r.at.Boot > r.now.Boot { // one start wrote all these segments, perhaps in another time namespace
		for token, h := range r.holds {
			h.Acquired, h.Renewed = r.onThisBoot(h.Acquired), r.onThisBoot(h.Renewed)
			r.holds[token] = h
		}
	}
	return &r.content, nil
}

// readHeaders finds the last segment that was begun, and returns the headers of all segments from FirstNeeded on. Behind it there can be one that has
// only zeros, or lines that were never synced.
func (r *reader) readHeaders() (map[uint64]header, error) {
	numbers, err := r.dir.numbers()
	if err != nil || len(numbers) == 0 {
		return nil, err
	}
	all := make(map[uint64]header)
	for _, number := range slices.Backward(numbers) {
		h, hasHeader, err := r.readHeader(number)
		if err != nil {
			return nil, err
		}
		if all[number] = h; hasHeader && r.number == 0 {
			r.number, r.header, r.reserved = number, h, h.Reserved
		}
		if r.number > 0 && number == r.header.FirstNeeded {
			break
		}
		if r.number > 0 && !hasHeader {
			return nil, damaged(r.dir.segment(number), 1, errors.New("its first line is missing"))
		}
	}
	if r.number == 0 {
		return nil, damaged(r.dir.segment(numbers[0]), 1, errors.New("its first line is missing"))
	}
	for number := r.header.FirstNeeded; number <= r.number; number++ {
		if _, ok := all[number]; !ok {
			return nil, fmt.Errorf("%s is missing", r.dir.segment(number))
		}
	}
	return all, nil
}

// readHeader returns the header of a segment, or false if it has none and nothing in it was synced.
func (r *reader) readHeader(number uint64) (header, bool, error) {
	path := r.dir.segment(number)
	f, err := os.Open(path)
	if err != nil {
		return header{}, false, err
	}
	defer f.Close()
	text, err := bufio.NewReader(f).ReadBytes('\n')
	whole := err == nil && isWhole(text)
	wrong := r.parse(bytes.TrimSuffix(text, newline), whole)
	switch h := r.line.mark.header; {
	case wrong != nil:
		all, err := os.ReadFile(path)
		if err == nil && !r.isTorn(all, 0, whole) {
			err = damaged(path, 1, wrong)
		}
		return header{}, false, err
	case r.line.mark.kind != segmentLine || h.Number != number:
		return header{}, false, damaged(path, 1, errors.New("it is the first line of another file"))
	case h.Version != version:
		return header{}, false, fmt.Errorf("%s:1: version %d of the format; this program reads version %d", path, h.Version, version)
	default:
		return h, true, nil
	}
}

var newline = []byte("\n")

// isWhole reports whether all bytes of a line were written: a segment has zeros where nothing was written.
func isWhole(text []byte) bool { return bytes.IndexByte(text, 0) < 0 }

// parse reads a line, which is whole if a newline follows it and it has no zeros.
func (r *reader) parse(text []byte, whole bool) error {
	if !whole {
		return errors.New("a part is missing")
	}
	return r.line.read(text)
}

// scan reads the lines of a segment that contain the key, and calls each for them until that returns false. If the limit is not negative,
// the lines end exactly there. Otherwise the first torn line ends them, see isTorn. Another fault is damage. scan returns where the lines
// end.
func (r *reader) scan(number uint64, limit int64, key []byte, each func() bool) (int64, error) {
	path := r.dir.segment(number)
	all, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	rest := all
	for row, start := 1, int64(0); start != limit; row++ {
		text, left, whole := bytes.Cut(rest, newline)
		whole = whole && isWhole(text)
		if !whole || bytes.Contains(text, key) { // nearly no line of a history does; to parse each takes longer
			wrong := r.parse(text, whole)
			switch {
			case wrong != nil && limit < 0 && r.isTorn(rest, start, whole):
				r.torn = len(bytes.Trim(rest, "\x00")) > 0
				return start, nil
			case wrong != nil:
				return 0, damaged(path, row, wrong)
			case !each():
				return 0, errStop
			}
		}
		rest, start = left, int64(len(all)-len(left))
	}
	return limit, nil
}

// readSegment takes the lines of a segment into account.
func (r *reader) readSegment(number uint64, limit int64) (end int64, err error) {
	r.events = false
	return r.scan(number, limit, nil, func() bool { r.apply(); return true })
}

func (c *content) sameBoot(h header) bool { return c.boot != "" && h.Boot == c.boot }

// isTorn reports whether the faulty line at start, the first of the rest, was perhaps never written, or never reached the disk: a part of it
// is missing, and no later mark of a sync proves that it was there. The disk may write later pages first, so whole lines behind it prove
// nothing. A whole line with a fault is damage.
func (r *reader) isTorn(rest []byte, start int64, whole bool) bool {
	if whole {
		return false
	}
	for len(rest) > 0 {
		text, left, complete := bytes.Cut(rest, newline)
		text = text[bytes.LastIndexByte(text, 0)+1:]
		if complete && r.line.read(text) == nil && r.line.mark.kind == syncedLine && int64(r.line.mark.number) > start {
			return false
		}
		rest = left
	}
	return true
}

// apply takes one line of a segment into account.
func (r *reader) apply() {
	m, l := &r.line.mark, &r.line.Line
	r.clean = m.kind == closedLine
	if m.kind == segmentLine {
		r.token, r.reserved = max(r.token, m.header.Last), max(r.reserved, m.header.Reserved)
		r.at = m.header.At
	}
	if l.Kind != 0 && l.Kind != record.Held {
		r.at, r.events = l.At, r.events || record.IsEntry(&l.Record)
	}
	switch l.Kind {
	case lock.Granted, lock.Changed, record.Held:
		r.token = max(r.token, l.Hold.Token)
		delete(r.holds, l.Replaces)
		r.holds[l.Hold.Token] = l.Hold
	case lock.Ended:
		delete(r.holds, l.Hold.Token)
	}
}

// onThisBoot maps a moment of the boot that wrote the lines. The wall clock counts from the last line only, because it may have been set
// before. If it went backwards since then, no time has passed since the last line.
func (r *reader) onThisBoot(then lock.Instant) lock.Instant {
	age, since := max(0, r.at.Boot-then.Boot), r.now.Wall.Sub(r.at.Wall) // age at the last line, and the time since then
	if since < 0 {
		return lock.Instant{Wall: r.now.Wall.Add(-age), Boot: r.now.Boot - age}
	}
	return lock.Instant{Wall: then.Wall, Boot: r.now.Boot - since - age}
}

// loaded returns the content for a start, or a move to another log.
func (c *content) loaded() lock.Loaded {
	last := c.token
	if !c.clean { // observers may have got tokens that no record has
		last = max(last, c.reserved)
	}
	all := lock.Loaded{Last: last, Start: c.header.Start}
	for _, hold := range c.holds {
		all.Holds = append(all.Holds, hold)
	}
	slices.SortFunc(all.Holds, func(a, b lock.Hold) int { return cmp.Compare(a.Token, b.Token) })
	return all
}
