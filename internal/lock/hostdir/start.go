package hostdir

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Leave is for a server that gives locks no directories. It ends the locks that programs on the host hold, which nobody could ever give
// back, and leaves their directories. It removes the empty directories of the other locks that are held: there they would keep
// everybody from the names when the locks have ended. Where something lies in one it stays, and is the lock's again with the next Open.
func Leave(ctx context.Context, o Options) error {
	s := newStore(o)
	var records []lock.Record
	for record, err := range s.inner.All(ctx) {
		if err != nil {
			return err
		}
		if directory(record).Inode != 0 || record.Holds[0].Host() {
			records = append(records, record)
		}
	}
	for _, record := range slices.Backward(records) { // members before their groups
		if record.Holds[0].Host() {
			if err := s.dismiss(ctx, record); err != nil {
				return err
			}
			continue
		}
		seen, err := s.tree.look(record.Name)
		if err != nil {
			return err
		}
		if !seen.is(directory(record)) {
			continue
		}
		if err := s.tree.remove(record.Name); err != nil {
			s.o.Log.Warn("the directory of a held lock stays, and nobody can take the lock again before it is removed", "lock", record.Name, "err", err)
			continue
		}
		if err := s.inner.SetDirectory(record.Name, record.Revision, lock.DirectoryID{}); err != nil {
			return err
		}
	}
	return s.clear(ctx)
}

// dismiss ends a lock that a program on the host holds, and forgets its directory.
func (s *Store) dismiss(ctx context.Context, record lock.Record) error {
	if err := s.inner.SetDirectory(record.Name, record.Revision, lock.DirectoryID{}); err != nil {
		return err
	}
	_, err := s.inner.Commit(ctx, lock.Change{
		Name: record.Name, If: record.Revision, Cause: lock.CauseHostGone, By: lock.Owner{Account: lock.HostAccount},
	})
	return err
}

// start brings records and directories into agreement.
func (s *Store) start(ctx context.Context) error {
	if err := s.restoreAll(ctx); err != nil {
		return err
	}
	if err := s.clear(ctx); err != nil {
		return err
	}
	return s.walk(ctx, walkAtStart)
}

// restoreAll sees to it that each hold has its directory. That it has none lasts before it gets a new one: if the power fails then,
// that one is nobody else's.
func (s *Store) restoreAll(ctx context.Context) error {
	var without []lock.Record
	for record, err := range s.inner.All(ctx) { // parents before what lies in them
		if err != nil {
			return err
		}
		has, err := s.restore(ctx, record)
		if err != nil {
			return err
		}
		if !has {
			without = append(without, record)
		}
	}
	if len(without) == 0 {
		return nil
	}
	if err := s.inner.Sync(); err != nil {
		return err
	}
	for _, record := range without {
		s.remake(record)
	}
	return nil
}

// restore compares one record with its directory, or notes that its hold has none: then has is false.
func (s *Store) restore(ctx context.Context, record lock.Record) (has bool, err error) {
	seen, err := s.tree.look(record.Name)
	if err != nil {
		return false, err
	}
	known, hold := directory(record), record.Holds[0]
	switch {
	case known.Inode != 0 && seen.is(known):
		return true, nil
	case seen.directory && !hold.Host() && seen.cameBack(known, hold.Acquired.Wall):
		s.note(record.Name, record.Revision, seen.id)
		s.freshen(record.Name, record.Holds)
		return true, nil
	case seen.directory:
		err = s.hostReplaced(ctx, record, seen)
	case hold.Host():
		err = s.hostRemoved(ctx, record)
	default:
		if known.Inode != 0 {
			err = s.inner.SetDirectory(record.Name, record.Revision, lock.DirectoryID{})
		}
		return false, err
	}
	if isConflict(err) { // it is recorded
		err = nil
	}
	return true, err
}

// remake makes the directory of a hold again. Where that is impossible the hold stands without one.
func (s *Store) remake(record lock.Record) {
	id, err := s.tree.make(record.Name)
	if err != nil {
		s.o.Log.Warn("a lock's directory cannot be made; the lock stands without it", "lock", record.Name, "err", err)
	}
	s.note(record.Name, record.Revision, id)
	if err == nil {
		s.freshen(record.Name, record.Holds)
	}
}

// clear removes the directories that released locks left behind, what lies in others first.
func (s *Store) clear(ctx context.Context) error {
	tombstones := s.inner.Tombstones()
	slices.SortFunc(tombstones, func(a, b lock.Tombstone) int { return strings.Compare(string(b.Name), string(a.Name)) })
	for _, t := range tombstones {
		if err := ctx.Err(); err != nil {
			return err
		}
		seen, err := s.tree.look(t.Name)
		if err != nil {
			return err
		}
		if !seen.cameBack(t.Directory, t.At.Wall) {
			continue
		}
		switch err := s.tree.remove(t.Name); {
		case errors.Is(err, lock.ErrNotEmpty):
			s.o.Log.Warn("the directory of a released lock came back and is not empty; it stays", "lock", t.Name)
		case err != nil:
			return err
		default:
			s.o.Log.Info("the directory of a released lock came back and was removed", "lock", t.Name)
		}
	}
	return nil
}
