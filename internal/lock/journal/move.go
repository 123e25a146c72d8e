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
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// A move to or from another log happens while no server uses either of them: Export here and import there, or the other way round;
// then Retire of the one that was left. Each step happens as a whole or not at all.

// Stopped is a state directory that no server uses, and that none can use until Close. Use OpenStopped.
type Stopped struct {
	dir       stateDir
	clock     lock.Clock
	boot      string
	exclusive *os.File
}

// OpenStopped returns an error if a server uses the state directory, or if there is none. Times are mapped to the clock of this boot.
func OpenStopped(dir string, clock lock.Clock, bootID string) (*Stopped, error) {
	f, err := exclusive(stateDir(dir).path("lock"))
	if err != nil {
		return nil, err
	}
	return &Stopped{dir: stateDir(dir), clock: clock, boot: bootID, exclusive: f}, nil
}

// Close gives the state directory back.
func (s *Stopped) Close() error { return s.exclusive.Close() }

// Export returns the content of the log, as Load does, and the history, the oldest entry first. It changes nothing.
func (s *Stopped) Export() (lock.Loaded, iter.Seq2[lock.Entry, error], error) {
	found, err := s.dir.read(s.clock.Exact(), s.boot)
	if err == nil && found.number == 0 {
		if err = s.dir.isNew(); err == nil {
			err = fmt.Errorf("%s has no journal, so no locks are there that could be moved: %w", s.dir, fs.ErrNotExist)
		}
	}
	if err != nil {
		return lock.Loaded{}, nil, err
	}
	return found.loaded(), History(string(s.dir), ""), nil
}

// Import makes a journal in a state directory that has none. The next start goes on with larger numbers than loaded has. The history is in
// one file, whose age counts from now: it is removed as a whole when it is older than Options.HistoryAge, or larger than
// Options.HistorySize.
func (s *Stopped) Import(loaded lock.Loaded, history iter.Seq2[lock.Entry, error]) error {
	if err := s.dir.make(); err != nil {
		return err
	}
	numbers, err := s.dir.numbers()
	if err != nil {
		return err
	}
	if len(numbers) > 0 {
		return fmt.Errorf("%s has locks already: move %s away first", s.dir, s.dir.segments())
	}
	f, err := os.OpenFile(s.dir.begun(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = s.write(f, loaded, history)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(s.dir.begun(), s.dir.segment(1))
	}
	if err != nil {
		return errors.Join(err, os.Remove(s.dir.begun()))
	}
	if err := os.Remove(s.dir.path(elsewhere)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(syncDir(s.dir.segments()), syncDir(string(s.dir)))
}

// write writes a whole segment.
func (s *Stopped) write(f io.Writer, loaded lock.Loaded, history iter.Seq2[lock.Entry, error]) error {
	w := bufio.NewWriterSize(f, 64<<10)
	now := s.clock.Exact()
	var c coder
	size := 0
	write := func(l line) {
		c.b = c.b[:0]
		c.append(&l)
		size += len(c.b)
		_, _ = w.Write(c.b) // Flush returns its error
	}
	write(line{kind: head, number: 1, header: header{
		Version: version, Start: loaded.Start, Boot: s.boot, At: now, Last: loaded.Last, Reserved: loaded.Last, From: 1,
	}})
	for e, err := range history {
		if err != nil {
			return err
		}
		write(line{kind: past, held: e.Held, record: &lock.Record{
			Cause: e.Cause, Hold: lock.Hold{Name: e.Name, Token: e.Token, Owner: e.Owner}, By: e.By, At: e.At, Note: e.Note, File: e.File,
		}})
	}
	for _, hold := range loaded.Holds {
		write(line{kind: lock.Granted, record: &lock.Record{Kind: lock.Granted, Cause: lock.CauseRewrite, Hold: hold, By: hold.Owner, At: now}})
	}
	write(line{kind: synced, number: uint64(size)}) // as soon as the segment has its number
	write(line{kind: closing, number: uint64(loaded.Last)})
	return w.Flush()
}

// retired is the begin of the names of journals whose locks are in another log now.
const retired = "migrated-"

// Retire moves the journal aside, since its locks are in another log now, and returns its new path. No server starts on the state
// directory any more, until Import.
func (s *Stopped) Retire(now time.Time) (aside string, err error) {
	aside = s.dir.path(retired + now.UTC().Format("20060102T150405.000Z"))
	return aside, cmp.Or(os.Rename(s.dir.segments(), aside), syncDir(string(s.dir)))
}
