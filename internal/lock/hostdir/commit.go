package hostdir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Commit implements [lock.Store].
//
// A grant is committed to the inner store, then its directory is made; if it cannot be made, the grant is taken back. A release
// removes the directory, then is committed; if the inner store refuses it, the directory is made again. Where a program on the
// host made or removed the directory meanwhile, that comes first: the *lock.ConflictError has the record as the host left it (no
// holds: removed), and Watch yields it, too.
//
// Besides the errors of the inner store it returns what the file system says, with FTP paths only.
func (s *Store) Commit(ctx context.Context, change lock.Change) (lock.Token, error) {
	defer s.lock(change.Name)()
	record, err := s.inner.Get(ctx, change.Name)
	if err != nil {
		return 0, err
	}
	held, holding := len(record.Holds) > 0, len(change.Holds) > 0
	switch {
	case record.Revision != change.If:
		return 0, conflict(record)
	case held && holding:
		return s.replace(ctx, record, change)
	case held:
		return s.release(ctx, record, change)
	case holding:
		return s.acquire(ctx, change)
	}
	return s.probe(ctx, record, change)
}

// acquire makes the first holds of a name. What stands at the name is looked at before anything is written: a client that tries
// in vain over and over shall not fill the journal. What counts is what mkdir says later.
func (s *Store) acquire(ctx context.Context, change lock.Change) (lock.Token, error) {
	seen, err := s.tree.look(change.Name)
	if err != nil {
		return 0, err
	}
	if seen.found {
		return 0, s.taken(ctx, change, seen)
	}
	above, err := s.tree.look(change.Name.Parent())
	switch {
	case err != nil:
		return 0, err
	case !above.directory:
		return 0, fmt.Errorf("%s: %w", change.Name.Parent(), lock.ErrNoParent)
	}
	change.Holds = withDirectory(change.Holds, lock.DirectoryID{})
	token, err := s.inner.Commit(ctx, change)
	if err != nil {
		return 0, err
	}
	id, err := s.tree.make(change.Name)
	if err != nil {
		return 0, s.undo(ctx, change, token, err)
	}
	s.parents.Store(change.Name, above.id)
	s.note(change.Name, token, id)
	return token, nil
}

// undo takes back a grant whose directory could not be made.
func (s *Store) undo(ctx context.Context, granted lock.Change, token lock.Token, why error) error {
	_, err := s.inner.Commit(context.WithoutCancel(ctx), lock.Change{
		Name: granted.Name, If: token, Cause: lock.CauseUndo, By: granted.By, Note: "the directory could not be made",
	})
	if err != nil {
		return fmt.Errorf("%s: %w: %w", granted.Name, lock.ErrUncertain, err)
	}
	if !errors.Is(why, errExists) {
		return why
	}
	seen, err := s.tree.look(granted.Name)
	switch {
	case err != nil:
		return err
	case !seen.found: // made and removed again on the host, all within this call
		return fmt.Errorf("%s: %w", granted.Name, lock.ErrConflict)
	}
	return s.taken(ctx, granted, seen)
}

// taken says why a grant is impossible where something has the name already.
func (s *Store) taken(ctx context.Context, change lock.Change, seen sight) error {
	if !seen.directory {
		return fmt.Errorf("%s: %w", change.Name, lock.ErrNotDirectory)
	}
	if s.tree.occupied(change.Name) {
		return fmt.Errorf("%s: %w", change.Name, lock.ErrOccupied)
	}
	rule, ok := (*s.rules.Load()).For(change.Name)
	if !ok {
		rule = change.Holds[0].Rule
	}
	record, err := s.hostMade(ctx, change.Name, seen, rule)
	if err != nil {
		return err
	}
	return conflict(record)
}

// note notes which directory the holds have. That need not last: without it, any directory of that name is taken for theirs at
// the next start, since what was committed before says that they have none.
func (s *Store) note(name lock.Name, revision lock.Token, id lock.DirectoryID) {
	if err := s.inner.SetDirectory(name, revision, id); err != nil {
		s.o.Log.Warn("the directory of a lock could not be noted in the journal", "lock", name, "err", err)
	}
}

