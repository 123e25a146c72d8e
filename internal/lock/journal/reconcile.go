package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// start reads the journal, begins a generation, and makes the directories agree.
func (s *Store) start(ctx context.Context) error {
	if err := s.dir.recover(s.o.Clock.Now()); err != nil {
		return err
	}
	st, err := replay(s.dir.journal())
	if err != nil {
		return err
	}
	if err := s.openLog(st); err != nil {
		return err
	}
	s.generation = st.generation + 1
	if err := s.log.begin(s.generation, s.o.Clock.Now()); err != nil {
		return err
	}
	s.o.hooks.step("started")
	for name, record := range st.records {
		s.entries[name] = &entry{record: record}
	}
	if err := s.reconcile(ctx, st); err != nil {
		return err
	}
	if err := s.log.sync(s.log.end.Load()); err != nil {
		return err
	}
	s.rotateIfDue()
	return nil
}

// openLog opens the journal at the end of its last good line. All before that lasts then, whatever a crash left unsynced: what a
// loss of power leaves of lines that are written behind it must not look like damage.
func (s *Store) openLog(st state) error {
	f, err := os.OpenFile(s.dir.journal(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	file := s.file(f, st.size)
	s.log = newLog(file, st.size, st.last, st.reserved, s.o.hooks.step)
	s.rotateAt = s.o.MaxSize
	if st.torn {
		s.o.Log.Warn("the journal's last line was cut off by a crash and is dropped", "bytes", st.size)
		if err := file.Truncate(st.size); err != nil {
			return err
		}
	}
	return file.Sync()
}

// file is what the log writes to: a file that was opened or begun, all of whose lines end at size.
func (s *Store) file(f *os.File, size int64) journalFile {
	return s.o.hooks.wrap(newRoomFile(f, size, s.o.hooks.room, !s.o.Durable))
}

// begin notes the new generation, and tokens for it, synced.
func (l *log) begin(generation uint32, now lock.Instant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	upTo := max(l.reserved, l.next-1+tokenBlock)
	err := l.writeLocked(&line{Event: eventStart, At: now, Generation: generation, Reserved: upTo})
	if err != nil {
		return err
	}
	if err := l.sync(l.end.Load()); err != nil {
		return err
	}
	l.reserved = upTo
	return nil
}

// finish notes the last token that was given, so that the next start goes on right behind it. The file ends with that line.
func (l *log) finish(now lock.Instant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readyLocked(); err != nil {
		return err
	}
	if err := l.writeLocked(&line{Event: eventClose, At: now, Token: l.next - 1}); err != nil {
		return err
	}
	return errors.Join(l.file.Truncate(l.end.Load()), l.sync(l.end.Load()))
}

// reconcile makes records and directories agree: a hold gets its directory back, what a released one
// left behind goes, and any other directory that is a lock was made on the host.
func (s *Store) reconcile(ctx context.Context, st state) error {
	if s.tree == nil {
		s.dismissHost()
		return nil
	}
	records := s.standing() // parents before what lies in them
	for _, record := range records {
		s.watched.add(record.Name.Parent())
	}
	done := s.glance(ctx, records)
	if err := s.restoreAll(ctx, records, done); err != nil {
		return err
	}
	s.o.hooks.step("restored")
	if err := s.clearGraves(ctx, st); err != nil {
		return err
	}
	s.o.hooks.step("cleared")
	return s.walk(ctx, walkAtStart, done)
}

// dismissHost ends the holds of the host: without directories nobody could ever give them back.
func (s *Store) dismissHost() {
	for _, record := range s.standing() {
		if !record.Holds[0].Host() {
			continue
		}
		e := s.lockName(record.Name)
		s.hostRemoved(e)
		s.unlockName(e)
	}
}

// restoreAll brings records and their directories into agreement, but for those that are done. That a hold has no directory lasts
// before it gets a new one: if the power fails then, that one is nobody else's.
func (s *Store) restoreAll(ctx context.Context, records []lock.Record, done settled) error {
	var missing []lock.Name
	for _, record := range records {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, ok := done[record.Name]; ok {
			continue
		}
		found, err := s.restore(record.Name)
		if err != nil {
			return err
		}
		if !found {
			missing = append(missing, record.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := s.log.sync(s.log.end.Load()); err != nil {
		return err
	}
	s.o.hooks.step("missed")
	for _, name := range missing {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.remake(name)
	}
	return nil
}

// restore brings one record and its directory into agreement at a start, or notes that its hold has none: then found is
// false. The parent is counted as watched.
func (s *Store) restore(name lock.Name) (found bool, err error) {
	e := s.lockName(name)
	defer s.unlockName(e)
	seen, err := s.tree.look(name)
	if err != nil {
		return false, err
	}
	s.watched.retry(name.Parent())
	known, host := directory(e.record), e.record.Holds[0].Host()
	switch {
	case seen.directory && known.Inode != 0 && seen.is(known):
	case seen.directory && !host && returned(seen, e.record):
		s.adopt(e, seen.id)
	case seen.directory:
		s.hostReplaced(e, seen)
	case host:
		s.hostRemoved(e)
	default:
		if known.Inode != 0 {
			s.adopt(e, lock.DirectoryID{})
		}
		return false, nil
	}
	return true, nil
}

// returned reports whether a directory that is not the hold's own came back with the file system after a power
// failure: it is older than the hold's, or nobody noted which one the hold's is.
func returned(seen sight, record lock.Record) bool {
	known := directory(record)
	switch {
	case known.Inode == 0:
		return true
	case known.Birth != 0 && seen.id.Birth != 0:
		return seen.id.Birth < known.Birth
	}
	return seen.modified.Before(record.Holds[0].Acquired.Wall)
}

// remake makes the directory of a hold again. Where that is impossible the hold stands without one.
func (s *Store) remake(name lock.Name) {
	e := s.lockName(name)
	defer s.unlockName(e)
	s.watched.retry(name.Parent()) // which may have been made again just now
	id, err := s.tree.make(name)
	if err != nil {
		s.o.Log.Warn("a lock's directory cannot be made; the lock stands without it", "lock", name, "err", err)
		return
	}
	s.adopt(e, id)
}

// adopt makes a directory that of the record's holds; without an inode: they have none.
func (s *Store) adopt(e *entry, id lock.DirectoryID) {
	entry := line{Name: e.record.Name, Token: e.record.Revision, At: s.o.Clock.Now(), Holds: slices.Clone(e.record.Holds)}
	s.locate(&entry, id)
	s.set(e, entry.Token, entry.Holds)
	if id.Inode != 0 {
		s.freshen(entry.Name, entry.Holds)
	}
}

// clearGraves removes the directories that released locks left behind, what lies in others first.
func (s *Store) clearGraves(ctx context.Context, st state) error {
	graves := make([]grave, 0, len(st.graves))
	for _, g := range st.graves {
		graves = append(graves, g)
	}
	slices.SortFunc(graves, func(a, b grave) int { return a.at.Wall.Compare(b.at.Wall) })
	for _, g := range graves {
		s.graves.dig(g) // what removed its directory need not last yet
	}
	slices.SortFunc(graves, func(a, b grave) int { return strings.Compare(string(b.name), string(a.name)) })
	for _, g := range graves {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.clearGrave(g); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) clearGrave(g grave) error {
	e := s.lockName(g.name)
	defer s.unlockName(e)
	seen, err := s.tree.look(g.name)
	if err != nil || len(e.record.Holds) > 0 || !g.holds(seen) {
		return err
	}
	switch err := s.tree.remove(g.name); {
	case errors.Is(err, lock.ErrNotEmpty):
		s.o.Log.Warn("the directory of a released lock came back and is not empty; it stays", "lock", g.name)
		return nil
	case err != nil:
		return err
	}
	s.o.Log.Info("the directory of a released lock came back and was removed", "lock", g.name)
	g.at = s.o.Clock.Now() // it may come back once more
	s.graves.dig(g)
	return nil
}

// recover makes a state directory whole that a crash left in the middle of a rotation, and begins one
// that is new. Then the journal's name lasts: the crash may have come between its rename and the sync of the directory, and a loss of
// power would take it back, with all that is about to be written under it.
func (d stateDir) recover(now lock.Instant) error {
	if err := os.Remove(d.temporary()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	current, err := os.Stat(d.journal())
	if err == nil {
		if err := d.unlinkCurrent(current); err != nil {
			return err
		}
		return syncDir(string(d))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old, err := d.rotated()
	if err != nil {
		return err
	}
	if len(old) > 0 {
		return fmt.Errorf("%s is missing, but %s is not empty: starting anew would give tokens out twice; "+
			"move both away if that is what you want", d.journal(), d.history())
	}
	f, err := d.create(&line{Event: eventJournal, Version: version, At: now}, nil)
	if err != nil {
		return err
	}
	return f.Close()
}

// unlinkCurrent removes the name in history that a rotation gave the journal before it crashed.
func (d stateDir) unlinkCurrent(current fs.FileInfo) error {
	old, err := d.rotated()
	if err != nil {
		return err
	}
	for _, path := range old {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if os.SameFile(info, current) {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}
