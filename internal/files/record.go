package files

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
)

// prefix begins the names of temporary files. The id of the start that made them follows, a dash and a number.
const prefix = ".ftplockd-"

// newID returns an id that nobody else has or guesses.
func newID() string { return strings.ToLower(rand.Text()) }

// isID says whether newID could have made it.
func isID(s string) bool {
	return len(s) == 26 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// records are the directories in which this start of the server makes temporary files. They are written down, each before
// the first temporary file in it is made, as lines of a file in the state directory that is named by the start's id. So a later
// start knows where to look for what this one may leave.
//
// Versions before had a file for each upload, named by its id, with the same kind of line in it; the temporary file was
// the prefix and the id.
type records struct {
	mu    sync.Mutex
	file  *os.File // nil: nothing is recorded yet
	known map[recorded]struct{}
	left  map[string]string // temporary files that could not be removed, with their directories
}

// recorded is a directory that is written down.
type recorded struct {
	dir           string // FTP path
	device, inode uint64 // that directory itself, wherever it is moved to; 0: the system does not tell
}

// maxRecords is how many directories are recorded before those in which nothing lies any more are dropped.
const maxRecords = 4096

// line is the record as it stands in the file. Names are bytes: they are quoted. The line break before it ends a line that a
// full disk has cut off.
func (r recorded) line() []byte {
	return fmt.Appendf(nil, "\n2 %q %d %d\n", r.dir, r.device, r.inode)
}

// parseRecord reads a line, of this version or the one before. What it does not know is no record.
func parseRecord(line string) (r recorded, ok bool) {
	rest, ok := strings.CutPrefix(line, "2 ")
	if !ok {
		rest, ok = strings.CutPrefix(line, "1 ")
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if !ok || err != nil {
		return r, false
	}
	if r.dir, err = strconv.Unquote(quoted); err != nil {
		return r, false
	}
	n, err := fmt.Sscanf(rest[len(quoted):], " %d %d", &r.device, &r.inode)
	return r, n == 2 && err == nil
}

// findStarts learns which earlier starts may have left temporary files.
func (t *Tree) findStarts() error {
	ids, err := t.earlierStarts()
	if err != nil {
		return err
	}
	t.starts = map[string]struct{}{t.start: {}}
	for _, id := range ids {
		t.starts[id] = struct{}{}
	}
	return nil
}

// earlierStarts lists those that have a record.
func (t *Tree) earlierStarts() (ids []string, err error) {
	d, err := t.state.Open(".")
	if err != nil {
		return nil, bare(err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	for _, n := range names {
		if isID(n) && n != t.start {
			ids = append(ids, n)
		}
	}
	return ids, bare(err)
}

// startOf returns the start that a name of a temporary file tells.
func startOf(base string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(base, prefix)
	id, _, _ = strings.Cut(rest, "-")
	return id, ok
}

// isTemporary says whether a name is one that this start or an earlier one that has a record gives to temporary files.
func (t *Tree) isTemporary(base string) bool {
	id, ok := startOf(base)
	if ok {
		_, ok = t.starts[id]
	}
	return ok
}

// newTemporary returns a name for a temporary file.
func (t *Tree) newTemporary() string {
	return prefix + t.start + "-" + strconv.FormatUint(t.made.Add(1), 36)
}

// record sees to it that a directory is recorded.
func (t *Tree) record(at recorded) error {
	r := &t.records
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.known[at]; ok {
		return nil
	}
	if err := t.check("record"); err != nil {
		return err
	}
	if len(r.known) >= maxRecords {
		if err := t.shortenRecordLocked(); err != nil {
			return err
		}
	}
	if r.file == nil {
		f, err := t.state.OpenFile(t.start, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return bare(err)
		}
		r.file, r.known = f, make(map[recorded]struct{})
	}
	if _, err := r.file.Write(at.line()); err != nil {
		return bare(err)
	}
	r.known[at] = struct{}{}
	return nil
}

// shortenRecordLocked replaces the record by one of the directories in which uploads are under way, or temporary files were left.
func (t *Tree) shortenRecordLocked() error {
	r := &t.records
	kept := t.uploads.recorded()
	var text []byte
	for at := range r.known {
		for _, dir := range r.left {
			if at.dir == dir {
				kept[at] = struct{}{}
			}
		}
		if _, ok := kept[at]; ok {
			text = append(text, at.line()...)
		}
	}
	const next = "next"
	if err := errors.Join(t.state.WriteFile(next, text, 0o600), t.state.Rename(next, t.start)); err != nil {
		return bare(err)
	}
	f, err := t.state.OpenFile(t.start, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return bare(err)
	}
	r.file.Close()
	r.file, r.known = f, kept
	return nil
}

// closeRecords removes the record if nothing is left, and closes it.
func (t *Tree) closeRecords() error {
	r := &t.records
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	if len(r.left) == 0 && len(t.uploads.recorded()) == 0 {
		err = errors.Join(err, t.state.Remove(t.start))
	}
	return err
}

// leave notes a temporary file that could not be removed.
func (r *records) leave(dir, temp string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == nil {
		r.left = make(map[string]string)
	}
	r.left[temp] = dir
}
