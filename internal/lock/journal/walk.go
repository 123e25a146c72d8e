package journal

import (
	"context"
	"slices"
	"sort"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// How many directory entries are looked at in one go. What is left is for the next round.
const (
	walkAtStart  = 200_000
	walkPerRound = 10_000
)

// walker remembers how far the walk for directories made on the host has come, and how far the check
// of those that are held.
type walker struct {
	pending []lock.Name // directories to be read
	checked lock.Name   // the last held name that was verified
}

// walk reads directories, for so many entries, and takes notice of each that is a lock but nobody's. It
// goes on where it stopped the last time, and over again from the prefixes. It looks at none of the names that are
// done, and not into those of them in which nothing is.
func (s *Store) walk(ctx context.Context, budget int, done settled) error {
	w, rules := &s.walker, s.rules.Load()
	if len(w.pending) == 0 {
		w.pending = slices.Clone(rules.prefixes)
	}
	for len(w.pending) > 0 && budget > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		dir := w.pending[len(w.pending)-1]
		w.pending = w.pending[:len(w.pending)-1]
		names, entries := s.subdirectories(dir)
		budget -= 1 + entries
		for _, name := range names {
			leaf, isDone := done[name]
			if !leaf {
				w.pending = append(w.pending, name)
			}
			if isDone {
				continue
			}
			if _, isLock := rules.rule(name); isLock {
				s.check(name)
			}
		}
	}
	return nil
}

// subdirectories returns the directories in a directory, and how many entries of all kinds it has. What
// cannot be read has none.
func (s *Store) subdirectories(dir lock.Name) (names []lock.Name, entries int) {
	bases, entries, err := s.tree.subdirectories(dir)
	if err != nil {
		s.o.Log.Debug("a directory cannot be searched for locks made on the host", "directory", dir, "err", bare(err))
		return nil, 0
	}
	names = make([]lock.Name, len(bases))
	for i, base := range bases {
		names[i] = child(dir, base)
	}
	return names, entries
}

func child(dir lock.Name, base string) lock.Name {
	if dir == "/" {
		return lock.Name("/" + base)
	}
	return dir + "/" + lock.Name(base)
}

// verify checks so many held names, behind those that it checked the last time.
func (s *Store) verify(ctx context.Context, budget int) {
	records := s.standing()
	after := s.walker.checked
	first := sort.Search(len(records), func(i int) bool { return records[i].Name > after })
	if first == len(records) {
		first = 0
	}
	for _, record := range records[first:min(len(records), first+budget)] {
		if ctx.Err() != nil {
			return
		}
		s.check(record.Name)
		s.walker.checked = record.Name
	}
}

// check compares a name's record with what stands there now.
func (s *Store) check(name lock.Name) {
	if s.enter() != nil {
		return
	}
	defer s.gate.RUnlock()
	e := s.lockName(name)
	defer s.unlockName(e)
	if _, err := s.meet(e); err != nil {
		s.o.Log.Debug("a lock's directory cannot be looked at", "lock", name, "err", err)
	}
}
