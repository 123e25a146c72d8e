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

// An empty directory of the host goes when it was first seen its rule's age ago. The time counts anew after any use of the name.
func TestAnOldDirectoryOfTheHostIsRemoved(t *testing.T) {
	s := newScene(t)
	s.mkdir("/deep")
	s.mkdir("/deep/dir")
	used := []string{"/locks/replaced", "/locks/used", "/locks/locked"}
	stays := []string{"/locks/marker", "/locks/full", "/locks/held", "/plain"}
	goes := []string{"/deep/dir/a_lock", "/locks/old"}
	for _, name := range slices.Concat(used, stays, goes) {
		s.mkdir(name)
		hourAgo := time.Now().Add(-time.Hour)
		s.check(os.Chtimes(s.real(name), hourAgo, hourAgo)) // the time on disk does not matter
	}
	s.write("/locks/full/f")
	s.record(lock.Hold{Name: "/locks/held"})
	want := func(want bool, names ...string) {
		t.Helper()
		s.mustSweep()
		for _, name := range names {
			s.wants(name, want)
		}
	}
	want(true, slices.Concat(used, stays, goes)...)
	s.clock.Advance(9 * time.Minute)
	s.replace("/locks/replaced")
	s.write("/locks/used/f")
	s.rmdir("/locks/locked")
	h := s.acquire("/locks/locked")
	want(true, slices.Concat(used, stays, goes)...)
	s.release(h)
	s.mkdir("/locks/locked")
	s.rmdir("/locks/used/f")
	s.clock.Advance(2 * time.Minute)
	want(false, goes...)
	want(true, slices.Concat(used, stays)...)
	s.clock.Advance(10 * time.Minute)
	want(false, used...)
	want(true, stays...)
	if left := s.leftovers(); len(left) != 0 {
		t.Errorf("left over: %q", left)
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
		s.clock.Advance(time.Hour)
		s.fs.aside = func(string) { use(s) }
		s.mustSweep()
		s.wants("/locks/a", true)
		if left := s.leftovers(); len(left) != 0 {
			t.Errorf("%s: left over: %q", what, left)
		}
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

func TestASweepReadsTheLockRootsUntilTheEndOfItsContext(t *testing.T) {
	s := newScene(t)
	s.rules.roots = []lock.Name{"/locks"}
	s.restart()
	for _, name := range []string{"/locks/a", "/b_lock"} {
		s.mkdir(name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Sweep(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.mustSweep()
	s.clock.Advance(time.Hour)
	s.mustSweep()
	s.wants("/locks/a", false)
	s.wants("/b_lock", true)
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
