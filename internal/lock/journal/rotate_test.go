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

func TestRotationKeepsWhatStandsAndWhatMatters(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.MaxSize = 20_000 }
	store := s.mustOpen()
	kept := s.acquire(store, "/kept_lock", "ada")
	var last lock.Token
	for i := range 100 {
		name := lock.Name(fmt.Sprintf("/%d_lock", i))
		last = s.acquire(store, name, "ben")
		s.release(store, name, last)
	}
	old, err := stateDir(s.state).rotated()
	if err != nil || len(old) < 2 {
		t.Fatalf("%d rotations, %v", len(old), err)
	}
	if size := len(s.journal()); size > 50_000 {
		t.Errorf("the journal has %d bytes", size)
	}
	s.crash(store)
	store = s.mustOpen()
	if got := s.heldBy(store, "/kept_lock", "ada").Revision; got != kept {
		t.Errorf("revision %d, want %d", got, kept)
	}
	if len(s.records(store)) != 1 {
		t.Errorf("held: %v", s.records(store))
	}
	if got := s.acquire(store, "/new_lock", "ada"); got <= last {
		t.Errorf("token %d after %d", got, last)
	}
	if got := store.Generation(); got != 2 {
		t.Errorf("generation %d", got)
	}
}

func TestOldTombstonesAreForgotten(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	s.release(store, "/old_lock", s.acquire(store, "/old_lock", "ada"))
	s.clock.advance(graveLife + time.Second)
	s.release(store, "/young_lock", s.acquire(store, "/young_lock", "ada"))
	s.release(store, "/again_lock", s.acquire(store, "/again_lock", "ada"))
	s.acquire(store, "/again_lock", "ada")
	store.gate.Lock()
	err := store.rotateLocked()
	store.gate.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	var stones []string
	for l := range strings.Lines(s.journal()) {
		if strings.Contains(l, `"tombstone"`) {
			stones = append(stones, strings.Split(l, `"`)[7])
		}
	}
	if !slices.Equal(stones, []string{"/young_lock"}) {
		t.Errorf("tombstones of %q", stones)
	}
}

func TestTheLastTombstonesAreKept(t *testing.T) {
	var g graves
	for i := range graveMax + 10 {
		g.dig(grave{name: lock.Name(fmt.Sprint(i)), id: lock.DirectoryID{Inode: 1}})
	}
	got := g.fresh(lock.Instant{})
	if len(got) != graveMax || got[0].name != "10" || got[graveMax-1].name != lock.Name(fmt.Sprint(graveMax+9)) {
		t.Errorf("%d, from %s to %s", len(got), got[0].name, got[len(got)-1].name)
	}
}

func TestRotationUnderLoad(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.MaxSize, o.Durable, o.FS = 10_000, false, nil }
	store := s.mustOpen()
	const workers = 8
	tokens := make([]lock.Token, workers)
	errs := make([]error, workers)
	var running sync.WaitGroup
	for i := range workers {
		running.Go(func() {
			name := lock.Name(fmt.Sprintf("/%d_lock", i))
			for range 50 {
				if tokens[i], errs[i] = s.commit(store, name, 0, s.hold("ada")); errs[i] != nil {
					return
				}
				if _, errs[i] = s.commit(store, name, tokens[i]); errs[i] != nil {
					return
				}
			}
			tokens[i], errs[i] = s.commit(store, name, 0, s.hold("ada"))
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	s.crash(store)
	store = s.mustOpen()
	for i := range workers {
		if got := s.heldBy(store, lock.Name(fmt.Sprintf("/%d_lock", i)), "ada").Revision; got != tokens[i] {
			t.Errorf("revision %d, want %d", got, tokens[i])
		}
	}
}

func TestManyLocksDoNotMeanARotationEachTime(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.MaxSize, o.Durable, o.FS = 1000, false, nil }
	store := s.mustOpen()
	for i := range 200 {
		s.acquire(store, lock.Name(fmt.Sprintf("/%d_lock", i)), "ada")
	}
	if old, _ := stateDir(s.state).rotated(); len(old) > 10 {
		t.Errorf("%d rotations", len(old))
	}
}

func TestARotationThatFailsLosesNothing(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.MaxSize = 1000 }
	store := s.mustOpen()
	if err := os.RemoveAll(stateDir(s.state).history()); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		s.acquire(store, lock.Name(fmt.Sprintf("/%d_lock", i)), "ada")
	}
	s.crash(store)
	store = s.mustOpen()
	if got := len(s.records(store)); got != 10 {
		t.Errorf("%d are held, want 10", got)
	}
}

func TestHistory(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.MaxSize = 3000 }
	store := s.mustOpen()
	var want []string
	for i := range 10 {
		token := s.acquire(store, "/a_lock", "ada")
		s.clock.advance(time.Minute)
		change := lock.Change{Name: "/a_lock", If: token, Cause: lock.CauseBreak, By: lock.Owner{Account: "root"}, Note: fmt.Sprintf("no. %d", i)}
		if _, err := store.Commit(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		want = append(want, "acquire ada 0s ", fmt.Sprintf("break root 1m0s no. %d", i))
		s.release(store, "/b_lock", s.acquire(store, "/b_lock", "ben"))
		if i == 5 {
			store = s.restart(store)
		}
	}
	if old, _ := stateDir(s.state).rotated(); len(old) < 2 {
		t.Fatalf("%d rotations", len(old))
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
	f, err := os.OpenFile(stateDir(s.state).journal(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"event":"acquire","name":"/a_lock","tok`); err != nil { // just being written
		t.Fatal(err)
	}
	check()
	for range History(s.state, "/a_lock") {
		break
	}
	for _, err := range History(t.TempDir(), "/a_lock") {
		if err == nil {
			t.Error("a directory without a journal has a history")
		}
	}
}

func TestARotationThatIsCutShortDoublesNoHistory(t *testing.T) {
	s := newScene(t)
	count := func() (n int) {
		for _, err := range History(s.state, "/a_lock") {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	s.step = func(step string) {
		if step == "rotate linked" {
			if n := count(); n != 2 {
				t.Errorf("during the rotation %d entries, want 2", n)
			}
			panic(crashed{})
		}
	}
	store := s.mustOpen()
	s.release(store, "/a_lock", s.acquire(store, "/a_lock", "ada"))
	store.gate.Lock()
	untilCrash(func() { store.rotateLocked() })
	store.gate.Unlock()
	s.crash(store)
	s.step = nil
	store = s.mustOpen()
	if old, err := stateDir(s.state).rotated(); err != nil || len(old) != 0 {
		t.Errorf("the second name of the journal is still there: %v %v", old, err)
	}
	store.gate.Lock()
	err := store.rotateLocked()
	store.gate.Unlock()
	if n := count(); err != nil || n != 2 {
		t.Errorf("after a whole one %d entries, want 2; %v", n, err)
	}
}
