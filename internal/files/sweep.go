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

// Sweep removes the temporary files of earlier starts, and nothing else. If an earlier start did not end in order it searches the
// whole tree. The error names the directories that it cannot read; it searches again an hour later, except for
// directories that the process may not read, where no upload was possible.
//
// The tree may be in use meanwhile, but two Sweeps may not run at once. A mount that hangs delays Sweep until it answers.
func (t *Tree) Sweep(ctx context.Context) error {
	if t.now().Before(t.searchAfter) {
		return ctx.Err()
	}
	marks, err := t.sweep(ctx)
	return fail("sweep", "/", errors.Join(err, t.forget(marks...)))
}

// SweepEarlier is Sweep for servers with an epoch, before this one serves: when it returns nil, the uploads that earlier starts
// had begun cannot be published any more, since their temporary files are gone. An earlier start that has not stopped
// may begin other uploads: a Sweep an hour later finds those.
func (t *Tree) SweepEarlier(ctx context.Context) error {
	marks, err := t.sweep(ctx)
	t.searchAfter = t.now().Add(searchEvery)
	if len(marks) > 0 && err != nil {
		t.log.Warn("directories that this server may not read were not swept", "err", err)
		return nil
	}
	return fail("sweep", "/", err)
}

// sweep searches the tree for what earlier starts left, if there are any. It returns their marks if nothing of theirs is left;
// otherwise it sets searchAfter and returns an error.
func (t *Tree) sweep(ctx context.Context) (marks []string, err error) {
	marks, err = t.earlierStarts()
	if err != nil || len(marks) == 0 {
		return nil, err
	}
	s := search{Context: ctx, tree: t, starts: make(map[string]struct{})}
	for _, mark := range marks {
		s.starts[idOf(mark)] = struct{}{}
	}
	s.below("/")
	if s.incomplete || ctx.Err() != nil {
		marks = nil
		t.searchAfter = t.now().Add(searchEvery)
	}
	return marks, errors.Join(append(s.errs, ctx.Err())...)
}

// search looks for the temporary files of some starts.
type search struct {
	context.Context
	tree       *Tree
	starts     map[string]struct{}
	errs       []error
	incomplete bool
}

// failed notes an error, unless the file or directory has gone meanwhile.
func (s *search) failed(err error) {
	if err == nil || missing(err) {
		return
	}
	s.errs = append(s.errs, err)
	s.incomplete = s.incomplete || !errors.Is(err, fs.ErrPermission)
}

func (s *search) remove(d directory, dir, temp string) {
	switch err := d.removeFile(temp); {
	case err == nil:
		s.tree.log.Info("removed a left-over upload", "directory", dir, "name", temp)
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
		err = d.read(func(f *os.File) (err error) {
			entries, err = f.ReadDir(1024)
			return err
		})
		for _, e := range entries {
			id, _ := startOf(e.Name())
			if _, ok := s.starts[id]; ok {
				s.remove(d, dir, e.Name())
			} else if e.IsDir() {
				directories = append(directories, e.Name())
			}
		}
	}
	if err != io.EOF {
		s.failed(bare(err))
	}
	d.close()
	for _, name := range directories {
		if s.Err() == nil {
			s.below(join(dir, name))
		}
	}
}
