package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// played is a state directory with two segments that matter, and the lines of the last one.
func played(t *testing.T) (s *scene, path string, lines []string) {
	s = newScene(t)
	l := s.mustOpen()
	a := s.acquire(l, "/a_lock")
	s.acquire(l, "/b_lock")
	if err := l.turn(); err != nil {
		t.Fatal(err)
	}
	s.release(l, a)
	s.acquire(l, "/c_lock")
	s.acquire(l, "/d_lock")
	s.crash(l)
	path = s.path()
	return s, path, s.lines(path)
}

// turn begins a new segment, and sweeps.
func (l *Log) turn() error { return errors.Join(l.keep(true), l.Sweep(context.Background())) }

// standing returns the names that stand after the lines of the last segment of played.
func standing(lines []string) string {
	all := []string{"/a_lock", "/b_lock"}
	for _, text := range lines {
		switch words := strings.Fields(text); words[0] {
		case "grant":
			all = append(all, words[1])
		case "end":
			all = slices.DeleteFunc(all, func(s string) bool { return s == words[1] })
		}
	}
	return strings.Join(all, " ")
}

// Whatever part of the written bytes a kill leaves, a start finds the records before it, goes on, and the next start agrees.
func TestEveryPrefixIsAJournal(t *testing.T) {
	s, path, lines := played(t)
	whole := strings.Join(lines, "")
	state := s.state
	s.options = func(o *Options) { o.wrap = func(f file) file { return unsynced{f} } }
	for end := 0; end <= len(whole); end++ {
		want := standing(slices.Collect(strings.Lines(whole[:strings.LastIndex(whole[:end], "\n")+1])))
		s.write(path, whole[:end]+[]string{"", "\x00\x00\x00"}[end%2])
		found, err := s.read()
		if err != nil {
			t.Fatalf("%d bytes: %v", end, err)
		}
		if got := names(found.loaded()); got != want {
			t.Fatalf("%d bytes: held are %s, want %s", end, got, want)
		}
		if end%100 > 0 {
			continue
		}
		s.state = filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(s.state, os.DirFS(state)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			l := s.mustOpen()
			if got := names(l.loaded); got != want {
				t.Fatalf("%d bytes: held are %s, want %s", end, got, want)
			}
			s.crash(l)
		}
		s.state = state
	}
}

func (s *scene) read() (*content, error) {
	return stateDir(s.state).read(s.clock.Now(), s.clock.boot)
}

// A whole line with a fault is damage, also as the last line: a tear leaves zeros.
func TestDamageIsReportedWithFileAndLine(t *testing.T) {
	s, path, lines := played(t)
	whole := strings.Join(lines, "")
	for at := range len(whole) - 1 { // without the last newline a part of the last line is missing
		b := []byte(whole)
		b[at] ^= 1
		s.write(path, string(b))
		_, err := s.read()
		if want := fmt.Sprintf("%s:%d: damaged", path, 1+strings.Count(whole[:at], "\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("a bit is wrong at %d: %v, want %s", at, err, want)
		}
	}
	s.write(path, whole)
	s.mustOpen()
}

// A hole is damage only if a later mark proves that the bytes were synced. Otherwise a later page reached the disk first, also without a
// reboot: a disk that was removed lost the other page.
func TestAHoleBeforeSyncedLinesIsDamage(t *testing.T) {
	for _, c := range []struct {
		durable, reboot bool
		want            string
	}{{true, true, "damaged"}, {true, false, "damaged"}, {false, true, ""}, {false, false, ""}} {
		s := newScene(t)
		s.options = func(o *Options) { o.Durable = c.durable }
		l := s.mustOpen()
		for _, name := range []lock.Name{"/a_lock", "/b_lock", "/c_lock", "/d_lock", "/e_lock"} {
			s.acquire(l, name)
		}
		s.crash(l)
		path := s.path()
		if c.reboot {
			s.clock.reboot(time.Minute)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(b, []byte("/b_lock"))
		clear(b[at : at+40])
		s.write(path, string(b))
		found, err := s.read()
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("durable, reboot %v: %v", c.reboot, err)
			}
			continue
		}
		if err != nil || len(found.holds) != 1 || !found.torn {
			t.Fatalf("not durable, reboot %v: %+v, %v", c.reboot, found, err)
		}
		if l = s.mustOpen(); s.held(l) != "/a_lock" || l.loaded.Last < 5 {
			t.Errorf("not durable, reboot %v: held %s, last token %d", c.reboot, s.held(l), l.loaded.Last)
		}
	}
}

func TestOpenRefusesAMissingOrEmptySegment(t *testing.T) {
	for name, spoil := range map[string]func(s *scene, path string) error{
		"missing": func(s *scene, path string) error { return os.Remove(stateDir(s.state).segment(1)) },
		"damaged": func(s *scene, path string) error { return os.Truncate(stateDir(s.state).segment(1), 0) },
		"cut":     func(s *scene, path string) error { return os.Truncate(stateDir(s.state).segment(1), 400) },
	} {
		s, path, _ := played(t)
		if err := spoil(s, path); err != nil {
			t.Fatal(err)
		}
		if _, err := s.open(); err == nil || !strings.Contains(err.Error(), stateDir(s.state).segment(1)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := newScene(t)
	s.crash(s.mustOpen())
	s.write(s.path(), "")
	if _, err := s.open(); err == nil || !strings.Contains(err.Error(), ":1: damaged") {
		t.Errorf("empty: %v", err)
	}
}

// A start with no locks would be worse than none.
func TestAJournalOfAnotherVersionIsRefused(t *testing.T) {
	s := newScene(t)
	s.crash(s.mustOpen())
	later := mark{kind: segmentLine, header: header{Number: 1, Version: version + 1}}
	s.write(s.path(), string(later.appendTo(nil))+"\n")
	if _, err := s.open(); err == nil || !strings.HasSuffix(err.Error(), "00000001.log:1: version 3 of the format; this program reads version 2") {
		t.Error(err)
	}
	s.write(filepath.Join(stateDir(s.state).segments(), "00000001.jsonl"), "")
	_, err := s.open()
	_, _, reserving := ReserveDir(s.state, s.clock, "")
	for _, err := range []error{err, reserving, stateDir(s.state).readHistory("", nil)} {
		if err == nil || !strings.HasPrefix(err.Error(), "an earlier build of ftplockd wrote ") {
			t.Error(err)
		}
	}
}
