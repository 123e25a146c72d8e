package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Entry is one event of the history of a lock, or of a file that locks protect.
type Entry struct {
	At    lock.Instant
	Cause lock.Cause
	Name  lock.Name
	Token lock.Token    // the revision of the record that the event made
	By    lock.Owner    // who asked for it
	Held  time.Duration // how long the oldest hold that ended by it had stood; 0 if none did
	Note  string
	Holds []lock.Hold // those that stood afterwards
	// Of a publication: which file, how long it is, its digest. Token is that of the hold.
	File   lock.Name
	Bytes  int64
	SHA256 string
}

// History yields what happened in the state directory to the lock of that name, what its holders published, and
// who published a file of that name, oldest first, as far as the
// files in its history go back. It may be called while a server uses the directory. It stops at the first
// error; a last line that is still being written is left out.
func History(dir string, name lock.Name) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		files, err := stateDir(dir).chronicle()
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer closeAll(files)
		for i, f := range files {
			if !entries(f, i == len(files)-1, name, yield) {
				return
			}
		}
	}
}

// chronicle opens all files, oldest first. The journal is opened first: if it is rotated meanwhile, the
// same file is found in history, too, and left out there.
func (d stateDir) chronicle() (files []*os.File, err error) {
	current, err := os.Open(d.journal())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			closeAll(append(files, current))
		}
	}()
	info, err := current.Stat()
	if err != nil {
		return nil, err
	}
	old, err := d.rotated()
	if err != nil {
		return nil, err
	}
	for _, path := range old {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the operator has just removed it
		}
		if err != nil {
			return files, err
		}
		if same(f, info) {
			f.Close()
			continue
		}
		files = append(files, f)
	}
	return append(files, current), nil
}

func same(f *os.File, info fs.FileInfo) bool {
	other, err := f.Stat()
	return err == nil && os.SameFile(other, info)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// entries yields those of one file, and reports whether more are wanted. What is wrong with the last line of a file was
// still being written, or cut off by a crash.
func entries(f *os.File, growing bool, name lock.Name, yield func(Entry, error) bool) (goOn bool) {
	key := appendText(nil, string(name)) // with its quotation marks
	lines := newLineReader(f)
	for {
		text, err := lines.next()
		if atEnd(err) {
			return true
		}
		if err == nil && !concerns(text, key) {
			continue
		}
		var l line
		if err == nil {
			hole := growing && bytes.IndexByte(text, 0) >= 0
			l, err = parseLine(text)
			if number := lines.number; err != nil {
				if last, _ := lines.rest(); last || hole {
					return true
				}
				err = fmt.Errorf("%s:%d: damaged: %w", f.Name(), number, err)
			}
		}
		if err != nil {
			yield(Entry{}, err)
			return false
		}
		if !l.own() && (l.Name == name || l.File == name) && !yield(l.Entry, nil) {
			return false
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
