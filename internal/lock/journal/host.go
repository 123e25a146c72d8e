package journal

import (
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// meet looks at what stands at a name and reports whether a program on the host changed something; the record is
// as the host left it then. The caller has the name locked.
func (s *Store) meet(e *entry) (changed bool, err error) {
	if s.tree.still(e.record.Name, directory(e.record)) {
		return false, nil
	}
	seen, err := s.tree.look(e.record.Name)
	if err != nil {
		return false, err
	}
	return s.observe(e, seen), nil
}

// observe compares a record with what was seen at its name, and takes over what the host changed.
func (s *Store) observe(e *entry, seen sight) bool {
	if len(e.record.Holds) == 0 {
		rule, ok := s.rules.Load().rule(e.record.Name)
		if !seen.directory || !ok || s.tree.occupied(e.record.Name) {
			return false // what has something in it is nobody's lock
		}
		s.hostMade(e, seen, rule)
		return true
	}
	known := directory(e.record)
	switch {
	case known == (lock.DirectoryID{}):
		// It has no directory yet, since it could not be made; that is not the host's doing.
		return false
	case !seen.directory:
		s.hostRemoved(e)
		return true
	case !seen.is(known):
		s.hostReplaced(e, seen)
		return true
	}
	return false
}

// hostMade makes the record the host's, since the directory's modification time.
func (s *Store) hostMade(e *entry, seen sight, rule lock.Rule) {
	now := s.o.Clock.Now()
	owner := lock.Owner{Account: lock.HostAccount}
	acquired := instantOf(seen.modified, now)
	entry := line{
		Event: lock.CauseHostMade, Name: e.record.Name, At: now, By: owner,
		Holds: []lock.Hold{{Owner: owner, Acquired: acquired, Renewed: acquired, Rule: rule, Directory: seen.id}},
	}
	s.journal(&entry) // what happened on the host is so, written or not
	s.watched.add(e.record.Name.Parent())
	s.set(e, entry.Token, entry.Holds)
	s.emit(lock.Event{Record: lock.Record{Name: entry.Name, Revision: entry.Token, Holds: entry.Holds}, Cause: entry.Event})
}

// hostRemoved ends the record: its directory is gone.
func (s *Store) hostRemoved(e *entry) {
	now := s.o.Clock.Now()
	entry := line{
		Event: lock.CauseHostGone, Name: e.record.Name, At: now, By: lock.Owner{Account: lock.HostAccount},
		Held: held(e.record.Holds, nil, now), Directory: directory(e.record),
	}
	s.journal(&entry)
	s.watched.drop(e.record.Name.Parent())
	s.set(e, 0, nil)
	s.graves.dig(grave{name: entry.Name, id: entry.Directory, at: entry.At})
	s.emit(lock.Event{Record: lock.Record{Name: entry.Name, Revision: entry.Token}, Cause: entry.Event})
}

// hostReplaced ends the record and gives the name to the host: its directory is another one.
func (s *Store) hostReplaced(e *entry, seen sight) {
	rule, ok := s.rules.Load().rule(e.record.Name)
	if !ok {
		rule = e.record.Holds[0].Rule
	}
	s.hostRemoved(e)
	if !s.tree.occupied(e.record.Name) {
		s.hostMade(e, seen, rule)
	}
}

// instantOf puts a time from the file system on both clocks. One that lies ahead of now, or before
// 1970, was set by hand: it counts as now, or as 1970.
func instantOf(at time.Time, now lock.Instant) lock.Instant {
	switch {
	case at.After(now.Wall):
		return now
	case at.Unix() < 0:
		at = time.Unix(0, 0)
	}
	return lock.Instant{Wall: at.UTC(), Boot: now.Boot - now.Wall.Sub(at), BootID: now.BootID}
}
