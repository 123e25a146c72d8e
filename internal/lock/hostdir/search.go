package hostdir

import (
	"context"
	"errors"
	"io"
	"iter"
	"math"
	"slices"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// orphan is a directory that has a lock's name and no hold.
type orphan struct {
	entry
	name   lock.Name
	rule   lock.Rule
	marked bool
}

// walk reads the pending directories and those below them, and yields orphans. After limit entries it reads the directory to its
// end and stops. The directories that it did not read stay pending. It skips those that it cannot read.
func (d *Disk) walk(ctx context.Context, pending *[]lock.Name, limit int) iter.Seq[orphan] {
	return func(yield func(orphan) bool) {
		for entries := 0; len(*pending) > 0 && entries < limit; {
			last := len(*pending) - 1
			dir := (*pending)[last]
			*pending = (*pending)[:last]
			n, err := d.read(ctx, dir, pending, yield)
			if err == errEnough || ctx.Err() != nil {
				return
			}
			if err != nil {
				d.o.Log.Debug("a directory cannot be searched for locks made on the host", "directory", dir, "err", err)
			}
			entries += n
		}
	}
}

// errEnough ends a walk.
var errEnough = errors.New("enough")

// read reads one directory, adds the directories in it to pending, and returns how many entries it has.
func (d *Disk) read(ctx context.Context, dir lock.Name, pending *[]lock.Name, yield func(orphan) bool) (entries int, err error) {
	p, err := d.open(dir)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	rules := *d.rules.Load()
	for ctx.Err() == nil {
		infos, err := p.Readdir(1024)
		entries += len(infos)
		for _, info := range infos {
			s, _ := newEntry(info, nil)
			if !s.directory {
				continue
			}
			n := dir + "/" + lock.Name(info.Name())
			if dir == "/" {
				n = n[1:]
			}
			if !s.leaf { // nearly all locks are leaves
				*pending = append(*pending, n)
			}
			if rule, isLock := rules.For(n); isLock && !d.o.Held(n) && !yield(orphan{s, n, rule, p.isMarked(s)}) {
				return entries, errEnough
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return entries, err
		}
	}
	return entries, nil
}

// roots returns the directories at or below dir that contain all locks below dir.
func (d *Disk) roots(dir lock.Name) []lock.Name {
	roots := (*d.rules.Load()).Roots()
	if len(roots) == 0 || slices.ContainsFunc(roots, dir.Within) {
		return []lock.Name{dir}
	}
	return slices.DeleteFunc(slices.Clone(roots), func(root lock.Name) bool { return !root.Within(dir) })
}

// hostDirectory describes a directory of the host with the name; nil if there is none. It changes nothing.
func (d *Disk) hostDirectory(n lock.Name) *lock.HostError {
	p, err := d.open(n.Parent())
	if err != nil {
		return nil
	}
	defer p.Close()
	s, err := p.entryOf(n)
	if err != nil || !s.directory || p.isMarked(s) {
		return nil
	}
	return &lock.HostError{Name: n, Since: s.modified}
}

// HostDirectories searches for directories of the host, at dir or below it: those that have a lock's name and no hold. It returns
// at most limit of them. It reads everything below dir, at some 500,000 entries a second, until ctx ends: then the error is that of ctx.
func (d *Disk) HostDirectories(ctx context.Context, dir lock.Name, limit int) (all []*lock.HostError, err error) {
	if _, isLock := (*d.rules.Load()).For(dir); isLock && !d.o.Held(dir) {
		if host := d.hostDirectory(dir); host != nil {
			return []*lock.HostError{host}, nil // locks below it do not matter then
		}
	}
	pending := d.roots(dir)
	for f := range d.walk(ctx, &pending, math.MaxInt) {
		if !f.marked {
			all = append(all, &lock.HostError{Name: f.name, Since: f.modified})
		}
		if len(all) == limit {
			return all, nil
		}
	}
	return all, ctx.Err()
}
