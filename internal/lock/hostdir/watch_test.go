package hostdir

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// watch runs a Watch in a bubble of synctest, where a second takes no time, and returns what it yields. stop ends it and the store.
func (s *scene) watch(store *Store) (events chan string, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	events = make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range store.Watch(ctx) {
			events <- string(event.Record.Name) + " " + string(event.Cause)
		}
	}()
	synctest.Wait()
	return events, func() {
		cancel()
		<-done
		s.stop()
	}
}

func want(t *testing.T, events chan string, all ...string) {
	t.Helper()
	synctest.Wait()
	for _, one := range all {
		select {
		case got := <-events:
			if got != one {
				t.Errorf("got %q, want %q", got, one)
			}
		default:
			t.Errorf("%q was not noticed", one)
		}
	}
	if len(events) > 0 {
		t.Errorf("noticed too: %q", <-events)
	}
}

func TestTheEndOfAHeldLockIsNoticedWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.mkdir("/other")
		store := s.mustOpen()
		events, stop := s.watch(store)
		for _, name := range []lock.Name{"/a_lock", "/b_lock", "/c_lock"} {
			s.Acquire(store, name, "ada")
		}
		s.rmdir("/a_lock")
		if err := os.Rename(s.tree.real("/b_lock"), s.tree.real("/other/data")); err != nil {
			t.Fatal(err)
		}
		s.replace("/c_lock")
		time.Sleep(time.Second)
		want(t, events, "/a_lock host-removed", "/b_lock host-removed", "/c_lock host-removed", "/c_lock host-made")
		s.rmdir("/c_lock")
		time.Sleep(time.Second)
		want(t, events, "/c_lock host-removed")
		stop()
	})
}

func TestDirectoriesMadeOnTheHostAreNoticedWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		store := s.mustOpen()
		events, stop := s.watch(store)
		s.mkdir("/deep")
		s.mkdir("/deep/er")
		s.mkdir("/deep/er/a_lock")
		s.mkdir("/data")
		s.mkdir("/full_lock")
		s.write("/full_lock/file")
		s.write("/file_lock")
		time.Sleep(59 * time.Second)
		want(t, events)
		time.Sleep(2 * time.Second)
		want(t, events, "/deep/er/a_lock host-made")
		stop()
	})
}

// With many locks a turn takes longer, a minute at most, and each is looked at once in it.
func TestManyLocksAreLookedAtInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		store := s.mustOpen()
		const n = 2*looksAtOnce + 100
		for i := range n {
			s.Acquire(store, lock.Name(fmt.Sprintf("/%04d_lock", i)), "ada")
		}
		looks := 0
		s.tree.before = func(op, _ string) error {
			if op == "lstat" {
				looks++
			}
			return nil
		}
		turn := new(turn)
		for i, want := range []int{looksAtOnce, 2 * looksAtOnce, n, n + looksAtOnce} {
			if store.look(t.Context(), turn); looks != want {
				t.Errorf("after round %d: %d looks, want %d", i+1, looks, want)
			}
		}
		s.tree.before = nil
		s.stop()
	})
}

// One lock lies below a mount that hangs, and so do others that nobody holds. What the host does elsewhere is noticed as ever.
func TestAMountThatHangsHoldsUpNoOtherLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.mkdir("/hung")
		s.mkdir("/hung/dir")
		var hangs atomic.Bool
		answer := make(chan struct{})
		s.tree.before = func(_, name string) error {
			if hangs.Load() && strings.HasPrefix(name, "/hung") {
				<-answer
			}
			return nil
		}
		store := s.mustOpen()
		events, stop := s.watch(store)
		for _, name := range []lock.Name{"/a_lock", "/b_lock", "/c_lock", "/hung/a_lock", "/hung/b_lock", "/z_lock"} {
			s.Acquire(store, name, "ada")
		}
		hangs.Store(true)
		for _, name := range []string{"/z_lock", "/c_lock", "/b_lock", "/a_lock"} {
			s.rmdir(name)
			time.Sleep(3 * time.Second) // some looks wait for those that hang, the first time
			want(t, events, name+" host-removed")
			time.Sleep(time.Minute)
		}
		close(answer)
		stop()
	})
}

