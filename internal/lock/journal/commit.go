package journal

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// errName is returned for a name that no lock can have.
var errName = errors.New("not the absolute, clean path of a lock")

// Commit implements [lock.Store]. A name without holds has no record: the next change of it has If 0.
//
// A grant is journaled, synced if the store is durable, then its directory is made. A release
// removes the directory, then is journaled, and succeeds also while the disk is full: its line is written as
// soon as there is room. Where a program on the host made or removed the directory meanwhile, that
// comes first: the *lock.ConflictError has the record as the host left it (no holds: removed), and Watch yields it, too.
//
// Besides the errors that lock.Store names it returns lock.ErrClosed, ErrFailed, the context's error if that has
// ended before anything was done, and what the file system says, with FTP paths only.
func (s *Store) Commit(ctx context.Context, change lock.Change) (lock.Token, error) {
	if path.Clean(string(change.Name)) != string(change.Name) || change.Name.Depth() == 0 || change.Name[0] != '/' {
		return 0, fmt.Errorf("%s: %w", change.Name, errName)
	}
	token, err := s.commit(ctx, change)
	if err == nil {
		s.rotateIfDue()
	}
	return token, err
}

func (s *Store) commit(ctx context.Context, change lock.Change) (lock.Token, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.gate.RUnlock()
	e := s.lockName(change.Name)
	defer s.unlockName(e)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if s.log.broken.Load() {
		return 0, s.log.failure()
	}
	if e.record.Revision != change.If {
		return 0, conflict(e)
	}
	held, holding := len(e.record.Holds) > 0, len(change.Holds) > 0
	if holding {
		change.Holds = slices.Clone(change.Holds)
	}
	switch {
	case held && holding:
		return s.replace(e, change)
	case held:
		return s.release(e, change)
	case holding:
		return s.acquire(e, change)
	}
	return s.probe(e)
}

// acquire makes the first holds of a name.
func (s *Store) acquire(e *entry, change lock.Change) (lock.Token, error) {
	if err := s.clear(e, change); err != nil {
		return 0, err
	}
	s.watched.add(change.Name.Parent())
	entry := s.line(e, change)
	setDirectory(entry.Holds, lock.DirectoryID{})
	end, err := s.log.append(&entry)
	if err != nil {
		s.watched.drop(change.Name.Parent())
		return 0, err
	}
	if err := s.lasting(end); err != nil {
		// It may have become true on disk, so it is true here, and nobody else gets the lock.
		s.set(e, entry.Token, entry.Holds)
		return 0, uncertain(change.Name, err)
	}
	s.o.hooks.step("acquire journaled")
	if s.tree != nil {
		if err := s.occupy(e, change, &entry); err != nil {
			return 0, err
		}
	}
	s.set(e, entry.Token, entry.Holds)
	return entry.Token, nil
}

// clear looks whether the directory can be made, before anything is written: a client that tries in
// vain over and over shall not fill the journal. What counts is what mkdir says later.
func (s *Store) clear(e *entry, change lock.Change) error {
	if s.tree == nil || s.freed.take(change.Name) || s.tree.vacant(change.Name) {
		return nil
	}
	seen, err := s.tree.look(change.Name)
	if err != nil {
		return err
	}
	if seen.found {
		return s.taken(e, change, seen)
	}
	return s.tree.parent(change.Name)
}

// occupy makes the directory of a journaled grant, or takes the grant back.
func (s *Store) occupy(e *entry, change lock.Change, granted *line) error {
	id, err := s.tree.make(change.Name)
	if err == nil {
		s.o.hooks.step("acquire made")
		s.locate(granted, id)
		return nil
	}
	undo := line{
		Event: lock.CauseUndo, Name: change.Name, At: s.o.Clock.Now(), By: change.By,
		Note: "the directory could not be made",
	}
	s.journal(&undo)
	s.o.hooks.step("acquire undone")
	s.watched.drop(change.Name.Parent())
	if !errors.Is(err, errExists) {
		return err
	}
	seen, lookErr := s.tree.look(change.Name)
	switch {
	case lookErr != nil:
		return lookErr
	case !seen.found: // made and removed again on the host, all within this call
		return fmt.Errorf("%s: %w", change.Name, lock.ErrConflict)
	}
	return s.taken(e, change, seen)
}

