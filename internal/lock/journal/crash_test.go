package journal

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// process is a store that crashes, or loses its power.
type process struct {
	*scene
	store     *Store
	powerLoss bool
}

func (p *process) Start(step func(string)) lock.Store {
	p.step, p.store = step, nil // none if it does not get to its end
	p.store = p.mustOpen()
	return p.store
}

func (p *process) Stop(first bool) {
	switch {
	case p.store == nil:
	case first && p.powerLoss:
		p.powerFailure(p.store)
	default:
		p.crash(p.store)
	}
}

func (p *process) Check(lock.Store, *locktest.Told) {
	if p.Failed() {
		p.Logf("the journal:\n%s", p.journal())
	}
}

// The play includes several rotations.
func TestACrashAtAnyStep(t *testing.T) {
	for _, powerLoss := range []bool{false, true} {
		t.Run(fmt.Sprintf("power loss=%v", powerLoss), func(t *testing.T) {
			t.Parallel()
			var p *process
			steps := locktest.CrashAtEachStep(t, locktest.NewRunningClock(), powerLoss, func() locktest.Process {
				p = &process{scene: newScene(t), powerLoss: powerLoss}
				p.options = func(o *Options) { o.MaxSize = 2500 }
				p.wrap = func(f journalFile) journalFile { return unsyncedFile{f} }
				return p
			})
			if old := p.rotated(); steps < 50 || len(old) < 2 {
				t.Errorf("only %d steps, %d rotations", steps, len(old))
			}
		})
	}
}

// unsyncedFile makes syncs free: here they matter by their place only.
type unsyncedFile struct{ journalFile }

func (unsyncedFile) Sync() error { return nil }

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

// What a start reads may be in the system's memory only, after a write that failed: it goes into a new file, which is synced whole.
func TestAStartWritesAndSyncsANewFile(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	s.Acquire(store, "/a_lock", "ada")
	s.crash(store)
	before, err := os.Stat(stateDir(s.state).journal())
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	s.wrap = func(f journalFile) journalFile { return noted{f, &order} }
	s.step = func(step string) { order = append(order, step) }
	s.mustOpen()
	after, err := os.Stat(stateDir(s.state).journal())
	if err != nil || os.SameFile(before, after) {
		t.Errorf("it goes on in the same file: %v", err)
	}
	want := []string{"sync", "started", "sync", "rotate written", "rotate linked", "rotate synced", "rotate renewed"}
	if !slices.Equal(order, want) {
		t.Errorf("got  %q\nwant %q", order, want)
	}
	if text := s.journal(); !strings.Contains(text, `"event":"kept","name":"/a_lock"`) {
		t.Errorf("the new file:\n%s", text)
	}
}

// Who waits for a sync of the file before must not find it closed, and history is to have what was not synced yet.
func TestARotationSyncsTheFileBefore(t *testing.T) {
	s := newScene(t)
	var order []string
	s.wrap = func(f journalFile) journalFile { return noted{f, &order} }
	store := s.mustOpen()
	s.Release(store, "/a_lock", s.Acquire(store, "/a_lock", "ada"))
	order = nil
	store.log.step = func(step string) { order = append(order, "old") }
	if err := s.rotate(store); err != nil || strings.Join(order, " ") != "old sync sync" {
		t.Errorf("%q, %v", order, err)
	}
}

// noted notes the syncs of a journal.
type noted struct {
	journalFile
	calls *[]string
}

func (n noted) Sync() error {
	*n.calls = append(*n.calls, "sync")
	return n.journalFile.Sync()
}