// release ends all holds of a name.
func (s *Store) release(ctx context.Context, record lock.Record, change lock.Change) (lock.Token, error) {
	stays, err := s.removeDirectory(ctx, record, &change)
	if err != nil {
		return 0, err
	}
	if stays { // it is no tombstone
		s.note(record.Name, record.Revision, lock.DirectoryID{})
	}
	token, err := s.inner.Commit(ctx, change)
	switch {
	case err == nil:
		s.parents.Delete(record.Name)
	case !errors.Is(err, lock.ErrUncertain) && !stays:
		s.remake(record)
	}
	return token, err
}

// removeDirectory removes the directory of a record that is to end, or moves it aside with what is in it. One that the host put in
// its place is the host's: that is a conflict. It reports whether a directory stays there that is not ours any more.
func (s *Store) removeDirectory(ctx context.Context, record lock.Record, change *lock.Change) (stays bool, err error) {
	seen, err := s.tree.look(record.Name)
	if err != nil || !seen.directory {
		return false, err
	}
	if !seen.is(directory(record)) {
		return false, s.hostReplaced(ctx, record, seen)
	}
	err = s.tree.remove(record.Name)
	if !errors.Is(err, lock.ErrNotEmpty) || change.Cause == lock.CauseRelease {
		return false, err
	}
	hold := record.Holds[0]
	if hold.Host() { // what a program on the host has put into its own lock stays, and is nobody's lock any more
		change.Note = strings.TrimSpace(change.Note + " its directory is not empty and stays")
		return true, nil
	}
	to, err := s.tree.fs.Aside(string(record.Name), string(record.Name), hold.Owner.Account, uint64(hold.Token))
	if err != nil {
		return false, pathError("move aside", record.Name, err)
	}
	s.o.Log.Warn("what was in a lock was moved aside", "lock", record.Name, "token", hold.Token, "holder", hold.Owner.String(), "leftovers", to)
	change.Note = strings.TrimSpace(change.Note + " left over: " + to)
	return false, nil
}

// replace changes the holds of a name that stays held: one holder hands over to the next, a hold is
// renewed, one of several is released. The directory gets the time of its youngest hold: a job on the host that removes old
// directories must not take a fresh lock away.
func (s *Store) replace(ctx context.Context, record lock.Record, change lock.Change) (lock.Token, error) {
	if err := s.meet(ctx, record); err != nil {
		return 0, err
	}
	change.Holds = withDirectory(change.Holds, directory(record))
	token, err := s.inner.Commit(ctx, change)
	if err != nil {
		return 0, err
	}
	if youngest(change.Holds).After(youngest(record.Holds)) {
		s.freshen(record.Name, change.Holds)
	}
	return token, nil
}

func (s *Store) freshen(name lock.Name, holds []lock.Hold) {
	at := youngest(holds)
	if err := s.tree.fs.Chtimes(string(name), at, at); err != nil {
		s.o.Log.Warn("the modification time of a lock's directory could not be set", "lock", name, "err", bare(err))
	}
}

// youngest returns when the youngest of the holds was acquired or renewed.
func youngest(holds []lock.Hold) (at time.Time) {
	for _, h := range holds {
		if h.Renewed.Wall.After(at) {
			at = h.Renewed.Wall
		}
	}
	return at
}

// probe changes nothing where nothing is held, but notices a lock that was made on the host.
func (s *Store) probe(ctx context.Context, record lock.Record, change lock.Change) (lock.Token, error) {
	if err := s.meet(ctx, record); err != nil {
		return 0, err
	}
	return s.inner.Commit(ctx, change)
}

func directory(record lock.Record) lock.DirectoryID {
	if len(record.Holds) == 0 {
		return lock.DirectoryID{}
	}
	return record.Holds[0].Directory
}

// withDirectory returns a copy of the holds that have that directory.
func withDirectory(holds []lock.Hold, id lock.DirectoryID) []lock.Hold {
	holds = slices.Clone(holds)
	for i := range holds {
		holds[i].Directory = id
	}
	return holds
}
