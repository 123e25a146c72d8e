package journal

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// temporary is where a new journal is written. It is nothing until it is renamed.
func (d stateDir) temporary() string { return d.path("journal.new") }

// rotated returns the real paths of the files in history, oldest first.
func (d stateDir) rotated() ([]string, error) {
	entries, err := os.ReadDir(d.history())
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, entry := range entries {
		if entry.Type().IsRegular() && strings.HasSuffix(entry.Name(), ".jsonl") {
			paths = append(paths, filepath.Join(d.history(), entry.Name()))
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// create puts a new journal in the place of the old one: all of its lines, or none, whenever it is interrupted.
func (d stateDir) create(first *line, rest func(yield func(*line) bool)) (*os.File, error) {
	f, err := os.OpenFile(d.temporary(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	err = fill(f, first, rest)
	if err == nil {
		err = os.Rename(d.temporary(), d.journal())
	}
	if err != nil {
		f.Close()
		os.Remove(d.temporary())
		return nil, err
	}
	if err := syncDir(string(d)); err != nil {
		f.Close()
		return nil, fmt.Errorf("%w (%w)", ErrFailed, err)
	}
	return f, nil
}

func fill(f *os.File, first *line, rest func(yield func(*line) bool)) error {
	w := bufio.NewWriterSize(f, 64<<10)
	buffer := appendLine(nil, first)
	if _, err := w.Write(buffer); err != nil {
		return err
	}
	if rest != nil {
		for l := range rest {
			buffer = appendLine(buffer[:0], l)
			if _, err := w.Write(buffer); err != nil {
				return err
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

// rotateIfDue rotates the journal if it has grown too large. It waits for the changes under way, and new ones
// wait for it: what is in memory is what is in the journal then.
func (s *Store) rotateIfDue() {
	s.gate.RLock()
	due := !s.closed && s.log.end.Load() > s.rotateAt
	s.gate.RUnlock()
	if !due {
		return
	}
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.closed || s.log.end.Load() <= s.rotateAt {
		return // somebody was faster
	}
	if err := s.rotateLocked(); err != nil {
		s.rotateAt = s.log.end.Load() + s.o.MaxSize/4
		s.o.Log.Error("the journal could not be rotated; it goes on growing", "err", err)
	}
}

// rotateLocked gives the journal a second name in history, then puts a new one in its place that begins
// with what stands. At every moment journal.jsonl is complete.
func (s *Store) rotateLocked() error {
	if err := s.log.sync(s.log.end.Load()); err != nil {
		return err
	}
	old := filepath.Join(s.dir.history(), fmt.Sprintf("%020d.jsonl", s.log.next-1))
	if err := os.Link(s.dir.journal(), old); err != nil {
		return err
	}
	s.o.hooks.step("rotate linked")
	f, err := s.renew(old)
	if err != nil {
		return err
	}
	s.o.hooks.step("rotate renewed")
	_ = s.log.file.Truncate(s.log.end.Load()) // history reads as well with room behind its end
	s.log.file.Close()
	end, err := f.Seek(0, 2)
	if err != nil {
		f.Close()
		s.log.fail(err)
		return err
	}
	s.log = newLog(s.file(f, end), end, s.log.next-1, s.log.reserved, s.o.hooks.step)
	s.rotateAt = max(s.o.MaxSize, 2*end)
	return nil
}

func (s *Store) renew(old string) (*os.File, error) {
	if err := syncDir(s.dir.history()); err != nil {
		os.Remove(old)
		return nil, err
	}
	s.o.hooks.step("rotate synced")
	f, err := s.dir.create(s.firstLine(), s.keptLines)
	if err == nil {
		return f, nil
	}
	if errors.Is(err, ErrFailed) {
		s.log.fail(err) // which of the two files a crash would leave is unknown
	} else {
		os.Remove(old)
	}
	return nil, err
}

func (s *Store) firstLine() *line {
	return &line{
		Event: eventJournal, Version: version, At: s.o.Clock.Now(),
		Generation: s.generation, Token: s.log.next - 1, Reserved: s.log.reserved,
	}
}

// keptLines yields what the next file must know of this one.
func (s *Store) keptLines(yield func(*line) bool) {
	now := s.o.Clock.Now()
	standing := make(map[lock.Name]bool)
	for _, record := range s.standing() {
		standing[record.Name] = true
		if !yield(&line{Event: eventKept, Name: record.Name, Token: record.Revision, At: now, Holds: record.Holds}) {
			return
		}
	}
	for _, g := range s.graves.fresh(now) {
		if standing[g.name] {
			continue
		}
		if !yield(&line{Event: eventTombstone, Name: g.name, Token: s.log.next - 1, At: g.at, Directory: g.id}) {
			return
		}
	}
}
