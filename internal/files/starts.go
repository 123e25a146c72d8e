package files

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// newID returns an id that is unique and that clients cannot guess.
func newID() string { return strings.ToLower(rand.Text()) }

// isID reports whether s has the form of an id.
func isID(s string) bool {
	return len(s) == 26 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// newTemporary returns the name of a new temporary file: the prefix, the id of this start, a dash and a number.
func (t *Tree) newTemporary() string {
	return prefix + t.start + "-" + strconv.FormatUint(t.tempCount.Add(1), 36)
}

// Ready returns nil if the root of the tree accepts new names: it makes and removes a temporary file. It may wait for the disk.
func (t *Tree) Ready() error {
	dir, err := t.openDirectory("/")
	if err != nil {
		return fail("ready", "/", err)
	}
	defer dir.close()
	t.unfinished.Add(1)
	name := t.newTemporary()
	f, err := dir.create(name, 0o600)
	if err == nil {
		err = cmp.Or(f.Close(), dir.removeFile(name))
	}
	if err == nil || f == nil {
		t.unfinished.Add(-1)
	}
	return fail("ready", "/", err)
}

// startOf returns the id of the start that made a temporary file; "" if the name is not one of a temporary file.
func startOf(base string) string {
	rest, ok := strings.CutPrefix(base, prefix)
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, "-")
	return id
}

// makeMark makes the mark of this start, before any temporary file: an empty file in the state directory. A later start removes the
// temporary files of the starts whose marks it finds. Close removes the mark.
func (t *Tree) makeMark() error {
	if err := os.WriteFile(filepath.Join(t.state, t.mark()), nil, 0o600); err != nil {
		return stripPaths(err)
	}
	return stripPaths(syncHost(t.state))
}

// mark returns the name of this start's mark: its id, and its epoch if it has one.
func (t *Tree) mark() string {
	if t.epoch == 0 {
		return t.start
	}
	return t.start + "." + strconv.FormatUint(uint64(t.epoch), 10)
}

// earlierStarts returns the marks of the earlier starts that may have left temporary files, by their ids.
func (t *Tree) earlierStarts() (marks map[string]string, err error) {
	marks = make(map[string]string)
	all, err := os.ReadDir(t.state)
	for _, e := range all {
		id, number, hasEpoch := strings.Cut(e.Name(), ".")
		epoch, err := strconv.ParseUint(number, 10, 32)
		earlier := !hasEpoch || err == nil && (t.epoch == 0 || uint32(epoch) < t.epoch)
		if isID(id) && id != t.start && earlier {
			marks[id] = e.Name()
		}
	}
	return marks, stripPaths(err)
}

// removeMarks removes the marks of starts that have no temporary file left.
func (t *Tree) removeMarks(marks ...string) error {
	var errs []error
	for _, mark := range marks {
		if err := os.Remove(filepath.Join(t.state, mark)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, stripPaths(err))
		}
	}
	return errors.Join(errs...)
}
