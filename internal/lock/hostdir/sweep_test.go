package hostdir_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestAnOldDirectoryOfTheHostIsRemoved(t *testing.T) {
	s := newScene(t)
	s.mkdir("/deep")
	s.mkdir("/deep/dir")
	all := []string{"/deep/dir/a_lock", "/locks/old", "/locks/marker", "/locks/full", "/locks/held", "/plain"}
	for _, name := range all {
		s.mkdir(name)
		s.age(name, time.Hour) // the time on disk does not matter: its age counts from the first sight
	}
	s.write("/locks/full/f")
	s.record(lock.Hold{Name: "/locks/held"})
	s.mustSweep()
	s.clock.sleep(9 * time.Minute)
	s.mkdir("/locks/young")
	s.mustSweep()
	for _, name := range all {
		s.wants(name, true)
	}
	s.clock.sleep(time.Minute)
	s.mustSweep()
	for _, name := range all {
		s.wants(name, name != "/deep/dir/a_lock" && name != "/locks/old")
	}
	s.wants("/locks/young", true)
	if left := s.leftovers(); len(left) != 0 {
		t.Errorf("left over: %q", left)
	}
}

func TestTheAgeOfADirectoryOfTheHostStartsAnew(t *testing.T) {
	s := newScene(t)
	s.mkdir("/locks/replaced")
	s.mkdir("/locks/used")
	s.mkdir("/locks/locked")
	s.mustSweep()
	s.clock.sleep(9 * time.Minute)
	s.replace("/locks/replaced")
	s.write("/locks/used/f")
	s.rmdir("/locks/locked")
	h := s.acquire("/locks/locked")
	s.mustSweep()
	s.release(h)
	s.mkdir("/locks/locked")
	s.check(os.Remove(s.real("/locks/used/f")))
	s.clock.sleep(2 * time.Minute)
	s.mustSweep()
	for _, name := range []string{"/locks/replaced", "/locks/used", "/locks/locked"} {
		s.wants(name, true)
	}
	s.clock.sleep(10 * time.Minute)
	s.mustSweep()
	for _, name := range []string{"/locks/replaced", "/locks/used", "/locks/locked"} {
		s.wants(name, false)
	}
}

// A program on the host uses or replaces the directory right before the move.
func TestADirectoryThatTheHostUsesIsMovedBack(t *testing.T) {
	for what, use := range map[string]func(s *scene){
		"a file in it": func(s *scene) { s.write("/locks/a/f") },
		"another one":  func(s *scene) { s.replace("/locks/a") },
	} {
		s := newScene(t)
		s.mkdir("/locks/a")
		s.mustSweep()
		s.clock.sleep(time.Hour)
		s.fs.aside = func(string) { use(s) }
		s.mustSweep()
		s.wants("/locks/a", true)
		if left := s.leftovers(); len(left) != 0 {
			t.Errorf("%s: left over: %q", what, left)
		}
	}
}

// A marked directory without a hold is one that a crash left, whatever its age: Held includes grants under way.
func TestASweepRemovesDirectoriesThatACrashLeft(t *testing.T) {
	s := newScene(t)
	for _, name := range []lock.Name{"/locks/empty", "/locks/full", "/locks/held"} {
		_, err := s.Make(t.Context(), name)
		s.check(err)
	}
	s.write("/locks/full/f")
	s.record(lock.Hold{Name: "/locks/held"})
	s.restart()
	s.mustSweep()
	s.wants("/locks/empty", false)
	s.wants("/locks/full", false)
	s.wants("/locks/held", true)
	if left := s.leftovers(); len(left) != 1 {
		t.Errorf("left over: %q", left)
	}
}

func TestASweepKeepsADirectoryWhoseLockIsGrantedMeanwhile(t *testing.T) {
	s := newScene(t)
	_, err := s.Make(t.Context(), "/locks/a")
	s.check(err)
	reads := 0
	s.fs.open = func(name string) error {
		if reads++; name == "/locks" && reads == 3 { // after / and /locks
			s.record(lock.Hold{Name: "/locks/a"})
		}
		return nil
	}
	s.mustSweep()
	if !s.isHeld("/locks/a") {
		t.Fatal("the directory was not opened for the removal")
	}
	s.wants("/locks/a", true)
}

