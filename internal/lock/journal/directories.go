package journal

import (
	"cmp"
	"slices"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// What a store of real directories (package hostdir) needs beside lock.Store.

// SetDirectory notes which directory the holds of a name have; the zero id: none. It returns a *lock.ConflictError if the record
// is not at that revision any more. After another error the note is in memory only. It is not synced, see Sync.
func (s *Store) SetDirectory(name lock.Name, revision lock.Token, id lock.DirectoryID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readyLocked(); err != nil {
		return err
	}
	record := s.records[name]
	if record.Revision != revision || len(record.Holds) == 0 {
		record.Name = name
		return &lock.ConflictError{Record: clone(record)}
	}
	record.Holds = slices.Clone(record.Holds)
	setDirectory(record.Holds, id)
	s.records[name] = record
	return s.writeLocked(&line{Entry: lock.Entry{Cause: eventDirectory, Name: name, Token: revision, At: s.o.Clock.Now()}, Directory: id}, 0, true)
}

// Sync returns when everything that was written before lasts, also if the store is not durable.
func (s *Store) Sync() error {
	s.mu.Lock()
	l, end := s.log, s.log.end.Load()
	s.mu.Unlock()
	return l.sync(end)
}

// Tombstones returns the directories of locks that were released: after a loss of power they may be there again. It has all
// that were released since the last file was begun, and the last 8,192 before it. Of a name that is held there is none.
func (s *Store) Tombstones() []lock.Tombstone {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tombstones.sorted()
}

// maxTombstones is how many tombstones a file begins with.
const maxTombstones = 8192

// tombstones are those of names that nobody holds.
type tombstones map[lock.Name]lock.Tombstone

// add adds a tombstone, if there is a directory.
func (t tombstones) add(one lock.Tombstone) {
	if one.Directory.Inode != 0 {
		t[one.Name] = one
	}
}

// sorted returns them, oldest first.
func (t tombstones) sorted() []lock.Tombstone {
	all := make([]lock.Tombstone, 0, len(t))
	for _, one := range t {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b lock.Tombstone) int { return cmp.Compare(a.Token, b.Token) })
	return all
}

// prune forgets all but the newest maxTombstones.
func (t tombstones) prune() {
	all := t.sorted()
	for _, one := range all[:max(0, len(all)-maxTombstones)] {
		delete(t, one.Name)
	}
}

func directory(record lock.Record) lock.DirectoryID {
	if len(record.Holds) == 0 {
		return lock.DirectoryID{}
	}
	return record.Holds[0].Directory
}

func setDirectory(holds []lock.Hold, id lock.DirectoryID) {
	for i := range holds {
		holds[i].Directory = id
	}
}
