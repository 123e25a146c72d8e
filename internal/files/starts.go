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

// prefix begins the names of temporary files. The id of the start that made them follows, a dash and a number.
const prefix = ".ftplockd-"

// newID returns an id that nobody else has or guesses.
func newID() string { return strings.ToLower(rand.Text()) }

// isID says whether newID could have made it.
func isID(s string) bool {
	return len(s) == 26 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// begin notes this start of the server, in a file of the state directory that is named by its id, before any temporary file is
// made. So a later start knows which temporary files are left-overs and which files just look like it. Close removes the file.
func (t *Tree) begin() error {
	earlier, err := t.earlierStarts()
	if err != nil {
		return err
	}
	t.starts = map[string]struct{}{t.start: {}}
	for _, id := range earlier {
		t.starts[id] = struct{}{}
	}
	if err := os.WriteFile(filepath.Join(t.state, t.start), nil, 0o600); err != nil {
		return bare(err)
	}
	return bare(syncHost(t.state))
}

// earlierStarts lists those whose temporary files have not been swept.
func (t *Tree) earlierStarts() (ids []string, err error) {
	all, err := os.ReadDir(t.state)
	for _, e := range all {
		if id := e.Name(); isID(id) && id != t.start {
			ids = append(ids, id)
		}
	}
	return ids, bare(err)
}

// forget is for starts of which no temporary file is left.
func (t *Tree) forget(ids ...string) error {
	var errs []error
	for _, id := range ids {
		if err := os.Remove(filepath.Join(t.state, id)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, bare(err))
		}
	}
	return errors.Join(errs...)
}

// startOf returns the start that a name of a temporary file tells. Versions before had a start for each upload, and no number.
func startOf(base string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(base, prefix)
	id, _, _ = strings.Cut(rest, "-")
	return id, ok
}

// isTemporary says whether a name is one that this start or an earlier one gives to temporary files.
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