func TestALookDuringAReleaseTakesItForNoDeedOfTheHost(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	store.inner = releasing{store.inner, func() error {
		s.hasDirectory("/a_lock", false)
		store.check(t.Context(), "/a_lock") // the next one looks again
		return nil
	}}
	s.Release(store, "/a_lock", s.Acquire(store, "/a_lock", "ada"))
}

func TestAWalkIsBoundedAndTheNextGoesOn(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	for i := range 5 {
		s.mkdir(fmt.Sprintf("/%d", i))
		for j := range 5 {
			s.mkdir(fmt.Sprintf("/%d/%d_lock", i, j))
		}
	}
	found, rounds := 0, 0
	for ; found < 25 && rounds < 20; rounds++ {
		if err := store.walk(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		now := len(s.Records(store))
		if now-found > 15 {
			t.Errorf("%d found in one round", now-found)
		}
		found = now
	}
	if found != 25 || rounds < 2 {
		t.Errorf("%d found in %d rounds", found, rounds)
	}
}

func TestAProbeNoticesWhatTheHostMade(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	s.mkdir("/data")
	s.mkdir("/data/b_lock")
	if token, err := s.Commit(store, "/data", 0); err != nil || token == 0 {
		t.Errorf("of what is no lock: %v", err)
	}
	_, err := s.Commit(store, "/data/b_lock", 0)
	s.Conflict(err, lock.HostAccount)
}

// What Look returns is what Watch yields. It ends a hold whose directory is missing or another one, in the directory where it
// was seen, and nothing else.
func TestALookEndsAHoldThatTheHostEnded(t *testing.T) {
	for name, c := range map[string]struct {
		host    func(s *scene)
		changed string // "": nothing
	}{
		"nothing":           {func(*scene) {}, ""},
		"a missing one":     {func(s *scene) { s.rmdir("/dir/a_lock") }, "/dir/a_lock host-removed"},
		"another directory": {func(s *scene) { s.rmdir("/dir/a_lock"); s.mkdir("/dir/other"); s.mkdir("/dir/a_lock") }, "/dir/a_lock host-made"},
		"another parent": {func(s *scene) {
			if err := os.Rename(s.tree.real("/dir"), s.tree.real("/unmounted")); err != nil {
				s.Fatal(err)
			}
			s.mkdir("/dir")
		}, ""},
		"no parent": {func(s *scene) {
			if err := os.Rename(s.tree.real("/dir"), s.tree.real("/unmounted")); err != nil {
				s.Fatal(err)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.mkdir("/dir")
			store := s.mustOpen()
			s.Acquire(store, "/dir/a_lock", "ada")
			c.host(s)
			for range 2 { // the second one changes nothing
				event, changed := store.Look(t.Context(), "/dir/a_lock")
				got := ""
				if changed {
					got = string(event.Record.Name) + " " + string(event.Cause)
				}
				if got != c.changed || changed && event.Record.Revision == 0 {
					t.Errorf("%q at %d, want %q", got, event.Record.Revision, c.changed)
				}
				c.changed = ""
			}
			store.Close()
		})
	}
}

func TestALookWaitsNeitherForAMountNorForAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		store := s.mustOpen()
		s.Acquire(store, "/a_lock", "ada")
		answer := make(chan struct{})
		s.tree.before = func(string, string) error {
			<-answer
			return nil
		}
		began := time.Now()
		for range 10 { // the first one hangs, and has the name
			if _, changed := store.Look(t.Context(), "/a_lock"); changed {
				t.Error("something changed")
			}
		}
		if took := time.Since(began); took != lookTimeout {
			t.Errorf("they took %v", took)
		}
		close(answer)
		store.Close()
	})
}
