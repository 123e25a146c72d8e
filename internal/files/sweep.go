package files

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Sweep removes the temporaries of uploads that nobody works on any more, and nothing else: the first one after
// Open all that a crash left, a later one those that are older than MaxAge (removing them failed before).
//
// A temporary is found where its record says. If that directory was moved or removed, the whole tree is
// searched for it once. Sweep may run while the tree is in use.
func (t *Tree) Sweep(ctx context.Context) error {
	ids, err := t.recordIDs()
	if err != nil {
		return fail("sweep", "/", err)
	}
	s := &sweep{tree: t, first: t.reg.firstSweep(), maxAge: t.settings().maxAge, lost: make(map[string]*record)}
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(s.errs, err)...)
		}
		s.one(id)
	}
	if len(s.lost) > 0 {
		s.search(ctx)
	}
	return errors.Join(s.errs...)
}

// sweep is one run of Sweep.
type sweep struct {
	tree   *Tree
	first  bool
	maxAge time.Duration
	lost   map[string]*record // by temporary: those whose directory is not where it was
	errs   []error
}

func (s *sweep) failed(err error) {
	if err != nil {
		s.errs = append(s.errs, fail("sweep", "/", err))
	}
}

// one deals with one record.
func (s *sweep) one(id string) {
	t := s.tree
	f, r, ok, err := t.claimRecord(id)
	if err != nil || !ok {
		s.failed(err)
		return
	}
	i, err := t.sys.fstat(int(f.Fd()), id)
	if err != nil {
		f.Close()
		s.failed(err)
		return
	}
	young := t.now().Sub(i.ModTime()) < s.maxAge
	if young && !s.first {
		f.Close()
		return
	}
	if r == nil { // never finished: its temporary was never made
		s.failed(t.dropRecord(&record{id: id, file: f}))
		return
	}
	found, err := t.removeLeftOver(r)
	s.failed(err)
	if err == nil && !found {
		s.lost[r.temporary()] = r
	}
}

// removeLeftOver removes a temporary and its claimed record. With found false the directory is
// not where it was; the record is still claimed then. In every other case it is given back.
func (t *Tree) removeLeftOver(r *record) (found bool, err error) {
	t.life.RLock()
	defer t.life.RUnlock()
	if t.rootfd < 0 {
		r.file.Close()
		return true, errClosed
	}
	fd, err := t.sys.open(r.dir, dirFlags, 0)
	if missing(err) || errors.Is(err, ErrEscapes) {
		return false, nil
	}
	if err != nil {
		r.file.Close()
		return true, err
	}
	defer unix.Close(fd)
	i, err := t.sys.fstat(fd, "")
	if err != nil {
		r.file.Close()
		return true, err
	}
	if uint64(i.st.Dev) != r.dev || i.st.Ino != r.inode {
		return false, nil
	}
	return true, t.removeIn(fd, r)
}

// removeIn removes a temporary from an open directory, and its record.
func (t *Tree) removeIn(dir int, r *record) error {
	err := t.sys.unlinkat(dir, r.temporary())
	if err != nil && err != unix.ENOENT {
		r.file.Close()
		return err
	}
	t.log.Info("removed a left-over upload", "directory", r.dir, "name", r.base)
	return t.dropRecord(r)
}

// search looks for the lost ones in the whole tree. If it could look everywhere, those that it did not find
// do not exist.
func (s *sweep) search(ctx context.Context) {
	t := s.tree
	t.life.RLock()
	defer t.life.RUnlock()
	err := error(errClosed)
	if t.rootfd >= 0 {
		err = s.searchDir(ctx, t.rootfd)
	}
	s.failed(err)
	for _, r := range s.lost {
		if err != nil {
			r.file.Close()
			continue
		}
		s.failed(t.dropRecord(r))
	}
}

func (s *sweep) searchDir(ctx context.Context, parent int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := s.tree
	dir, err := t.sys.openat(parent, ".", syncFlags)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	names, err := readNames(dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if r, ok := s.lost[n]; ok {
			delete(s.lost, n)
			s.failed(t.removeIn(dir, r))
		}
	}
	for _, n := range names {
		if len(s.lost) == 0 {
			return nil
		}
		child, err := t.sys.openat(dir, n, dirFlags)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue
		}
		if err != nil {
			return err
		}
		err = s.searchDir(ctx, child)
		unix.Close(child)
		if err != nil {
			return err
		}
	}
	return nil
}