func TestASweepReadsTheLockRootsOnly(t *testing.T) {
	s := newScene(t)
	s.rules.roots = []lock.Name{"/locks"}
	s.restart()
	for _, name := range []string{"/locks/a", "/b_lock"} {
		s.mkdir(name)
	}
	s.mustSweep()
	s.clock.sleep(time.Hour)
	s.mustSweep()
	s.wants("/locks/a", false)
	s.wants("/b_lock", true)
}

func TestASweepEndsWithItsContext(t *testing.T) {
	s := newScene(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Sweep(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// fill makes n names in a directory.
func (s *scene) fill(dir string, n int) {
	s.Helper()
	s.write(dir + "/f")
	for i := range n - 1 {
		s.check(os.Link(s.real(dir+"/f"), s.real(fmt.Sprintf("%s/f%d", dir, i))))
	}
}

func TestASweepIsBoundedAndTheNextGoesOn(t *testing.T) {
	s := newScene(t)
	for i := range 3 {
		s.mkdir(fmt.Sprintf("/%d", i))
		s.mkdir(fmt.Sprintf("/%d/dir", i))
		s.fill(fmt.Sprintf("/%d", i), 5000)
	}
	opened := make(map[string]int)
	s.fs.open = func(name string) error {
		if len(name) == 2 {
			opened[name]++
		}
		return nil
	}
	s.mustSweep()
	if len(opened) != 2 {
		t.Errorf("read by one sweep: %v", opened)
	}
	s.mustSweep()
	if len(opened) != 3 {
		t.Errorf("read by two sweeps: %v", opened)
	}
}

func TestDirectoriesOfTheHostBelowADirectoryAreFound(t *testing.T) {
	s := newScene(t)
	for _, name := range []string{"/site", "/site/deep", "/site/deep/a_lock", "/site/b_lock", "/site/full_lock", "/site/plain", "/other_lock", "/site/none_lock"} {
		s.mkdir(name)
	}
	s.record(lock.Hold{Name: "/site/none_lock"}) // its lock has no directory
	s.write("/site/full_lock/f")
	s.write("/site/file_lock")
	s.acquire("/site/held_lock")
	_, err := s.Make(t.Context(), "/site/ours_lock")
	s.check(err)
	find := func(dir lock.Name, max int) (names []lock.Name) {
		t.Helper()
		all, err := s.HostDirectories(t.Context(), dir, max)
		s.check(err)
		for _, host := range all {
			names = append(names, host.Name)
		}
		slices.Sort(names)
		return names
	}
	if got := find("/site", 10); !slices.Equal(got, []lock.Name{"/site/b_lock", "/site/deep/a_lock", "/site/full_lock"}) {
		t.Errorf("found %q", got)
	}
	if got := find("/", 2); len(got) != 2 {
		t.Errorf("found %q", got)
	}
	if got := find("/site/b_lock", 2); !slices.Equal(got, []lock.Name{"/site/b_lock"}) {
		t.Errorf("at the directory itself: %q", got)
	}
	if got := find("/none", 2); len(got) != 0 {
		t.Errorf("found %q", got)
	}
	if got := find("/site/ours_lock", 2); len(got) != 0 { // a grant may be about to record it
		t.Errorf("found %q", got)
	}
	s.wants("/site/ours_lock", true)
	s.rules.roots = []lock.Name{"/locks", "/site/deep"}
	s.SetRules(s.rules)
	if got := find("/site", 10); !slices.Equal(got, []lock.Name{"/site/deep/a_lock"}) {
		t.Errorf("below the roots: %q", got)
	}
	if got := find("/site/deep", 10); len(got) != 1 {
		t.Errorf("at a root: %q", got)
	}
}

func TestASearchForDirectoriesOfTheHostReadsEverything(t *testing.T) {
	s := newScene(t)
	s.mkdir("/site")
	s.fill("/site", 10_001)
	s.mkdir("/site/dir")
	s.mkdir("/site/dir/a_lock")
	if all, err := s.HostDirectories(t.Context(), "/site", 1); len(all) != 1 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if all, err := s.HostDirectories(ctx, "/site", 1); len(all) != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v, %v", all, err)
	}
	s.fs.open = func(string) error { return fs.ErrPermission } // no directory can be read
	if all, err := s.HostDirectories(t.Context(), "/site", 1); len(all) != 0 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
}
