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
			goOn, err := entries(f, i == len(files)-1, name, yield)
			if err != nil {
				yield(Entry{}, err)
			}
			if err != nil || !goOn {
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

// entries yields those of one file, and reports whether more are wanted. Of a file that is growing a line with zeros in it ends
// what is read: it was still being written, and what is behind it is younger than the call.
func entries(f *os.File, growing bool, name lock.Name, yield func(Entry, error) bool) (goOn bool, err error) {
	key := appendText([]byte(`"name":`), string(name))
	fileKey := appendText([]byte(`"file":`), string(name))
	lines := newLineReader(f)
	for {
		text, err := lines.next()
		if err != nil && !atEnd(err) {
			return false, err
		}
		if err != nil || growing && bytes.IndexByte(text, 0) >= 0 {
			return true, nil
		}
		if !bytes.Contains(text, key) && !bytes.Contains(text, fileKey) {
			continue
		}
		l, err := parseLine(text)
		if err != nil {
			number := lines.number
			if last, _ := lines.rest(); last {
				return true, nil
			}
			return false, fmt.Errorf("%s:%d: damaged: %w", f.Name(), number, err)
		}
		if l.own() || l.Name != name && l.File != name {
			continue
		}
		if !yield(Entry{
			At: l.At, Cause: l.Event, Name: l.Name, Token: l.Token, By: l.By, Held: l.Held, Note: l.Note, Holds: l.Holds,
			File: l.File, Bytes: l.Bytes, SHA256: l.SHA256,
		}, nil) {
			return false, nil
		}
	}
}
