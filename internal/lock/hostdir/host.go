package hostdir

import (
	"context"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// meet looks at what stands at a name. If a program on the host changed something, that is taken over, and the error is a
// *lock.ConflictError with the record as the host left it. The caller has the name locked.
func (s *Store) meet(ctx context.Context, record lock.Record) error {
	seen, err := s.tree.look(record.Name)
	if err != nil {
		return err
	}
	if len(record.Holds) == 0 {
		rule, ok := (*s.rules.Load()).For(record.Name)
		if !seen.directory || !ok || s.tree.occupied(record.Name) {
			return nil // what has something in it is nobody's lock
		}
		made, err := s.hostMade(ctx, record.Name, seen, rule)
		if err != nil {
			return err
		}
		return conflict(made)
	}
	known := directory(record)
	switch {
	case known == (lock.DirectoryID{}): // it has none yet, since it could not be made; that is not the host's doing
		return nil
	case !seen.directory:
		return s.hostRemoved(ctx, record)
	case !seen.is(known):
		return s.hostReplaced(ctx, record, seen)
	}
	return nil
}

// hostMade makes the record the host's, since the directory's modification time, and returns it.
func (s *Store) hostMade(ctx context.Context, name lock.Name, seen sight, rule lock.Rule) (lock.Record, error) {
	owner := lock.Owner{Account: lock.HostAccount}
	acquired := instantOf(seen.modified, s.o.Clock.Now())
	hold := lock.Hold{Owner: owner, Acquired: acquired, Renewed: acquired, Rule: rule, Directory: seen.id}
	token, err := s.inner.Commit(context.WithoutCancel(ctx), lock.Change{
		Name: name, Holds: []lock.Hold{hold}, Cause: lock.CauseHostMade, By: owner,
	})
	if err != nil {
		return lock.Record{}, err
	}
	record, err := s.inner.Get(context.WithoutCancel(ctx), name)
	if err != nil {
		return lock.Record{}, err
	}
	s.emit(lock.Event{Record: record, Cause: lock.CauseHostMade}, token)
	return record, nil
}

// hostRemoved ends the record: its directory is gone. The error is a *lock.ConflictError if that was recorded.
func (s *Store) hostRemoved(ctx context.Context, record lock.Record) error {
	token, err := s.inner.Commit(context.WithoutCancel(ctx), lock.Change{
		Name: record.Name, If: record.Revision, Cause: lock.CauseHostGone, By: lock.Owner{Account: lock.HostAccount},
	})
	if err != nil {
		return err
	}
	s.emit(lock.Event{Record: lock.Record{Name: record.Name}, Cause: lock.CauseHostGone}, token)
	return conflict(lock.Record{Name: record.Name})
}

// hostReplaced ends the record and gives the name to the host: its directory is another one. Its error is like that of hostRemoved.
func (s *Store) hostReplaced(ctx context.Context, record lock.Record, seen sight) error {
	rule, ok := (*s.rules.Load()).For(record.Name)
	if !ok {
		rule = record.Holds[0].Rule
	}
	err := s.hostRemoved(ctx, record)
	if !isConflict(err) || s.tree.occupied(record.Name) {
		return err
	}
	made, err := s.hostMade(ctx, record.Name, seen, rule)
	if err != nil {
		return err
	}
	return conflict(made)
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