// taken says why a grant is impossible where something has the name already.
func (s *Store) taken(e *entry, change lock.Change, seen sight) error {
	if !seen.directory {
		return fmt.Errorf("%s: %w", change.Name, lock.ErrNotDirectory)
	}
	if s.tree.occupied(change.Name) {
		return fmt.Errorf("%s: %w", change.Name, lock.ErrOccupied)
	}
	rule, ok := s.rules.Load().rule(change.Name)
	if !ok {
		rule = change.Holds[0].Rule
	}
	s.hostMade(e, seen, rule)
	return conflict(e)
}

// locate notes which directory the holds have. The line is not synced: without it, any directory of
// that name is taken for theirs at the next start, since the last line that was synced says that they have none.
func (s *Store) locate(entry *line, id lock.DirectoryID) {
	setDirectory(entry.Holds, id)
	note := line{Event: eventDirectory, Name: entry.Name, Token: entry.Token, At: entry.At, Directory: id}
	if err := s.log.write(&note); err != nil {
		s.o.Log.Warn("the directory of a lock could not be noted in the journal", "lock", entry.Name, "err", err)
	}
}

// release ends all holds of a name.
func (s *Store) release(e *entry, change lock.Change) (lock.Token, error) {
	stays := false // the directory does
	if s.tree != nil {
		err := s.vacate(e, change.Name)
		if errors.Is(err, lock.ErrNotEmpty) && change.Cause != lock.CauseRelease {
			stays = e.record.Holds[0].Host()
			change.Note, err = s.leave(e, change)
		}
		if err != nil {
			return 0, err
		}
		s.o.hooks.step("release removed")
	}
	entry := s.line(e, change)
	if !stays {
		entry.Directory = directory(e.record)
	}
	if err := s.journal(&entry); errors.Is(err, ErrFailed) {
		return 0, uncertain(change.Name, err)
	}
	s.set(e, 0, nil)
	if !stays {
		s.graves.dig(grave{name: entry.Name, id: entry.Directory, at: entry.At})
	}
	s.watched.drop(change.Name.Parent())
	return entry.Token, nil
}

// leave moves what is in a lock that is taken away from its holder aside, and returns the note that says so. What a program on
// the host has put into a lock that it made itself stays, and is nobody's lock any more.
func (s *Store) leave(e *entry, change lock.Change) (note string, err error) {
	hold := e.record.Holds[0]
	if hold.Host() {
		return strings.TrimSpace(change.Note + " its directory is not empty and stays"), nil
	}
	aside, ok := s.tree.fs.(Asides)
	if !ok {
		return "", fmt.Errorf("%s: %w", change.Name, lock.ErrNotEmpty)
	}
	to, err := aside.Aside(string(change.Name), string(change.Name), hold.Owner.Account, uint64(hold.Token))
	if err != nil {
		return "", pathError("move aside", change.Name, err)
	}
	s.o.Log.Warn("what was in a lock was moved aside", "lock", change.Name, "token", hold.Token, "holder", hold.Owner.String(), "leftovers", to)
	return strings.TrimSpace(change.Note + " left over: " + to), nil
}

// vacate removes the directory of a record that is to end. One that the host put in its place stays,
// and is the host's.
func (s *Store) vacate(e *entry, name lock.Name) error {
	known := directory(e.record)
	if same, err := s.tree.removeSame(name, known); same {
		if err == nil {
			s.freed.put(name)
		}
		return err
	}
	seen, err := s.tree.look(name)
	if err != nil {
		return err
	}
	if !seen.directory {
		return nil
	}
	if !seen.is(known) {
		s.hostReplaced(e, seen)
		return conflict(e)
	}
	return s.tree.remove(name)
}

