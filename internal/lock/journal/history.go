package journal

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"math"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/record"
)

// History implements [lock.History].
func (l *Log) History(ctx context.Context, name lock.Name) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		_ = l.write(math.MaxInt64) // then Run returns the error
		for entry, err := range History(l.o.Dir, name) {
			if cerr := ctx.Err(); cerr != nil {
				yield(lock.Entry{}, cerr)
				return
			}
			if !yield(entry, err) {
				return
			}
		}
	}
}

// History yields the entries that concern a lock, a file or a directory, see [lock.Entry.Concerns], the oldest first, as far back as the
// segments go; for the name "" it yields all. It may be called while a server uses the directory. It stops at the first
// error. A last line that the server is writing is left out.
func History(dir string, name lock.Name) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		if err := stateDir(dir).readHistory(name, yield); err != nil {
			yield(lock.Entry{}, err)
		}
	}
}

// errStop ends a history that is not wanted any more.
var errStop = errors.New("stop")

func (d stateDir) readHistory(name lock.Name, yield func(lock.Entry, error) bool) error {
	numbers, err := d.numbers()
	if err == nil && len(numbers) == 0 {
		err = &fs.PathError{Op: "open", Path: d.segment(1), Err: fs.ErrNotExist}
	}
	if err != nil {
		return err
	}
	r := &reader{dir: d}
	var key []byte // the name as it is in a line; none: all lines have it
	if name != "" {
		key = record.AppendText(nil, string(name)) // names in that directory have it, too
	}
	each := func() bool {
		if r.line.Kind == 0 || !record.IsEntry(&r.line.Record) {
			return true
		}
		entry := r.line.Entry()
		return name != "" && !entry.Concerns(name) || yield(entry, nil)
	}
	for i, number := range numbers {
		limit := int64(-1)
		if i+1 < len(numbers) && numbers[i+1] == number+1 {
			next, hasHeader, err := r.readHeader(number + 1)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if hasHeader {
				limit = int64(next.Length)
			}
		}
		_, err := r.scan(number, limit, key, each)
		if errors.Is(err, errStop) {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a sweep removed it
			return err
		}
	}
	return nil
}
