package journal

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// errName is returned for a name that no lock can have.
var errName = errors.New("not the absolute, clean path of a lock")

// Commit implements [lock.Store]. A name without holds has no record: the next change of it has If 0. The directory of a hold
// is kept as it is given.
//
// A grant is written, and synced if the store is durable. A release is written. On a full disk a grant is refused with
// what the system says (ENOSPC, EDQUOT, EFBIG), and so is a release for which no room could be kept, with lock.ErrUnrecorded.
//
// Besides the errors that lock.Store names it returns lock.ErrClosed, the context's error if that has
// ended before anything was done, and ErrFailed.
func (s *Store) Commit(ctx context.Context, change lock.Change) (lock.Token, error) {
	if path.Clean(string(change.Name)) != string(change.Name) || change.Name.Depth() == 0 || change.Name[0] != '/' {
		return 0, fmt.Errorf("%s: %w", change.Name, errName)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	w, err := s.commit(change)
	if err == nil && w.log != nil {
		err = w.log.sync(w.end)
	}
	if errors.Is(err, errTail) {
		err = fmt.Errorf("%s: %w: %w", change.Name, lock.ErrUncertain, err)
	}
	if err != nil {
		return 0, err
	}
	return w.token, nil
}

// written is a change that is in the file. It lasts when log is synced up to end; without a log it need not last.
type written struct {
	token lock.Token
	log   *log
	end   int64
}

func (s *Store) commit(change lock.Change) (w written, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readyLocked(); err != nil {
		return w, err
	}
	before := s.records[change.Name]
	if before.Revision != change.If {
		before.Name = change.Name
		return w, &lock.ConflictError{Record: clone(before)}
	}
	s.rotateIfDueLocked()
	if err := s.reserveLocked(); err != nil {
		return w, err
	}
	if len(before.Holds) == 0 && len(change.Holds) == 0 { // nothing changes
		s.next++
		return written{token: s.next - 1}, nil
	}
	after := lock.Record{Name: change.Name, Revision: s.next, Holds: slices.Clone(change.Holds)}
	for i := range after.Holds {
		if after.Holds[i].Token == 0 {
			after.Holds[i].Token = s.next
		}
	}
	grants := extends(before.Holds, after.Holds)
	err = s.writeLocked(s.describe(change, before, after), releaseRoom(after)-releaseRoom(before), grants)
	if err != nil && full(err) && !grants {
		err = fmt.Errorf("%w: %w", lock.ErrUnrecorded, err)
	}
	if err != nil {
		return w, err
	}
	s.next++
	s.putLocked(before, after)
	w.token = after.Revision
	if grants && s.o.Durable {
		w.log, w.end = s.log, s.log.end.Load()
	}
	return w, nil
}

// readyLocked says why nothing can be changed.
func (s *Store) readyLocked() error {
	if s.closed {
		return lock.ErrClosed
	}
	return s.failure.get()
}

// putLocked takes a change over that is written.
func (s *Store) putLocked(before, after lock.Record) {
	delete(s.tombstones, after.Name)
	if len(after.Holds) > 0 {
		s.records[after.Name] = after
		return
	}
	delete(s.records, after.Name)
	s.tombstones.add(lock.Tombstone{Name: after.Name, Directory: directory(before), At: s.o.Clock.Now(), Token: after.Revision})
}

// describe returns the line of a change.
func (s *Store) describe(change lock.Change, before, after lock.Record) *line {
	now := s.o.Clock.Now()
	l := &line{Entry: lock.Entry{
		Cause: change.Cause, Name: change.Name, Token: after.Revision, At: now, By: change.By, Note: change.Note,
		Holds: after.Holds, Held: held(before.Holds, after.Holds, now),
	}}
	if len(after.Holds) == 0 {
		l.Directory = directory(before)
	}
	return l
}

// writeLocked appends a line. more is by how much the room for releases grows with it. Only a grant has to leave that room alone.
func (s *Store) writeLocked(l *line, more int64, grants bool) error {
	if err := s.log.append(l, more, grants); err != nil {
		return err
	}
	s.eventful = s.eventful || !l.own()
	return nil
}

// reserveLocked announces the next block of tokens, synced whether the store is durable or not: a token must
// not be given twice, whatever is lost. It syncs with mu held, once in so many changes, since nobody can go on without.
func (s *Store) reserveLocked() error {
	if s.next <= s.reserved {
		return nil
	}
	upTo := s.next + tokenBlock - 1
	if err := s.writeLocked(&line{Entry: lock.Entry{Cause: eventTokens}, Reserved: upTo}, 0, false); err != nil {
		return err
	}
	if err := s.log.sync(s.log.end.Load()); err != nil {
		return err
	}
	s.reserved = upTo
	return nil
}

// extends reports whether some hold is new or has got more time than it had: a grant, which is to last.
func extends(before, after []lock.Hold) bool {
	for _, h := range after {
		i := slices.IndexFunc(before, func(b lock.Hold) bool { return b.Token == h.Token })
		if i < 0 || !sameInstant(before[i].Renewed, h.Renewed) {
			return true
		}
	}
	return false
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

// Published implements [lock.Publications]: a line of its own, on disk with the next grant that is synced. No record
// changes by it, and its token is that of the hold.
func (s *Store) Published(_ context.Context, p lock.Publication) error {
	if p.Lock == "" || p.Token == 0 || p.File == "" {
		return fmt.Errorf("%s: a publication without a file, a lock and a token", p.File)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readyLocked(); err != nil {
		return err
	}
	return s.writeLocked(&line{Entry: lock.Entry{
		Cause: lock.CausePublish, Name: p.Lock, Token: p.Token, At: s.o.Clock.Now(), By: p.By, Note: p.Note,
		File: p.File, Bytes: p.Bytes, SHA256: p.SHA256,
	}}, 0, true)
}
