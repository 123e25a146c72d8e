package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"slices"
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

// chunk is how much of a file is searched at a time.
const chunk = 1 << 20

// entries yields those of one file, and reports whether more are wanted. What is wrong with the last line of a file was
// still being written, or cut off by a crash.
func entries(f *os.File, growing bool, name lock.Name, yield func(Entry, error) bool) (goOn bool, err error) {
	key := appendText(nil, string(name)) // with its quotation marks
	buffer := make([]byte, 0, chunk)
	for offset := int64(0); ; { // that of buffer in the file
		n, err := f.ReadAt(buffer[len(buffer):cap(buffer)], offset+int64(len(buffer)))
		if err != nil && err != io.EOF {
			return false, err
		}
		buffer = buffer[:len(buffer)+n]
		whole := bytes.LastIndexByte(buffer, '\n') + 1
		if whole == 0 && n > 0 { // a line longer than the buffer
			buffer = slices.Grow(buffer, len(buffer))
			continue
		}
		if whole == 0 {
			return true, nil
		}
		goOn, err := search(buffer[:whole], key, func(text []byte, end int) (bool, error) {
			l, err := parseLine(text)
			if err != nil {
				if last, _ := newLineReader(io.NewSectionReader(f, offset+int64(end), math.MaxInt64)).rest(); last || growing && bytes.IndexByte(text, 0) >= 0 {
					return false, nil
				}
				return false, fmt.Errorf("%s, before byte %d: damaged: %w", f.Name(), offset+int64(end), err)
			}
			if l.own() || l.Name != name && l.File != name {
				return true, nil
			}
			return yield(Entry{
				At: l.At, Cause: l.Event, Name: l.Name, Token: l.Token, By: l.By, Held: l.Held, Note: l.Note, Holds: l.Holds,
				File: l.File, Bytes: l.Bytes, SHA256: l.SHA256,
			}, nil), nil
		})
		if !goOn || err != nil {
			return goOn, err
		}
		offset += int64(whole)
		buffer = buffer[:copy(buffer, buffer[whole:])]
	}
}

// search calls f with each line that concerns the lock or file with that key, and where it ends, until f does not want to go on.
func search(lines, key []byte, f func(line []byte, end int) (goOn bool, err error)) (goOn bool, err error) {
	for at := 0; at < len(lines); {
		end := at + bytes.IndexByte(lines[at:], '\n')
		if text := lines[at:end]; concerns(text, key) {
			if goOn, err := f(text, end+1); !goOn || err != nil {
				return goOn, err
			}
		}
		at = end + 1
	}
	return true, nil
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
