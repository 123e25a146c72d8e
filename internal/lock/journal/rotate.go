package journal

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// rotateAfter is how long one file goes on, if it has lines for the history: those are to go when they are old.
const rotateAfter = 24 * time.Hour

// A file begins with what stands: a line that says the generation and the tokens that may be given, then a line for each record
// and for each tombstone. It is written under another name, with room for releases, synced, and takes the place of the one before by a
// rename; that one keeps a name in history if it has lines for it. At every moment journal.jsonl is whole.

// start reads what there is, and begins a new file and a new generation.
func (s *Store) start() error {
	err := s.load()
	if errors.Is(err, fs.ErrNotExist) {
		err = s.dir.isNew()
	}
	if err != nil {
		return err
	}
	s.generation++
	if err := s.beginLocked(); err != nil {
		if full(err) {
			return fmt.Errorf("%s: no room for a new journal: free some space and start again; nothing is lost: %w", s.dir.journal(), bare(err))
		}
		return err
	}
	return s.pruneHistoryLocked()
}

// load takes over what the journal of the process before says. All of it lasts then, whatever a crash left unsynced, and the room that it
// had is free.
func (s *Store) load() error {
	current, err := os.Stat(s.dir.journal())
	if err != nil {
		return err
	}
	if err := s.dir.unlinkCurrent(current); err != nil {
		return err
	}
	st, err := replay(s.dir.journal())
	if err != nil {
		return err
	}
	if st.torn {
		s.o.Log.Warn("the journal's last line was cut off by a crash and is dropped", "bytes", st.size)
	}
	f, err := os.OpenFile(s.dir.journal(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	s.records, s.tombstones, s.generation, s.eventful = st.records, st.tombstones, st.generation, st.eventful
	s.next, s.reserved = st.last+1, st.last
	s.log = s.newLog(f, st.size, st.size, 0)
	if err := s.log.file.Truncate(st.size); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := s.log.file.Sync(); err != nil {
		return errors.Join(s.failure.set(err), f.Close())
	}
	return nil
}

// isNew returns an error if the state directory has a history without a journal, or one that was put aside, or the locks of its server
// are elsewhere.
func (d stateDir) isNew() error {
	aside, err := d.retired()
	if err == nil && len(aside) > 0 {
		return fmt.Errorf("the locks of %s have moved to another store: what was here is in %s; starting anew would give tokens out twice: is the section [etcd] missing?", d, aside[len(aside)-1])
	}
	old, err := d.rotated()
	if err == nil && len(old) > 0 {
		err = fmt.Errorf("%s is missing, but %s is not empty: starting anew would give tokens out twice; "+
			"move both away if that is what you want", d.journal(), d.archive())
	}
	return cmp.Or(err, d.claimed())
}

// unlinkCurrent removes the name in history that the journal was given by a process that crashed before it began the next one.
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

// rotated returns the real paths of the files in history, oldest first.
func (d stateDir) rotated() ([]string, error) {
	entries, err := os.ReadDir(d.archive())
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, entry := range entries {
		if entry.Type().IsRegular() && strings.HasSuffix(entry.Name(), ".jsonl") {
			paths = append(paths, filepath.Join(d.archive(), entry.Name()))
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// rotateIfDueLocked rotates the journal if it has grown too large. Where that fails it goes on growing.
func (s *Store) rotateIfDueLocked() {
	if s.log.end.Load() <= s.rotateAt {
		return
	}
	if err := s.rotateLocked(); err != nil {
		s.rotateAt = s.log.end.Load() + s.o.MaxSize/4
		s.o.Log.Error("the journal could not be rotated; it goes on growing", "err", err)
		return
	}
	if err := s.pruneHistoryLocked(); err != nil {
		s.o.Log.Error("old files of the history could not be removed", "err", err)
	}
}

func (s *Store) rotateLocked() error {
	if err := s.log.sync(s.log.end.Load()); err != nil {
		return err
	}
	return s.beginLocked()
}

// beginLocked begins the next file. The one before, if there is one, is synced. After an error that does not match ErrFailed that one
// goes on.
func (s *Store) beginLocked() error {
	s.next++ // a token that names the file in history
	s.tombstones.prune()
	f, err := os.OpenFile(s.dir.temporary(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	l, err := s.createLocked(f)
	if err == nil {
		s.retire(true)
		err = s.installLocked()
	}
	if err != nil {
		s.retire(false)
		f.Close()
		os.Remove(s.dir.temporary())
		return err
	}
	if s.log != nil {
		_ = s.log.file.Truncate(s.log.end.Load()) // history reads as well with room behind its end
		_ = s.log.close()                         // it is synced
	}
	end := l.end.Load()
	s.log, s.reserved, s.rotateAt = l, s.next-1+tokenBlock, max(s.o.MaxSize, 2*end)
	s.begun, s.eventful = s.o.Clock.Now(), false
	return nil
}

// retire says whether the live file, if there is one, is to be replaced.
func (s *Store) retire(is bool) {
	if s.log != nil {
		s.log.retired.Store(is)
	}
}

// createLocked writes the next file, with room for the releases of what stands, and syncs it.
func (s *Store) createLocked(f *os.File) (*log, error) {
	end, keep, err := s.writeFirstLocked(f)
	if err != nil {
		return nil, err
	}
	l := s.newLog(f, end, end, keep)
	if err := l.makeRoom(end + keep); err != nil {
		if !full(err) || s.log == nil || s.begun != (lock.Instant{}) {
			return nil, err
		}
		s.o.Log.Warn("the disk is full: no room is kept for releases") // a start on a full disk is better than none
	}
	if err := l.file.Sync(); err != nil {
		return nil, s.failure.set(err)
	}
	return l, nil
}

// writeFirstLocked writes the lines that the next file begins with. keep is how much room is to be kept for releases.
func (s *Store) writeFirstLocked(f io.Writer) (end, keep int64, err error) {
	w := bufio.NewWriterSize(f, 64<<10)
	keep = s.o.room() / 4
	var buffer []byte
	write := func(l line) {
		buffer = appendLine(buffer[:0], &l)
		end += int64(len(buffer))
		_, _ = w.Write(buffer) // Flush returns its error
	}
	now := s.o.Clock.Now()
	write(line{
		Entry: lock.Entry{Cause: eventJournal, Token: s.next - 1, At: now}, Version: version,
		Generation: s.generation, Reserved: s.next - 1 + tokenBlock,
	})
	for _, record := range sorted(s.records) {
		keep += releaseRoom(record)
		write(line{Entry: lock.Entry{Cause: eventKept, Name: record.Name, Token: record.Revision, At: now, Holds: record.Holds}})
	}
	for _, t := range s.tombstones.sorted() {
		write(line{Entry: lock.Entry{Cause: eventTombstone, Name: t.Name, Token: t.Token, At: t.At}, Directory: t.Directory})
	}
	return end, keep, w.Flush()
}

// installLocked puts the file that was written in the place of the one before.
func (s *Store) installLocked() error {
	old := ""
	if s.log != nil && s.eventful {
		err := fs.ErrExist
		for number := s.next - 1; errors.Is(err, fs.ErrExist); number++ { // there may be more if an old state directory was put back
			old = filepath.Join(s.dir.archive(), fmt.Sprintf("%020d.jsonl", number))
			err = os.Link(s.dir.journal(), old)
		}
		if err != nil {
			return err
		}
		if err := syncDir(s.dir.archive()); err != nil {
			return errors.Join(err, os.Remove(old))
		}
	}
	if err := os.Rename(s.dir.temporary(), s.dir.journal()); err != nil {
		if old != "" {
			os.Remove(old)
		}
		return err
	}
	if err := syncDir(string(s.dir)); err != nil {
		return s.failure.set(err) // it is unknown which of the two files a crash would leave
	}
	return nil
}

// Sweep rotates a journal that was begun long ago, and removes from history what is older or more than Options say.
func (s *Store) Sweep(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readyLocked(); err != nil {
		return nil // Run says so
	}
	if err := s.log.named(); err != nil {
		return s.failure.set(err)
	}
	var err error
	if s.eventful && since(s.begun, s.o.Clock.Now()) > rotateAfter {
		err = s.rotateLocked()
	}
	return errors.Join(err, s.pruneHistoryLocked())
}

// pruneHistoryLocked removes the files in history that are too old, and the oldest ones of too many bytes.
func (s *Store) pruneHistoryLocked() error {
	paths, err := s.dir.rotated()
	if err != nil {
		return err
	}
	var total int64
	oldest := s.o.Clock.Now().Wall.Add(-s.o.HistoryAge)
	for _, path := range slices.Backward(paths) {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		total += info.Size()
		if s.o.HistorySize > 0 && total > s.o.HistorySize || s.o.HistoryAge > 0 && info.ModTime().Before(oldest) {
			if err := os.Remove(path); err != nil {
				return err
			}
			s.o.Log.Info("a file of the history was removed, as history_days and history_size say", "file", path, "bytes", info.Size())
		}
	}
	return nil
}
