package journal

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestRotationUnderLoad(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.MaxSize = 10_000 }
	store := s.mustOpen()
	const workers = 8
	tokens := make([]lock.Token, workers)
	errs := make([]error, workers)
	var running sync.WaitGroup
	for i := range workers {
		running.Go(func() {
			name := lock.Name(fmt.Sprintf("/%d_lock", i))
			for range 50 {
				if tokens[i], errs[i] = s.Commit(store, name, 0, s.Hold("ada")); errs[i] != nil {
					return
				}
				if _, errs[i] = s.Commit(store, name, tokens[i]); errs[i] != nil {
					return
				}
			}
			tokens[i], errs[i] = s.Commit(store, name, 0, s.Hold("ada"))
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	s.crash(store)
	store = s.mustOpen()
	for i := range workers {
		if got := s.HeldBy(store, lock.Name(fmt.Sprintf("/%d_lock", i)), "ada").Revision; got != tokens[i] {
			t.Errorf("revision %d, want %d", got, tokens[i])
		}
	}
}

func TestManyLocksDoNotMeanARotationEachTime(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.MaxSize, o.Durable = 1000, false }
	store := s.mustOpen()
	for i := range 200 {
		s.Acquire(store, lock.Name(fmt.Sprintf("/%d_lock", i)), "ada")
	}
	if old := s.rotated(); len(old) > 10 {
		t.Errorf("%d rotations", len(old))
	}
}

func TestARotationThatFailsLosesNothing(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.MaxSize = 1000 }
	store := s.mustOpen()
	if err := os.RemoveAll(stateDir(s.state).archive()); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		s.Acquire(store, lock.Name(fmt.Sprintf("/%d_lock", i)), "ada")
	}
	s.crash(store)
	store = s.mustOpen()
	if got := len(s.Records(store)); got != 10 {
		t.Errorf("%d are held, want 10", got)
	}
}

func TestHistory(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.MaxSize = 3000 }
	store := s.mustOpen()
	var want []string
	for i := range 10 {
		token := s.Acquire(store, "/a_lock", "ada")
		s.clock.Advance(time.Minute)
		note := strings.Repeat("x", i*i*i*i*20) // up to two buffers
		change := lock.Change{Name: "/a_lock", If: token, Cause: lock.CauseBreak, By: lock.Owner{Account: "root"}, Note: note}
		if _, err := store.Commit(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		want = append(want, "acquire ada 0s ", "break root 1m0s "+note)
		s.Release(store, "/b_lock", s.Acquire(store, "/b_lock", "ben"))
		if i == 5 {
			store = s.restart(store)
		}
	}
	check := func() {
		t.Helper()
		var got []string
		var last lock.Token
		for entry, err := range History(s.state, "/a_lock") {
			if err != nil {
				t.Fatal(err)
			}
			if entry.Token <= last || entry.Name != "/a_lock" || entry.At.Wall.IsZero() {
				t.Errorf("got %+v after token %d", entry, last)
			}
			last = entry.Token
			got = append(got, fmt.Sprintf("%s %s %v %s", entry.Cause, entry.By.Account, entry.Held.Round(time.Second), entry.Note))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	check()
	text := s.journal() // what a line that is just being written leaves: a part of it, and zeros
	for _, tail := range []string{`{"event":"acquire","name":"/a_lock","tok`, `{"event":"acquire","name":"/a_lock","tok` + "\x00\x00\n", "\x00\x00\x00"} {
		s.setJournal(text + tail)
		check()
	}
	for range History(s.state, "/a_lock") {
		break
	}
	for _, err := range History(t.TempDir(), "/a_lock") {
		if err == nil {
			t.Error("a directory without a journal has a history")
		}
	}
	damaged := s.rotated()[0]
	b, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged, []byte(strings.Replace(string(b), `"ada"`, `"eve"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.causes("/a_lock"); got[len(got)-1] != "error" {
		t.Errorf("of a damaged file: %q", got)
	}
}

// History is to have what was not synced yet, such as a release.
func TestARotationSyncsTheFileBefore(t *testing.T) {
	s, store, f := faultyScene(t)
	s.Release(store, "/a_lock", s.Acquire(store, "/a_lock", "ada"))
	syncs := 0
	f.sync = func() error { syncs++; return nil }
	if err := s.rotate(store); err != nil || syncs != 2 {
		t.Errorf("%d syncs, want one of each file: %v", syncs, err)
	}
}

func TestAFileWithoutEventsIsNotKept(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	s.Acquire(store, "/a_lock", "ada")
	for range 5 {
		store = s.restart(store)
	}
	if old := s.rotated(); len(old) != 1 {
		t.Errorf("five starts left %q", old)
	}
}

// A server that runs on begins a file each day, so that those that are too old can go; as large as they may be is tried by integration.
func TestASweepRotatesEachDayAndRemovesWhatIsOld(t *testing.T) {
	const day = 24 * time.Hour
	s := newScene(t)
	s.options = func(o *Options) { o.HistoryAge = 90 * day }
	store := s.mustOpen()
	s.Release(store, "/a_lock", s.Acquire(store, "/a_lock", "ada"))
	var wrote time.Time
	for _, c := range []struct {
		passes  time.Duration
		files   int
		entries int
	}{{0, 0, 2}, {day + time.Minute, 1, 2}, {0, 1, 2}, {89 * day, 1, 2}, {2 * day, 0, 0}} {
		s.clock.Advance(c.passes)
		if err := store.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		old := s.rotated()
		if got := len(s.causes("/a_lock")); len(old) != c.files || got != c.entries {
			t.Errorf("%v later: %q with %d entries, want %d files, %d entries", c.passes, old, got, c.files, c.entries)
		}
		if len(old) > 0 && wrote.IsZero() { // the system's clock has not been advanced
			wrote = s.clock.Now().Wall
			if err := os.Chtimes(old[0], wrote, wrote); err != nil {
				t.Fatal(err)
			}
		}
	}
}
