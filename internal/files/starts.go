package files

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// prefix begins the names of temporary files. The id of the start that made them follows, then a dash and a number.
const prefix = ".ftplockd-"

// newID returns an id that is unique and that clients cannot guess.
func newID() string { return strings.ToLower(rand.Text()) }

// isID reports whether s has the form of an id.
func isID(s string) bool {
	return len(s) == 26 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// begin makes the mark of this start: an empty file in the state directory, made before any temporary file. By the
// marks a later start tells temporary files that were left from files with similar names. Close removes the mark.
func (t *Tree) begin() error {
	earlier, err := t.earlierStarts()
	if err != nil {
		return err
	}
	t.starts = map[string]struct{}{t.start: {}}
	for _, mark := range earlier {
		t.starts[idOf(mark)] = struct{}{}
	}
	if err := os.WriteFile(filepath.Join(t.state, t.mark()), nil, 0o600); err != nil {
		return bare(err)
	}
	return bare(syncHost(t.state))
}

// mark returns the name of this start's mark: its id, and its epoch if it has one.
func (t *Tree) mark() string {
	if t.epoch == 0 {
		return t.start
	}
	return t.start + "." + strconv.FormatUint(uint64(t.epoch), 10)
}

// idOf returns the id in a mark.
func idOf(mark string) string {
	id, _, _ := strings.Cut(mark, ".")
	return id
}

// isEarlier reports whether a file in the state directory is the mark of a start before this one.
func (t *Tree) isEarlier(mark string) bool {
	id, number, hasEpoch := strings.Cut(mark, ".")
	if !isID(id) || id == t.start {
		return false
	}
	epoch, err := strconv.ParseUint(number, 10, 32)
	return !hasEpoch || err == nil && (t.epoch == 0 || uint32(epoch) < t.epoch)
}

// earlierStarts returns the marks of the earlier starts that may have left temporary files.
func (t *Tree) earlierStarts() (marks []string, err error) {
	all, err := os.ReadDir(t.state)
	for _, e := range all {
		if t.isEarlier(e.Name()) {
			marks = append(marks, e.Name())
		}
	}
	return marks, bare(err)
}

// forget removes the marks of starts that have no temporary file left.
func (t *Tree) forget(marks ...string) error {
	var errs []error
	for _, mark := range marks {
		if err := os.Remove(filepath.Join(t.state, mark)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, bare(err))
		}
	}
	return errors.Join(errs...)
}

// startOf returns the id in the name of a temporary file.
func startOf(base string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(base, prefix)
	id, _, _ = strings.Cut(rest, "-")
	return id, ok
}

// isTemporary reports whether a name is one of a temporary file of this start or an earlier one.
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
