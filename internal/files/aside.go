package files

import (
	"errors"
	"io/fs"
	"net/url"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/afero"
)

// Leftovers is the directory, below the root of the tree, that [Tree.Aside] moves to. Clients do not see it.
const Leftovers = "/" + prefix + "leftovers"

// Aside moves what a lock has left, a directory, out of everybody's way, by one rename: to a directory in [Leftovers] whose
// name tells the token, the holder and the lock. Where that is another file system it stays beside the lock, under a name that
// clients do not see either. It returns the new name. fs.ErrNotExist if there is nothing.
func (t *Tree) Aside(name, of, by string, token uint64) (string, error) {
	as := strconv.FormatUint(token, 10) + "," + url.PathEscape(by) + "," + url.PathEscape(of) // which leaves no comma
	as = as[:min(len(as), 200)]
	now := t.now()
	if err := t.Chtimes(name, now, now); err != nil { // its age counts from now on
		return "", err
	}
	if err := t.Mkdir(Leftovers, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	to := path.Join(Leftovers, as)
	err := t.Rename(name, to)
	if errors.Is(err, syscall.EXDEV) {
		to = path.Join(path.Dir(name), prefix+"leftover-"+as)
		err = t.Rename(name, to)
	}
	return to, err
}

// Hidden reports whether clients neither see nor use a path: Aside made it, or it lies in a directory that Aside made.
func Hidden(name string) bool {
	for element := range strings.SplitSeq(name, "/") {
		rest, ok := strings.CutPrefix(element, prefix)
		if ok && (rest == "leftovers" || strings.HasPrefix(rest, "leftover-")) {
			return true
		}
	}
	return false
}

// IsLeftover reports whether a name is one that Aside gives.
func IsLeftover(name string) bool {
	dir, base := path.Split(path.Join("/", name))
	return strings.HasPrefix(base, prefix+"leftover-") || path.Clean(dir) == Leftovers
}

// SweepLeftovers removes what Aside moved to Leftovers before that time, with all that is in it. What lies beside its lock, on
// another file system, stays.
func (t *Tree) SweepLeftovers(before time.Time) error {
	all, err := afero.ReadDir(t, Leftovers)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, info := range all {
		if info.ModTime().Before(before) {
			// Nothing else in the tree is ever removed recursively.
			err := t.root.RemoveAll(strings.TrimPrefix(path.Join(Leftovers, info.Name()), "/"))
			t.log.Info("leftovers of a lock removed", "name", info.Name(), "since", info.ModTime(), "err", err)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
