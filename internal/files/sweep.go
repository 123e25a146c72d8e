package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"time"
)

// sweeper removes what uploads have left.
type sweeper struct {
	mu          sync.Mutex // held over a sweep, for which nobody waits but another sweep
	searchAfter time.Time  // when the whole tree may be searched again
}

// searchEvery is the time between two searches of the whole tree.
const searchEvery = time.Hour

// Sweep removes the temporary files of earlier starts, and those of this one that could not be removed when their upload
// ended. It touches nothing else.
//
// It looks in the directories that are recorded, and if one of these was moved, in the whole tree, at most once an hour. What
// it cannot read it passes over, says so in the error, and tries again the next time. It may run while the tree is in use.
func (t *Tree) Sweep(ctx context.Context) error {
	t.sweeper.mu.Lock()
	defer t.sweeper.mu.Unlock()
	errs := []error{t.removeLeft()}
	ids, err := t.earlierStarts()
	errs = append(errs, err)
	lost := make(map[string]struct{})
	for _, id := range ids {
		if ctx.Err() != nil {
			break
		}
		found, err := t.sweepStart(ctx, id)
		errs = append(errs, err)
		if !found {
			lost[id] = struct{}{}
		}
	}
	if now := t.now(); len(lost) > 0 && !now.Before(t.sweeper.searchAfter) {
		t.sweeper.searchAfter = now.Add(searchEvery)
		errs = append(errs, t.search(ctx, lost))
	}
	return fail("sweep", "/", errors.Join(append(errs, ctx.Err())...))
}

// removeLeft removes the temporary files of this start that could not be removed before.
func (t *Tree) removeLeft() error {
	r := &t.records
	r.mu.Lock()
	left := maps.Clone(r.left)
	r.mu.Unlock()
	var errs []error
	for temp, dir := range left {
		d, err := t.openDirectory(dir)
		if err == nil {
			err = t.removeTemporary(d, dir, temp)
			d.close()
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.mu.Lock()
		delete(r.left, temp)
		r.mu.Unlock()
	}
	return errors.Join(errs...)
}

func (t *Tree) removeTemporary(d directory, dir, temp string) error {
	err := d.removeFile(temp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		t.log.Info("removed a left-over upload", "directory", dir, "name", temp)
	}
	return err
}

// sweepStart removes the temporary files of one earlier start from the directories that it has recorded, and then the
// record. With found false one of the directories is not where it was.
func (t *Tree) sweepStart(ctx context.Context, id string) (found bool, err error) {
	text, err := t.state.ReadFile(id)
	if err != nil {
		return true, bare(err)
	}
	var errs []error
	found = true
	for line := range strings.Lines(string(text)) {
		at, ok := parseRecord(line)
		if !ok {
			continue
		}
		there, err := t.sweepDirectory(ctx, at, id)
		errs = append(errs, err)
		found = found && there
	}
	if err := errors.Join(errs...); err != nil || !found {
		return found, err
	}
	return true, t.dropRecord(id)
}

func (t *Tree) dropRecord(id string) error {
	if err := t.check("unrecord"); err != nil {
		return err
	}
	return bare(t.state.Remove(id))
}

// sweepDirectory removes the temporary files of one start from one directory, if that is where it was.
func (t *Tree) sweepDirectory(ctx context.Context, at recorded, id string) (found bool, err error) {
	d, err := t.openDirectory(at.dir)
	if missing(err) || errors.Is(err, ErrEscapes) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	defer d.close()
	i, err := d.lstat(".")
	if err != nil {
		return true, err
	}
	if i.details.device != at.device || i.details.inode != at.inode {
		return false, nil
	}
	return true, eachName(ctx, d, func(name string) error {
		if of, ok := startOf(name); ok && of == id {
			return t.removeTemporary(d, at.dir, name)
		}
		return nil
	})
}

// eachName calls f with each name in a directory, and goes on after an error.
func eachName(ctx context.Context, d directory, f func(name string) error) error {
	var errs []error
	for ctx.Err() == nil {
		names, err := d.names(1024)
		if err == io.EOF {
			break
		}
		if err != nil {
			errs = append(errs, err)
			break
		}
		for _, name := range names {
			errs = append(errs, f(name))
		}
	}
	return errors.Join(errs...)
}

// search looks for the temporary files of some starts in the whole tree. If it could look everywhere, nothing of theirs is
// left.
func (t *Tree) search(ctx context.Context, lost map[string]struct{}) error {
	errs := []error{t.searchBelow(ctx, "/", lost), ctx.Err()}
	if errors.Join(errs...) == nil {
		for id := range lost {
			errs = append(errs, t.dropRecord(id))
		}
	}
	return errors.Join(errs...)
}

func (t *Tree) searchBelow(ctx context.Context, dir string, lost map[string]struct{}) error {
	d, err := t.openDirectory(dir)
	if missing(err) { // it has gone meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	var below []string
	err = eachName(ctx, d, func(name string) error {
		id, _ := startOf(name)
		if _, ok := lost[id]; ok {
			return t.removeTemporary(d, dir, name)
		}
		i, err := d.lstat(name)
		if err == nil && i.IsDir() {
			below = append(below, name)
		}
		if missing(err) {
			return nil
		}
		return err
	})
	d.close()
	errs := []error{err}
	for _, name := range below {
		if ctx.Err() != nil {
			break
		}
		errs = append(errs, t.searchBelow(ctx, join(dir, name), lost))
	}
	return errors.Join(errs...)
}
