package hostdir

import (
	"context"
	"errors"
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
	case seen.is(known):
		return s.noteParent(record.Name)
	}
	if same, err := s.sameParent(record.Name); err != nil || !same {
		return err
	}
	if !seen.directory {
		return s.hostRemoved(ctx, record)
	}
	return s.hostReplaced(ctx, record, seen)
}

// noteParent notes in which directory a lock's directory lies, if that is not known yet.
func (s *Store) noteParent(name lock.Name) error {
	if _, known := s.parents.Load(name); known {
		return nil
	}
	above, err := s.tree.look(name.Parent())
	if err == nil && above.directory {
		s.parents.Store(name, above.id)
	}
	return err
}

// sameParent reports whether the directory above a name is the one in which the lock's directory was last seen.
func (s *Store) sameParent(name lock.Name) (bool, error) {
	known, ok := s.parents.Load(name)
	if !ok {
		return true, nil
	}
	above, err := s.tree.look(name.Parent())
	return err == nil && above.is(known.(lock.DirectoryID)), err
}

// lookTimeout bounds how long a client waits for Look.
const lookTimeout = 100 * time.Millisecond

// Look implements lock.Looker. A look that hangs goes on, and keeps others from looking at the name.
func (s *Store) Look(ctx context.Context, name lock.Name) (lock.Event, bool) {
	unlock, busy := s.tryLock(name)
	if busy != nil {
		return lock.Event{}, false
	}
	changed := make(chan lock.Event, 1)
	s.looks.Go(func() {
		defer unlock()
		defer close(changed)
		record, err := s.inner.Get(ctx, name)
		if err != nil || len(record.Holds) == 0 {
			return
		}
		var change *changedByHost
		if errors.As(s.meet(ctx, record), &change) {
			changed <- change.event
		}
	})
	select {
	case event, ok := <-changed:
		return event, ok
	case <-time.After(lookTimeout):
		return lock.Event{}, false
	}
}

// changedByHost is the error of a change that what the host did came before, with the event that tells of that.
type changedByHost struct {
	error
	event lock.Event
}

func (e *changedByHost) Unwrap() error { return e.error }

// hostMade makes the record the host's, since the directory's modification time, and returns it.
func (s *Store) hostMade(ctx context.Context, name lock.Name, seen sight, rule lock.Rule) (lock.Record, error) {
	owner := lock.Owner{Account: lock.HostAccount}
	acquired := instantOf(seen.modified, s.o.Clock.Now())
	hold := lock.Hold{Owner: owner, Acquired: acquired, Renewed: acquired, Rule: rule, Directory: seen.id}
	_, err := s.inner.Commit(context.WithoutCancel(ctx), lock.Change{
		Name: name, Holds: []lock.Hold{hold}, Cause: lock.CauseHostMade, By: owner,
	})
	if err != nil {
		return lock.Record{}, err
	}
	record, err := s.inner.Get(context.WithoutCancel(ctx), name)
	if err != nil {
		return lock.Record{}, err
	}
	s.watchers.Tell(lock.Event{Record: record, Cause: lock.CauseHostMade})
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
	s.parents.Delete(record.Name)
	event := lock.Event{Record: lock.Record{Name: record.Name, Revision: token}, Cause: lock.CauseHostGone}
	s.watchers.Tell(event)
	return &changedByHost{conflict(lock.Record{Name: record.Name}), event}
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
	return &changedByHost{conflict(made), lock.Event{Record: made, Cause: lock.CauseHostMade}}
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
