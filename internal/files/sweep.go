package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"
)

// searchEvery is the time between two searches of the tree, if one is not enough.
const searchEvery = time.Hour

// failedRemovals has the temporary files of this start that could not be removed.
type failedRemovals struct {
	mu    sync.Mutex
	files []temporary
}

// temporary is a temporary file in a directory of the tree.
type temporary struct{ dir, base string }

func (r *failedRemovals) add(file temporary) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files = append(r.files, file)
}

// take returns all files, and leaves none.
func (r *failedRemovals) take() []temporary {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.files
	r.files = nil
	return all
}

// retryRemovals removes the temporary files of this start that could not be removed before. If the directory of a file was moved, the file stays
// for the next start.
func (t *Tree) retryRemovals() {
	for _, file := range t.failedRemovals.take() {
		d, err := t.openPlain(file.dir)
		if err == nil {
			if err = d.removeFile(file.base); err == nil || errors.Is(err, fs.ErrNotExist) {
				t.unfinished.Add(-1)
			}
			d.close()
		}
		if err != nil && !missing(err) {
			t.failedRemovals.add(file)
		}
	}
}

// Sweep removes the temporary files of earlier starts, and those of this start that could not be removed before. It removes nothing else. If an
// earlier start was killed it searches the whole tree. The error has the directories that it cannot read, and Sweep searches again an hour
// later. It does not search again for directories that the process has no permission to read: no upload into them was possible.
//
// The tree may be in use meanwhile, but two Sweeps must not run at once. A mount that hangs delays Sweep until it answers.
func (t *Tree) Sweep(ctx context.Context) error {
	t.retryRemovals()
	if t.now().Before(t.searchAfter) {
		return ctx.Err()
	}
	complete, marks, err := t.searchTree(ctx)
	if complete {
		err = errors.Join(err, t.removeMarks(marks...))
	}
	return fail("sweep", "/", err)
}

// SweepEarlier is Sweep for a server with an epoch, before it serves. When it returns nil, earlier starts cannot publish the uploads
// that they have begun, since the temporary files are gone. An earlier start that still runs
// may begin other uploads: a Sweep an hour later removes those.
func (t *Tree) SweepEarlier(ctx context.Context) error {
	complete, _, err := t.searchTree(ctx)
	t.searchAfter = t.now().Add(searchEvery)
	if complete && err != nil {
		t.log.Warn("directories that this server may not read were not swept", "err", err)
		return nil
	}
	return fail("sweep", "/", err)
}

// searchTree searches the tree for the temporary files of earlier starts, if there are any. It returns the marks of these starts, and
// whether the search was complete. If not, it sets searchAfter and returns an error.
func (t *Tree) searchTree(ctx context.Context) (complete bool, marks []string, err error) {
	starts, err := t.earlierStarts()
	if err != nil || len(starts) == 0 {
		return err == nil, nil, err
	}
	s := search{Context: ctx, tree: t, starts: starts}
	s.below("/")
	complete = !s.incomplete && ctx.Err() == nil
	if !complete {
		t.searchAfter = t.now().Add(searchEvery)
	}
	return complete, slices.Collect(maps.Values(starts)), errors.Join(append(s.errs, ctx.Err())...)
}

// search looks for the temporary files of some starts.
type search struct {
	context.Context
	tree       *Tree
	starts     map[string]string // by the id
	errs       []error
	incomplete bool
}

// failed records an error, unless the file or directory was removed meanwhile.
func (s *search) failed(err error) {
	if err == nil || missing(err) {
		return
	}
	s.errs = append(s.errs, err)
	s.incomplete = s.incomplete || !errors.Is(err, fs.ErrPermission)
}

func (s *search) remove(d directory, temp string) {
	switch err := d.removeFile(temp); {
	case err == nil:
		s.tree.log.Info("removed an unfinished upload", "directory", d.name, "name", temp)
	case !missing(err):
		s.errs = append(s.errs, err)
		s.incomplete = true
	}
}

// below searches a directory and all directories in it.
func (s *search) below(dir string) {
	d, err := s.tree.openDirectory(dir)
	if err != nil {
		s.failed(err)
		return
	}
	var directories []string
	for err == nil && s.Err() == nil {
		var entries []fs.DirEntry
		entries, err = d.asFile().ReadDir(1024)
		if s.tree.searched != nil {
			s.tree.searched()
		}
		for _, e := range entries {
			if _, ok := s.starts[startOf(e.Name())]; ok {
				s.remove(d, e.Name())
			} else if e.IsDir() {
				directories = append(directories, e.Name())
			}
		}
	}
	if err != io.EOF {
		s.failed(stripPaths(err))
	}
	d.close()
	for _, name := range directories {
		if s.Err() == nil {
			s.below(join(dir, name))
		}
	}
}
