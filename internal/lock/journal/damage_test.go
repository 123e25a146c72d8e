package journal

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestATornLastLineIsDropped(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	s.Acquire(store, "/a_lock", "ada")
	s.Acquire(store, "/b_lock", "ben")
	s.crash(store)
	whole := s.journal()
	lines := strings.SplitAfter(whole, "\n")
	last := lines[len(lines)-2] // b's
	for _, tail := range []string{
		last[:1], last[:len(last)/2], last[:len(last)-1], last[:30] + strings.Repeat("\x00", len(last)-30) + "\x00\x00",
		strings.Repeat("\x00", 30) + last[30:] + "\x00\x00", "garbage\n", strings.Repeat("garbage", 1000), "\x00\x00\x00", "\n",
		strings.Replace(last, `"token":`, `"token":1`, 1),
	} {
		s.setJournal(strings.TrimSuffix(whole, last) + tail)
		store := s.mustOpen()
		s.HeldBy(store, "/a_lock", "ada")
		s.HeldBy(store, "/b_lock", "")
		s.Acquire(store, "/c_lock", "eve")
		s.crash(store)
		store = s.mustOpen()
		s.HeldBy(store, "/c_lock", "eve")
		s.crash(store)
	}
}

func TestDamageFurtherUpIsNamed(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	s.Acquire(store, "/a_lock", "ada")
	s.Release(store, "/a_lock", s.Acquire(store, "/b_lock", "ben")-1)
	s.crash(store)
	whole := s.journal()
	for at := 0; at < len(whole); at += 5 {
		if strings.Count(whole[at:], "\n") == 1 { // the last line
			break
		}
		if strings.Count(whole[at:], "\n") == 2 && whole[at] == '\n' {
			continue // makes one of the last two lines, which is cut off like a torn one
		}
		b := []byte(whole)
		b[at] ^= 1
		s.setJournal(string(b))
		_, err := s.open()
		path := stateDir(s.state).journal()
		if number := 1 + strings.Count(whole[:at], "\n"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s:%d: damaged", path, number)) {
			t.Fatalf("a bit of line %d is wrong: %v", number, err)
		}
	}
}

// A hole is what a loss of power leaves of lines that were not synced. Where later lines prove that they were, it is damage.
func TestAHoleInTheJournal(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		s := newScene(t)
		store := s.mustOpen()
		s.Acquire(store, "/a_lock", "ada")
		s.Acquire(store, "/b_lock", "ben")
		s.Acquire(store, "/c_lock", "ben")
		if damaged {
			for range tokenBlock {
				if _, err := s.Commit(store, "/probe_lock", 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.Acquire(store, "/d_lock", "eve")
		s.crash(store)
		text := s.journal()
		at := strings.Index(text, "/b_lock")
		s.setJournal(text[:at-20] + strings.Repeat("\x00", 40) + text[at+20:])
		store, err := s.open()
		if damaged {
			if err == nil || !strings.Contains(err.Error(), "journal.jsonl:3: damaged") {
				t.Errorf("got %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		s.HeldBy(store, "/a_lock", "ada")
		s.HeldBy(store, "/c_lock", "")
		s.crash(store)
	}
}

func TestAMissingJournalIsNoFreshStart(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	s.Acquire(store, "/a_lock", "ada")
	s.restart(store).Close()
	if err := os.Remove(stateDir(s.state).journal()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.open(); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("got %v", err)
	}
	s.setJournal("")
	if _, err := s.open(); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("an empty journal: %v", err)
	}
}
