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

// Leftovers is the directory, below the root of the tree, that [Tree.Aside] moves to. It is [Hidden].
const Leftovers = "/" + prefix + "leftovers"

// beside begins the name of a leftover that stays in the directory of its lock.
const beside = prefix + "leftover-"

// asideTries is the number of leftovers of one lock, holder and token that Aside keeps at most.
const asideTries = 1000

// Aside moves the directory of a lock, with the files in it, out of the way by one rename: to a directory in [Leftovers] whose
// name contains the token, the holder and the lock. A token that occurs again gets a number: "7-2". Where [Leftovers] is on another
// file system, the directory stays beside the lock, under a hidden name. Aside returns the new name. If nothing has the name, the
// error is fs.ErrNotExist.
func (t *Tree) Aside(name, by string, token uint64) (to string, err error) {
	suffix := "," + url.PathEscape(by) + "," + url.PathEscape(name) // no other comma is in the result
	now := t.now()
	if err := t.Chtimes(name, now, now); err != nil { // its age counts from now on
		return "", err
	}
	if err := t.Mkdir(Leftovers, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	for try := 1; try <= asideTries; try++ {
		base := strconv.FormatUint(token, 10)
		if try > 1 {
			base += "-" + strconv.Itoa(try)
		}
		base += suffix
		base = base[:min(len(base), 200)]
		to = path.Join(Leftovers, base)
		if err = t.Rename(name, to); errors.Is(err, syscall.EXDEV) {
			to = path.Join(path.Dir(name), beside+base)
			err = t.Rename(name, to)
		}
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.EISDIR) {
			break
		}
	}
	return to, err
}

// IsLeftover reports whether Aside gives such names.
func IsLeftover(name string) bool {
	dir, base := path.Split(path.Join("/", name))
	return strings.HasPrefix(base, beside) || path.Clean(dir) == Leftovers
}

// SweepLeftovers removes the directories in Leftovers, with all files in them, that were moved there before a time. Those that
// stayed beside their locks, on other file systems, stay.
func (t *Tree) SweepLeftovers(before time.Time) error {
	all, err := afero.ReadDir(t, Leftovers)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, info := range all {
		if info.ModTime().Before(before) {
			// Only this call removes recursively.
			err := t.root.RemoveAll(relative(path.Join(Leftovers, info.Name())))
			if err == nil {
				t.log.Info("leftovers of a lock removed", "name", info.Name(), "since", info.ModTime())
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