// replace changes the holds of a name that stays held: one holder hands over to the next, a hold is
// renewed, one of several is released.
func (s *Store) replace(e *entry, change lock.Change) (lock.Token, error) {
	if s.tree != nil {
		if changed, err := s.meet(e); err != nil {
			return 0, err
		} else if changed {
			return 0, conflict(e)
		}
	}
	entry := s.line(e, change)
	setDirectory(entry.Holds, directory(e.record))
	grants := extends(e.record.Holds, change.Holds)
	if !grants {
		if err := s.journal(&entry); errors.Is(err, ErrFailed) {
			return 0, uncertain(change.Name, err)
		}
		s.set(e, entry.Token, entry.Holds)
		return entry.Token, nil
	}
	end, err := s.log.append(&entry)
	if err != nil {
		return 0, err
	}
	if err := s.lasting(end); err != nil {
		s.set(e, entry.Token, entry.Holds)
		return 0, uncertain(change.Name, err)
	}
	s.o.hooks.step("replace journaled")
	s.freshen(entry.Name, entry.Holds)
	s.set(e, entry.Token, entry.Holds)
	return entry.Token, nil
}

// extends reports whether some hold is new or has got more time than it had.
func extends(before, after []lock.Hold) bool {
	for _, h := range after {
		i := slices.IndexFunc(before, func(b lock.Hold) bool { return h.Token != 0 && b.Token == h.Token })
		if i < 0 || !sameInstant(before[i].Renewed, h.Renewed) {
			return true
		}
	}
	return false
}

// freshen gives the directory the time of its youngest hold: a job on the host that removes old directories
// must not take a fresh lock away.
func (s *Store) freshen(name lock.Name, holds []lock.Hold) {
	if s.tree == nil {
		return
	}
	var youngest time.Time
	for _, h := range holds {
		if h.Renewed.Wall.After(youngest) {
			youngest = h.Renewed.Wall
		}
	}
	if youngest.IsZero() {
		youngest = s.o.Clock.Now().Wall
	}
	if err := s.tree.fs.Chtimes(string(name), youngest, youngest); err != nil {
		s.o.Log.Warn("the modification time of a lock's directory could not be set", "lock", name, "err", bare(err))
	}
}

// probe changes nothing where nothing is held, but notices a lock that was made on the host.
func (s *Store) probe(e *entry) (lock.Token, error) {
	if s.tree != nil {
		if changed, err := s.meet(e); err != nil {
			return 0, err
		} else if changed {
			return 0, conflict(e)
		}
	}
	return s.log.take()
}

// lasting waits until the journal is synced up to end, if the store is durable.
func (s *Store) lasting(end int64) error {
	if !s.o.Durable {
		return nil
	}
	return s.log.sync(end)
}

// journal writes the line of something that has happened already, now or when there is room. Only an error
// that matches ErrFailed is for the caller.
func (s *Store) journal(entry *line) error {
	err := s.log.appendOwed(entry)
	if err != nil {
		s.o.Log.Error("the journal cannot be written; this is kept in memory", "lock", entry.Name, "event", entry.Event, "err", err)
	}
	return err
}

// line describes the change.
func (s *Store) line(e *entry, change lock.Change) line {
	now := s.o.Clock.Now()
	return line{
		Event: change.Cause, Name: change.Name, At: now, By: change.By, Note: change.Note,
		Holds: change.Holds, Held: held(e.record.Holds, change.Holds, now),
	}
}

// held returns how long the oldest of the holds that end has stood.
func held(before, after []lock.Hold, now lock.Instant) time.Duration {
	var longest time.Duration
	for _, h := range before {
		if !slices.ContainsFunc(after, func(a lock.Hold) bool { return a.Token == h.Token }) {
			longest = max(longest, since(h.Acquired, now))
		}
	}
	return longest
}

// since returns the time between two moments, by the clock that both can be told on.
func since(then, now lock.Instant) time.Duration {
	if then.BootID == now.BootID {
		return now.Boot - then.Boot
	}
	return now.Wall.Sub(then.Wall)
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

func conflict(e *entry) error { return &lock.ConflictError{Record: clone(e.record)} }

func uncertain(name lock.Name, err error) error {
	return fmt.Errorf("%s: %w: %w", name, lock.ErrUncertain, err)
}
