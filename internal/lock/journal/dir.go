package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// stateDir is the real path of a state directory.
type stateDir string

func (d stateDir) path(elements ...string) string {
	return filepath.Join(append([]string{string(d)}, elements...)...)
}

// segments is the directory of the segments.
func (d stateDir) segments() string { return d.path("journal") }

// suffix is the end of the name of a segment; before it is its number.
const suffix = ".log"

func (d stateDir) segment(number uint64) string {
	return d.path("journal", fmt.Sprintf("%08d"+suffix, number))
}

// spare is the file that is to become the next segment. It counts from the moment when it gets its number.
func (d stateDir) spare() string { return d.path("journal", "spare") }

// make makes the parts of a state directory that are missing, and syncs the names of it and of the directories above, which may be new too. A
// directory that this process cannot read, or that cannot be synced, was there before.
func (d stateDir) make() error {
	if err := os.MkdirAll(d.segments(), 0o700); err != nil {
		return err
	}
	path, err := filepath.Abs(d.segments())
	for above := filepath.Dir(path); err == nil && above != path; path, above = above, filepath.Dir(above) {
		err = syncDir(above)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EROFS) {
			err = nil
		}
	}
	return err
}

// numbers returns the numbers of the segments in order. A state directory without any is no error; one with segments of an earlier build is.
func (d stateDir) numbers() ([]uint64, error) {
	entries, err := os.ReadDir(d.segments())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []uint64
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".jsonl") { // a form that was never released
			return nil, fmt.Errorf("an earlier build of ftplockd wrote %s, and this version cannot read it: release all locks with that build, stop it, and move %s away; fencing tokens begin anew",
				filepath.Join(d.segments(), entry.Name()), d.segments())
		}
		digits, ok := strings.CutSuffix(entry.Name(), suffix)
		if number, err := strconv.ParseUint(digits, 10, 64); ok && err == nil && entry.Type().IsRegular() {
			all = append(all, number)
		}
	}
	slices.Sort(all)
	return all, nil
}

// checkNotElsewhere returns an error if the last server on the state directory kept its locks in another log.
func (d stateDir) checkNotElsewhere() error {
	if _, err := os.Lstat(d.path(elsewhereMarker)); err == nil {
		return fmt.Errorf("the locks of %s are in etcd: is the section [etcd] missing? If this server is to be the only one from now on, stop all others, and remove %s", d, d.path(elsewhereMarker))
	}
	return nil
}

// elsewhereMarker is a file in the state directory of a server that keeps its locks in another log.
const elsewhereMarker = "elsewhere"

// ReserveDir takes a state directory for a server that keeps its locks in another log, until the result is closed or the process ends. It
// refuses a directory whose journal has held locks, since these would be free in the other log. last is the last token of the
// journal. ReserveDir marks the directory, so that Open refuses it afterwards: a server that is started without the other log by mistake
// must not grant locks that others hold.
func ReserveDir(state string, clock lock.Clock, bootID string) (_ io.Closer, last lock.Token, err error) {
	dir := stateDir(state)
	locked, err := dir.lock()
	if err != nil {
		return nil, 0, err
	}
	found, err := dir.read(clock.Exact(), bootID)
	if err == nil && len(found.holds) > 0 {
		err = fmt.Errorf("%s has %d locks that were granted without [etcd], which other clients could get now. Start the server without [etcd] and "+
			`have them released ("ftplockd locks" lists them, "ftplockd break" ends one), or move %s away to forget them`, dir, len(found.holds), dir.segments())
	}
	if err == nil {
		last, err = found.loaded().Last, os.WriteFile(dir.path(elsewhereMarker), nil, 0o600)
	}
	if err != nil {
		return nil, 0, errors.Join(err, locked.Close())
	}
	return locked, last, nil
}

// syncDir makes the names in a directory survive a loss of power. Windows has no such call: there a loss of power after a rename can
// bring the old name back.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// isFull reports whether an error means that there is no space.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// withoutPath removes the real path from an error, so that a client may see it.
func withoutPath(err error) error {
	var withPath *os.PathError
	if errors.As(err, &withPath) {
		return withPath.Err
	}
	return err
}
