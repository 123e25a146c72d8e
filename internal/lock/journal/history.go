package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// History yields what happened in the state directory to the lock of that name, what its holders published, and
// who published a file of that name, oldest first, as far as the
// files in its history go back; for the name "" it yields all. It may be called while a server uses the directory. It stops at the first
// error; a last line that is still being written is left out.
func History(dir string, name lock.Name) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		if err := stateDir(dir).history(name, yield); err != nil {
			yield(lock.Entry{}, err)
		}
	}
}

// history opens the journal first: if it is rotated meanwhile, the same file is found among the rotated ones, too, and left out there.
func (d stateDir) history(name lock.Name, yield func(lock.Entry, error) bool) error {
	current, err := os.Open(d.journal())
	if err != nil {
		return err
	}
	defer current.Close()
	old, err := d.rotated()
	if err != nil {
		return err
	}
	for _, path := range old {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was too old
		}
		if err != nil {
			return err
		}
		goOn := true
		if !same(f, current) {
			goOn, err = entries(f, false, name, yield)
		}
		f.Close()
		if !goOn || err != nil {
			return err
		}
	}
	_, err = entries(current, true, name, yield)
	return err
}

func same(a, b *os.File) bool {
	one, err := a.Stat()
	other, oerr := b.Stat()
	return err == nil && oerr == nil && os.SameFile(one, other)
}

// entries yields those of one file, and reports whether more are wanted. What is wrong with the last line of a file was
// still being written, or cut off by a crash.
func entries(f *os.File, growing bool, name lock.Name, yield func(lock.Entry, error) bool) (goOn bool, err error) {
	key := appendText(nil, string(name)) // with its quotation marks
	lines := newLineReader(f)
	for {
		text, err := lines.next()
		if atEnd(err) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if name != "" && !concerns(text, key) {
			continue
		}
		hole := growing && bytes.IndexByte(text, 0) >= 0
		l, err := parseLine(text)
		if number := lines.number; err != nil {
			if last, _ := lines.rest(); last || hole {
				return true, nil
			}
			return false, fmt.Errorf("%s:%d: damaged: %w", f.Name(), number, err)
		}
		if !l.own() && (name == "" || l.Name == name || l.File == name) && !yield(l.Entry, nil) {
			return false, nil
		}
	}
}

// concerns reports whether a line may be about the lock or file with that key. It goes by where appendLine puts the name, as nearly
// all lines are about others: to search the whole of each would take several times as long.
func concerns(text, key []byte) bool {
	rest, ok := bytes.CutPrefix(text, []byte(`{"event":"`))
	if !ok {
		return bytes.Contains(text, key) // it is damaged, perhaps
	}
	if bytes.HasPrefix(rest, []byte(lock.CausePublish)) {
		return bytes.Contains(text, key)
	}
	_, rest, _ = bytes.Cut(rest, []byte(`","name":`))
	return bytes.HasPrefix(rest, key)
}
