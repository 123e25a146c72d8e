package hostdir

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// searchEntries is how many directory entries one call reads at most, but for the rest of a directory.
const searchEntries = 10_000

// ErrSearch is returned when a search ends early because there is too much to read.
var ErrSearch = errors.New("too many files to search for directories that programs on the server made")

// finding is a directory that has a lock's name and no hold.
type finding struct {
	sight
	name lock.Name
	rule lock.Rule
	ours bool
}

// walk reads the pending directories and those below them, about so many entries, calls found for what it finds until that returns false, and
// returns the directories that it did not read. It passes over those that it cannot read.
func (d *Disk) walk(ctx context.Context, pending []lock.Name, entries int, found func(finding) bool) ([]lock.Name, error) {
	rules := *d.rules.Load()
	for len(pending) > 0 && entries > 0 && ctx.Err() == nil {
		last := len(pending) - 1
		dir := pending[last]
		pending = pending[:last]
		more, n, err := d.read(ctx, dir, rules, found)
		if err == errEnough {
			return nil, nil
		}
		if err != nil {
			d.o.Log.Debug("a directory cannot be searched for locks made on the host", "directory", dir, "err", err)
		}
		pending, entries = append(pending, more...), entries-n
	}
	return pending, ctx.Err()
}

// errEnough ends a walk.
var errEnough = errors.New("enough")

// read reads one directory, and returns the directories in it and how many entries it has.
func (d *Disk) read(ctx context.Context, dir lock.Name, rules Rules, found func(finding) bool) (below []lock.Name, entries int, err error) {
	p, err := d.open(dir)
	if err != nil {
		return nil, 0, err
	}
	defer p.Close()
	for ctx.Err() == nil {
		infos, err := p.Readdir(1024)
		for _, info := range infos {
			entries++
			if !info.IsDir() {
				continue
			}
			n := dir + "/" + lock.Name(info.Name())
			if dir == "/" {
				n = n[1:]
			}
			if !isLeaf(info) {
				below = append(below, n)
			}
			if rule, isLock := rules.For(n); isLock && !d.o.Held(n) {
				s, _ := see(info, nil)
				if !found(finding{s, n, rule, d.marks.ours(p, s)}) {
					return nil, entries, errEnough
				}
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return below, entries, err
		}
	}
	return below, entries, nil
}

// roots returns the directories at or below dir that all locks below dir lie in.
func (d *Disk) roots(dir lock.Name) []lock.Name {
	roots := (*d.rules.Load()).Roots()
	if len(roots) == 0 || slices.ContainsFunc(roots, dir.Within) {
		return []lock.Name{dir}
	}
	return slices.DeleteFunc(slices.Clone(roots), func(root lock.Name) bool { return !root.Within(dir) })
}

// HostDirectories searches for directories of the host, at dir or below it: empty ones that have a lock's name and no hold. It returns
// at most max of them. It reads 10,000 entries: with more below dir it returns what it found so far, and ErrSearch.
func (d *Disk) HostDirectories(ctx context.Context, dir lock.Name, max int) (all []*lock.HostError, err error) {
	if _, isLock := (*d.rules.Load()).For(dir); isLock && !d.o.Held(dir) {
		var host *lock.HostError
		if err := d.check(dir); errors.As(err, &host) {
			return []*lock.HostError{host}, nil // it is empty
		}
	}
	left, err := d.walk(ctx, d.roots(dir), searchEntries, func(f finding) bool {
		if !f.ours && !d.occupied(f.name) {
			all = append(all, &lock.HostError{Name: f.name, Since: f.modified})
		}
		return len(all) < max
	})
	if err == nil && len(left) > 0 {
		err = ErrSearch
	}
	return all, err
}
