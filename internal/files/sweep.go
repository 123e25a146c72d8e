package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// searchEvery is the time between two searches of the tree, if one is not enough.
const searchEvery = time.Hour

// Sweep removes the temporary files of earlier starts, and those of this one that could not be removed when their upload
// ended. It touches nothing else. It may run while the tree is in use, but not twice at a time.
//
// If an earlier start did not end in order it searches the whole tree. What it cannot read it passes over, says so in the error,
// and searches again an hour later. A directory that it may not read is no reason for that: no upload was possible there.
// A mount that hangs holds it up until that answers.
func (t *Tree) Sweep(ctx context.Context) error {
	err := t.removeLeft()
	if now := t.now(); !now.Before(t.searchAfter) {
		marks, complete, serr := t.sweepEarlier(ctx)
		if err = errors.Join(err, serr); complete {
			err = errors.Join(err, t.forget(marks...))
		} else {
			t.searchAfter = now.Add(searchEvery)
		}
	}
	return fail("sweep", "/", errors.Join(err, ctx.Err()))
}

// SweepEarlier is the part of Sweep for earlier starts that may go on and not know yet that this one has followed: when it returns
// nil, none of the uploads can be published any more that they had begun, since their temporary files are gone. An error says that one
// might be. One that goes on may begin others: Sweep searches for those an hour later.
func (t *Tree) SweepEarlier(ctx context.Context) error {
	_, complete, err := t.sweepEarlier(ctx)
	t.searchAfter = t.now().Add(searchEvery)
	if complete {
		if err != nil {
			t.log.Warn("directories that this server may not read were not swept", "err", err)
		}
		return nil
	}
	return fail("sweep", "/", errors.Join(err, ctx.Err()))
}

// sweepEarlier searches the tree for what earlier starts left, if there were any. It is complete if nothing of theirs is left.
func (t *Tree) sweepEarlier(ctx context.Context) (marks []string, complete bool, err error) {
	marks, err = t.earlierStarts()
	if err != nil || len(marks) == 0 {
		return nil, err == nil, err
	}
	s := search{Context: ctx, tree: t, starts: make(map[string]struct{})}
	for _, mark := range marks {
		s.starts[idOf(mark)] = struct{}{}
	}
	s.below("/")
	return marks, !s.incomplete && ctx.Err() == nil, errors.Join(s.errs...)
}

// removeLeft removes the temporary files of this start that could not be removed before.
func (t *Tree) removeLeft() error {
	var errs []error
	for temp, dir := range t.uploads.takeLeft() {
		d, err := t.openDirectory(dir)
		if err == nil {
			err = t.removeTemporary(d, dir, temp)
			d.close()
		}
		if err != nil {
			t.uploads.leave(dir, temp)
		}
		errs = append(errs, err)
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

// search looks for the temporary files of some starts.
type search struct {
	context.Context
	tree       *Tree
	starts     map[string]struct{}
	errs       []error
	incomplete bool
}

// failed notes that a directory could not be read, unless it has gone meanwhile.
func (s *search) failed(err error) {
	if missing(err) {
		return
	}
	s.errs = append(s.errs, err)
	s.incomplete = s.incomplete || !errors.Is(err, fs.ErrPermission)
}

// below searches a directory and all that are in it.
func (s *search) below(dir string) {
	d, err := s.tree.openDirectory(dir)
	if err != nil {
		s.failed(err)
		return
	}
	var directories []string
	for s.Err() == nil {
		var entries []fs.DirEntry
		err := d.read(func(f *os.File) (err error) {
			entries, err = f.ReadDir(1024)
			return err
		})
		if err != nil {
			if err != io.EOF {
				s.failed(bare(err))
			}
			break
		}
		for _, e := range entries {
			id, _ := startOf(e.Name())
			if _, ok := s.starts[id]; ok {
				err := s.tree.removeTemporary(d, dir, e.Name())
				s.errs = append(s.errs, err)
				s.incomplete = s.incomplete || err != nil
			} else if e.IsDir() {
				directories = append(directories, e.Name())
			}
		}
	}
	d.close()
	for _, name := range directories {
		if s.Err() == nil {
			s.below(join(dir, name))
		}
	}
}
