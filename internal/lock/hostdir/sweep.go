package hostdir

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// leftoverAge is how long a marked directory of this start of the server must be seen without a hold: that may be about to be recorded.
const leftoverAge = time.Minute

// sweep is what Sweep keeps between two calls.
type sweep struct {
	mu      sync.Mutex  // held by a Sweep, also while it reads the disk, so that one runs at a time
	pending []lock.Name // directories that are still to be read
	pass    int
	seen    map[lock.Name]sighting
}

// sighting is the first sight of a directory that has a lock's name and no hold.
type sighting struct {
	id    lock.DirectoryID
	since time.Duration // on the boot clock
	pass  int           // in which it was seen last
}

// Sweep reads a part of the tree, 10,000 entries, and goes on there at its next call; package reaper calls it each minute. It removes a directory
// that a crash left, or moves it aside with what is in it; and one of the host that is empty and was first seen as long ago as its
// rule's MaxAge says.
func (d *Disk) Sweep(ctx context.Context) error {
	s := &d.sweep
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		s.pending = d.roots("/")
		s.pass++
	}
	var failed []error
	left, err := d.walk(ctx, s.pending, searchEntries, func(f finding) bool {
		if d.isOver(f) {
			failed = append(failed, d.sweepAway(f))
		}
		return true
	})
	s.pending = left
	for n, was := range s.seen {
		if len(left) == 0 && was.pass != s.pass {
			delete(s.seen, n)
		}
	}
	return errors.Join(append(failed, err)...)
}

// isOver reports whether it is time to remove a directory.
func (d *Disk) isOver(f finding) bool {
	s, limit := &d.sweep, f.rule.MaxAge
	switch {
	case f.ours && f.modified.Before(d.opened.Add(-time.Second)): // of an earlier start
		return true
	case f.ours:
		limit = leftoverAge
	case limit == 0 || d.occupied(f.name):
		delete(s.seen, f.name)
		return false
	}
	now := d.o.Clock.Now().Boot
	was, ok := s.seen[f.name]
	if !ok || was.id != f.id {
		was = sighting{id: f.id, since: now}
	}
	was.pass = s.pass
	s.seen[f.name] = was
	return now-was.since >= limit
}

// sweepAway removes a directory if it is still the same and has no hold.
func (d *Disk) sweepAway(f finding) error {
	return d.changes.run(f.name.Parent(), func(p *parent) error {
		s, err := p.look(f.name)
		switch {
		case err != nil || !s.is(f.id) || d.o.Held(f.name):
			return err
		case f.ours:
			return d.clean(p, f.name)
		}
		return d.retire(f)
	})
}

var errReplaced = errors.New("another directory has the name by now")

// retire removes a directory of the host. A program on the host may replace or use it meanwhile, so it is moved aside first, and
// moved back if it is another one or not empty.
func (d *Disk) retire(f finding) error {
	to, err := d.aside(f.name)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	moved, err := see(d.o.FS.Stat(to))
	if err == nil && !moved.is(f.id) {
		err = errReplaced
	}
	if err == nil {
		err = d.o.FS.RemoveDir(to)
	}
	if err == nil {
		d.o.Log.Info("an old directory that a program on the host had made was removed", "lock", f.name, "max_age", f.rule.MaxAge)
		return nil
	}
	if back := d.o.FS.Rename(to, string(f.name)); back != nil {
		d.o.Log.Warn("a directory that a program on the host had made was moved aside", "lock", f.name, "leftovers", to, "err", errors.Join(err, back))
	}
	return nil
}
