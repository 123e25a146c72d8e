package hostdir

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// sweepEntries is the number of directory entries that one Sweep reads at least, if there are as many.
const sweepEntries = 10_000

// sweepPass is the state between two calls of Sweep. A pass reads the whole tree, in several calls.
type sweepPass struct {
	mu           sync.Mutex  // held during a Sweep, also while it reads the disk, so that one runs at a time
	pending      []lock.Name // directories that the pass has not read
	before, seen firstSeen   // of the pass before and of this one
}

// firstSeen has the first sight of the directories of the host that have a lock's name.
type firstSeen map[lock.Name]firstSeenEntry

type firstSeenEntry struct {
	id    lock.DirectoryID
	since time.Duration // on the boot clock
}

// Sweep reads a part of the tree, 10,000 entries, and continues there at its next call; package reaper calls it each minute. It
// removes a directory that a crash left, or moves it aside with the files in it. It removes a directory of the host that is empty and
// was first seen its rule's MaxAge ago.
func (d *Disk) Sweep(ctx context.Context) error {
	s := &d.pass
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		s.pending = d.roots("/")
		s.before, s.seen = s.seen, make(firstSeen)
	}
	var failed []error
	for f := range d.walk(ctx, &s.pending, sweepEntries) {
		if d.removable(f) {
			failed = append(failed, d.removeOrphan(f))
		}
	}
	return errors.Join(append(failed, ctx.Err())...)
}

// removable reports whether it is time to remove a directory.
func (d *Disk) removable(f orphan) bool {
	switch {
	case f.marked:
		return true
	case f.rule.MaxAge == 0 || d.occupied(f.name):
		return false
	}
	s, now := &d.pass, d.o.Clock.Now().Boot
	was, ok := s.before[f.name]
	if !ok || was.id != f.id {
		was = firstSeenEntry{f.id, now}
	}
	s.seen[f.name] = was
	return now-was.since >= f.rule.MaxAge
}

// removeOrphan removes a directory if it is still the same and has no hold.
func (d *Disk) removeOrphan(f orphan) error {
	dir, err := d.dirs.enter(f.name.Parent())
	if err != nil {
		return err
	}
	defer d.dirs.leave(dir)
	s, err := dir.parent.entryOf(f.name)
	switch {
	case err != nil || !s.matches(f.id) || d.o.Held(f.name):
		return err
	case f.marked:
		return d.removeLeftover(&dir.parent, f.name)
	}
	return d.removeHostDirectory(f)
}

// removeHostDirectory removes a directory of the host. A program on the host may replace or use it meanwhile. So it moves the directory aside, compares it
// there, and moves it back if it is another one or not empty.
func (d *Disk) removeHostDirectory(f orphan) error {
	to, err := d.aside(f.name, lock.HostAccount, 0)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	moved, err := newEntry(d.o.FS.Stat(to))
	if err == nil && moved.matches(f.id) {
		if err = d.o.FS.RemoveDir(to); err == nil {
			d.o.Log.Info("an old directory that a program on the host had made was removed", "lock", f.name, "max_age", f.rule.MaxAge)
			return nil
		}
	}
	if back := d.o.FS.Rename(to, string(f.name)); back != nil {
		d.o.Log.Warn("a directory that a program on the host had made was moved aside", "lock", f.name, "leftovers", to, "err", errors.Join(err, back))
	}
	return nil
}
