package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// played is a state directory with two segments that matter, and the lines of the last one.
func played(t *testing.T) (s *scene, path string, lines []string) {
	s = newScene(t)
	l := s.mustOpen()
	a := s.acquire(l, "/a_lock")
	s.acquire(l, "/b_lock")
	s.mustTurn(l)
	s.release(l, a)
	s.acquire(l, "/c_lock")
	s.acquire(l, "/d_lock")
	s.crash(l)
	path = s.path()
	return s, path, s.lines(path)
}

// Whatever a kill leaves of the last segment, a start finds the records before it. A whole line with a fault is damage, also as the last line: a tear
// leaves zeros.
func TestATornLineIsDroppedAndAFaultyLineIsDamage(t *testing.T) {
	s, path, lines := played(t)
	whole := strings.Join(lines, "")
	standing, number := "/a_lock /b_lock", 1 // after the lines before at, and the number of the next one
	for at := range len(whole) {
		if at > 0 && whole[at-1] == '\n' {
			switch words := strings.Fields(lines[number-1]); words[0] {
			case "grant":
				standing += " " + words[1]
			case "end":
				standing = strings.TrimSpace(strings.ReplaceAll(" "+standing+" ", " "+words[1]+" ", " "))
			}
			number++
		}
		s.write(path, whole[:at]+[]string{"", "\x00\x00\x00"}[at%2])
		if found, err := s.read(); err != nil || names(found.loaded()) != standing {
			t.Fatalf("cut at %d: held are %v, want %s; %v", at, found, standing, err)
		}
		b := []byte(whole)
		b[at] ^= 1
		s.write(path, string(b))
		want := fmt.Sprintf("%s:%d: damaged", path, number)
		if _, err := s.read(); at < len(whole)-1 && (err == nil || !strings.Contains(err.Error(), want)) { // without the last newline a part is missing
			t.Fatalf("a bit is wrong at %d: %v, want %s", at, err, want)
		}
	}
	s.write(path, whole)
	if l := s.mustOpen(); s.held(l) != "/b_lock /c_lock /d_lock" {
		t.Errorf("held %s", s.held(l))
	}
}

// A hole is damage only if a later mark proves that the bytes were synced. Otherwise a later page reached the disk first, also without a
// reboot: a disk that was removed lost the other page.
func TestAHoleBeforeSyncedLinesIsDamage(t *testing.T) {
	for _, durable := range []bool{true, false} {
		s := newScene(t)
		s.options = func(o *Options) { o.Durable = durable }
		l := s.mustOpen()
		for _, name := range []lock.Name{"/a_lock", "/b_lock", "/c_lock", "/d_lock", "/e_lock"} {
			s.acquire(l, name)
		}
		s.crash(l)
		text := strings.Join(s.lines(s.path()), "")
		at := strings.Index(text, "/b_lock")
		s.write(s.path(), text[:at]+strings.Repeat("\x00", 40)+text[at+40:])
		l, err := s.open()
		if durable {
			if err == nil || !strings.Contains(err.Error(), "damaged") {
				t.Error(err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer s.crash(l)
		if s.held(l) != "/a_lock" || l.loaded.Last < 5 {
			t.Errorf("held %s, last token %d", s.held(l), l.loaded.Last)
		}
	}
}

func TestOpenRefusesAMissingOrCutSegment(t *testing.T) {
	for _, length := range []int64{-1, 0, 400} { // -1: it is missing
		s, _, _ := played(t)
		first := stateDir(s.state).segment(1)
		err := os.Truncate(first, length)
		if length < 0 {
			err = os.Remove(first)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.open(); err == nil || !strings.Contains(err.Error(), first) {
			t.Errorf("%d bytes: %v", length, err)
		}
	}
	s := newScene(t)
	s.crash(s.mustOpen())
	s.write(s.path(), "")
	if _, err := s.open(); err == nil || !strings.Contains(err.Error(), ":1: damaged") {
		t.Errorf("the only one is empty: %v", err)
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
