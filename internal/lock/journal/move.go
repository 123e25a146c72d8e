package journal

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// A move to or from another store goes while no server uses either of them: Export here and import there, or the other way round;
// then Retire of the one that was left. Each step has happened or not, whenever it is cut off.

// Stopped is a state directory that no server uses, and that none can use until Close. Use OpenStopped.
type Stopped struct {
	dir       stateDir
	exclusive *os.File
}

// OpenStopped returns an error if a server uses the state directory, or if there is none.
func OpenStopped(dir string) (*Stopped, error) {
	f, err := exclusive(stateDir(dir).path("lock"))
	if err != nil {
		return nil, err
	}
	return &Stopped{dir: stateDir(dir), exclusive: f}, nil
}

// Close gives the state directory free.
func (s *Stopped) Close() error { return s.exclusive.Close() }

// Export returns the locks that stand, sorted by name, a token above which none was given, and the history, oldest first. It changes nothing.
func (s *Stopped) Export() (records []lock.Record, last lock.Token, history iter.Seq2[lock.Entry, error], err error) {
	st, err := replay(s.dir.journal())
	if errors.Is(err, fs.ErrNotExist) {
		if isNew := s.dir.isNew(); isNew != nil && !errors.Is(isNew, fs.ErrNotExist) {
			return nil, 0, nil, isNew
		}
		err = fmt.Errorf("%s has no journal, so no locks are there that could be moved: %w", s.dir, err)
	}
	if err != nil {
		return nil, 0, nil, err
	}
	return sorted(st.records), st.last, History(string(s.dir), ""), nil
}

// Import makes a journal in a state directory that has neither locks nor history. The next Open goes on with larger tokens
// than last. The history is in one file, which begins to be old at the first start: it goes as a whole when it is older than
// Options.HistoryAge, or larger than Options.HistorySize.
func (s *Stopped) Import(now lock.Instant, records []lock.Record, last lock.Token, history iter.Seq2[lock.Entry, error]) error {
	if err := s.dir.make(); err != nil {
		return err
	}
	if _, err := os.Lstat(s.dir.journal()); !errors.Is(err, fs.ErrNotExist) {
		return cmp.Or(err, fmt.Errorf("%s has locks already: move %s away first", s.dir, s.dir.journal()))
	}
	if old, err := s.dir.rotated(); err != nil || len(old) > 0 {
		return cmp.Or(err, fmt.Errorf("%s has a history already: move %s away first", s.dir, s.dir.archive()))
	}
	f, err := os.OpenFile(s.dir.temporary(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = writeMoved(f, now, records, last, history)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(s.dir.temporary(), s.dir.journal())
	}
	if err != nil {
		return errors.Join(err, os.Remove(s.dir.temporary()))
	}
	if err := os.Remove(s.dir.path(elsewhere)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(string(s.dir))
}

// writeMoved writes a whole journal: the history, and then what stands, whatever the history says of it.
func writeMoved(f io.Writer, now lock.Instant, records []lock.Record, last lock.Token, history iter.Seq2[lock.Entry, error]) error {
	w := bufio.NewWriterSize(f, 64<<10)
	var buffer []byte
	var generation uint32             // the largest of a session: those of the next start are new
	ended := make(map[lock.Name]bool) // the history says that they are held
	write := func(l line) error {
		if err := l.check(); err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
		for _, owner := range append(owners(l.Holds), l.By) {
			generation = max(generation, uint32(owner.Session>>32))
		}
		buffer = appendLine(buffer[:0], &l)
		_, err := w.Write(buffer)
		return err
	}
	err := write(line{Entry: lock.Entry{Cause: eventJournal, Token: last, At: now}, Version: version})
	for entry, herr := range history {
		if err = cmp.Or(err, herr); err != nil {
			return err
		}
		err = write(line{Entry: entry})
		if entry.Cause != lock.CausePublish {
			ended[entry.Name] = len(entry.Holds) > 0
		}
	}
	for _, record := range records {
		err = cmp.Or(err, write(line{Entry: lock.Entry{Cause: eventKept, Name: record.Name, Token: record.Revision, At: now, Holds: record.Holds}}))
		ended[record.Name] = false
	}
	for name, held := range ended {
		if held { // a line of the history is missing
			err = cmp.Or(err, write(line{Entry: lock.Entry{Cause: eventKept, Name: name, Token: last, At: now}}))
		}
	}
	err = cmp.Or(err, write(line{Entry: lock.Entry{Cause: eventTokens}, Generation: generation, Reserved: last}))
	return cmp.Or(err, w.Flush())
}

func owners(holds []lock.Hold) []lock.Owner {
	all := make([]lock.Owner, 0, len(holds)+1)
	for _, h := range holds {
		all = append(all, h.Owner)
	}
	return all
}

// retired is where journals are put whose locks have moved elsewhere.
const retired = "migrated-"

// Retire puts the journal and its history aside, below a directory in the state directory that it names, since the locks have moved
// elsewhere. No server starts on the state directory any more, until Import.
func (s *Stopped) Retire(now time.Time) (aside string, err error) {
	aside = s.dir.path(retired + now.UTC().Format("20060102T150405.000Z"))
	if err := os.Mkdir(aside, 0o700); err != nil {
		return "", err
	}
	if err := syncDir(string(s.dir)); err != nil { // so that a start knows why the journal is missing
		return "", err
	}
	for _, path := range []string{s.dir.journal(), s.dir.archive()} { // the journal first: it is what a start looks for
		if err := os.Rename(path, filepath.Join(aside, filepath.Base(path))); err != nil {
			return "", err
		}
		if err := errors.Join(syncDir(aside), syncDir(string(s.dir))); err != nil {
			return "", err
		}
	}
	return aside, nil
}

// retired returns the directories of journals that were put aside, oldest first.
func (d stateDir) retired() ([]string, error) {
	paths, err := filepath.Glob(d.path(retired + "*"))
	slices.Sort(paths)
	return paths, err
}
