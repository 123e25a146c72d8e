package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// state is what a journal says when it has been read to its end.
type state struct {
	records    map[lock.Name]lock.Record
	tombstones tombstones
	generation uint32
	last       lock.Token // no token above it was given
	size       int64      // where the last good line ends
	torn       bool       // something that is no line follows, or that is behind a hole
	eventful   bool       // it has lines for the history
}

// replay reads the journal. Behind its end there may be room, which reads as zeros. What is wrong with the last line is a write
// that a crash cut off. Of several lines that were not synced a loss of power may have taken the first and left the last: a
// hole, which reads as zeros. Nobody was told of what stands behind it. Anything else is damage, and an error that names file
// and line.
func replay(path string) (state, error) {
	f, err := os.Open(path)
	if err != nil {
		return state{}, err
	}
	defer f.Close()
	st := state{records: make(map[lock.Name]lock.Record), tombstones: make(tombstones)}
	lines := newLineReader(f)
	for {
		text, err := lines.next()
		if err == io.EOF {
			break
		}
		if errors.Is(err, errTorn) {
			st.torn = !empty(text)
			break
		}
		if err != nil {
			return state{}, err
		}
		hole := bytes.IndexByte(text, 0) >= 0
		l, err := parseLine(text)
		if err == nil {
			err = st.apply(&l)
		}
		if number := lines.number; err != nil {
			if last, synced := lines.rest(); last || hole && !synced {
				st.torn = true
				break
			}
			return state{}, fmt.Errorf("%s:%d: damaged: %w", path, number, err)
		}
		st.size = lines.offset
	}
	if st.size == 0 {
		return state{}, fmt.Errorf("%s:1: damaged: its first line is missing", path)
	}
	return st, nil
}

// apply takes one line into account.
func (st *state) apply(l *line) error {
	if (l.Cause == eventJournal) != (st.size == 0) {
		return errors.New("the journal's first line in the wrong place")
	}
	st.last = max(st.last, l.Token, l.Reserved)
	st.generation = max(st.generation, l.Generation)
	st.eventful = st.eventful || !l.own()
	switch {
	case l.Cause == eventJournal && l.Version != version:
		return fmt.Errorf("version %d of the format; this program reads version %d", l.Version, version)
	case l.Cause == eventDirectory:
		if record := st.records[l.Name]; record.Revision == l.Token {
			setDirectory(record.Holds, l.Directory)
		}
	case !l.named(), l.Cause == lock.CausePublish:
	case len(l.Holds) == 0: // a tombstone, too
		delete(st.records, l.Name)
		st.tombstones.add(lock.Tombstone{Name: l.Name, Directory: l.Directory, At: l.At, Token: l.Token})
	default:
		delete(st.tombstones, l.Name)
		st.records[l.Name] = lock.Record{Name: l.Name, Revision: l.Token, Holds: l.Holds}
	}
	return nil
}

// errTorn says that a file's last line has no newline, which may be nothing but room.
var errTorn = errors.New("the last line is cut off")

// lineReader reads a journal line by line.
type lineReader struct {
	r      *bufio.Reader
	number int   // of the line that next returned, from 1
	offset int64 // where it ends
}

// lineBuffer is how long a line may be that is not copied.
const lineBuffer = 64 << 10

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, lineBuffer)}
}

// next returns the next line without its newline, io.EOF, or errTorn with what there is. It is good until the next call.
func (r *lineReader) next() ([]byte, error) {
	text, err := r.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		begin := slices.Clone(text)
		text, err = r.r.ReadBytes('\n')
		text = append(begin, text...)
	}
	if err == io.EOF && len(text) > 0 {
		return text, errTorn
	}
	if err != nil {
		return nil, err
	}
	r.number++
	r.offset += int64(len(text))
	return text[:len(text)-1], nil
}

// rest reads on to the end. It reports whether nothing follows but room, and whether some line proves that what is before it was
// synced, as each line does that stands behind one which is always synced before anything else is written.
func (r *lineReader) rest() (nothing, synced bool) {
	proof := false
	for nothing = true; ; nothing = false {
		text, err := r.next()
		if err != nil {
			return nothing && (err == io.EOF || errors.Is(err, errTorn) && empty(text)), synced || !atEnd(err)
		}
		l, err := parseLine(text)
		switch {
		case err != nil:
		case proof:
			synced = true
		case l.Cause == eventStart, l.Cause == eventTokens:
			proof = true
		}
	}
}

// atEnd reports whether an error of next is that there are no more lines. Any other leaves unknown what there is.
func atEnd(err error) bool { return err == io.EOF || errors.Is(err, errTorn) }

// empty reports whether there is nothing but zeros.
func empty(text []byte) bool { return len(bytes.TrimLeft(text, "\x00")) == 0 }
