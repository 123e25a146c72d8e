package files

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// warmVacancy looks for a vacant name until no look is needed any more.
func (s *served) warmVacancy(name string) {
	s.t.Helper()
	for range 4 {
		if at, err := s.Find(name); err != nil || at.Err != nil || at.Info != nil || !at.Roofed {
			s.t.Fatalf("%s: %+v, %v", name, at, err)
		}
	}
	if dir, base := split(name); !s.parents.vacant(dir, base) {
		if s.parents.deaf {
			s.t.Skip("the system tells of no changes here")
		}
		s.t.Fatalf("%s is looked at each time", name)
	}
}

// found says what has the name.
func (s *served) found(name string) string {
	at, err := s.Find(name)
	switch {
	case err != nil:
		return err.Error()
	case at.Err != nil:
		return at.Err.Error()
	case at.Info != nil:
		return at.Info.Mode().Type().String() + " " + at.Name
	case !at.Roofed:
		return "no directory for " + at.Name
	}
	return "vacant " + at.Name
}

func TestAVacantNameIsKnownUntilSomethingHappensOnTheHost(t *testing.T) {
	for _, c := range []struct {
		name, at string
		change   func(*served)
		want     string
		known    bool // still, without a look
	}{
		{"nothing", "/a/b/x", func(*served) {}, "vacant /a/b/x", true},
		{"a file is made", "/a/b/x", func(s *served) { s.put("/a/b/x", "") }, "---------- /a/b/x", false},
		{"a directory is made", "/a/b/x", func(s *served) { s.mkdir("/a/b/x") }, "d--------- /a/b/x", false},
		{"a link is made", "/a/b/x", func(s *served) { s.link("nowhere", "/a/b/x") }, "L--------- /a/b/x", false},
		{"a hard link is made", "/a/b/x", func(s *served) { s.hardLink("/other", "/a/b/x") }, "---------- /a/b/x", false},
		{"a file is moved in", "/a/b/x", func(s *served) { s.rename("/other", "/a/b/x") }, "---------- /a/b/x", false},
		{"a directory is moved in", "/a/b/x", func(s *served) { s.rename("/dir", "/a/b/x") }, "d--------- /a/b/x", false},
		{"something else is made beside it", "/a/b/x", func(s *served) { s.put("/a/b/y", "") }, "vacant /a/b/x", false},
		{"something is made elsewhere", "/a/b/x", func(s *served) { s.put("/dir/x", "") }, "vacant /a/b/x", true},
		{"its directory is removed", "/a/b/x", func(s *served) { s.rmdir("/a/b") }, "no directory for /a/b/x", false},
		{"its directory is moved", "/a/b/x", func(s *served) { s.rename("/a/b", "/dir/b") }, "no directory for /a/b/x", false},
		{"its directory is replaced", "/a/b/x", func(s *served) { s.rename("/a/b", "/c"); s.mkdir("/a/b/x") }, "d--------- /a/b/x", false},
		{"its directory becomes a link's", "/a/b/x", func(s *served) { s.rename("/a/b", "/a/c"); s.link("c", "/a/b") }, "vacant /a/c/x", false},
		{"the one above is moved", "/a/b/x", func(s *served) { s.rename("/a", "/c") }, "no directory for /a/b/x", false},
		{"the one above becomes a link's", "/a/b/x", func(s *served) { s.rename("/a", "/c"); s.link("c", "/a") }, "vacant /c/b/x", false},
		{"another one has the place of the one above", "/a/b/x", func(s *served) { s.exchange("/a", "/dir") }, "no directory for /a/b/x", false},
		{"at the root: nothing", "/x", func(*served) {}, "vacant /x", true},
		{"at the root: a file", "/x", func(s *served) { s.put("/x", "") }, "---------- /x", false},
		{"more than the system keeps", "/a/b/x", func(s *served) {
			s.flood("/dir")
			s.put("/a/b/x", "")
		}, "---------- /a/b/x", false},
		{"a mount", "/a/b/x", func(s *served) {
			if err := unix.Mount("none", s.host("/a/b"), "tmpfs", 0, ""); err != nil {
				s.t.Skip("no mounts here:", err)
			}
			s.t.Cleanup(func() { unix.Unmount(s.host("/a/b"), unix.MNT_DETACH) })
			s.put("/a/b/x", "")
		}, "---------- /a/b/x", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, Options{})
			s.mkdir("/a/b")
			s.mkdir("/dir")
			s.put("/other", "")
			s.warmVacancy("/dir/y")
			s.warmVacancy(c.at)
			c.change(s)
			dir, base := split(c.at)
			if known := s.parents.vacant(dir, base); known != c.known {
				t.Errorf("known: %v", known)
			}
			for range 3 {
				if got := s.found(c.at); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			}
		})
	}
}

func (s *served) hardLink(from, to string) {
	s.t.Helper()
	if err := os.Link(s.host(from), s.host(to)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *served) exchange(a, b string) {
	s.t.Helper()
	if err := unix.Renameat2(unix.AT_FDCWD, s.host(a), unix.AT_FDCWD, s.host(b), unix.RENAME_EXCHANGE); err != nil {
		s.t.Fatal(err)
	}
}

// flood makes more changes in a directory than the system keeps notices.
func (s *served) flood(dir string) {
	s.t.Helper()
	limit, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	most := 0
	if err == nil {
		_, err = fmt.Sscan(strings.TrimSpace(string(limit)), &most)
	}
	if err != nil || most > 100_000 {
		s.t.Skip("too many notices are kept", most, err)
	}
	from, to := s.host(dir+"/0"), s.host(dir+"/1")
	s.put(dir+"/0", "")
	for range most/2 + 2 { // two notices each
		if err := unix.Rename(from, to); err != nil {
			s.t.Fatal(err)
		}
		from, to = to, from
	}
}

// What is heard between a look and its note may be about the very name.
func TestAVacancyIsNotNotedIfSomethingWasHeardMeanwhile(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a")
	s.warmVacancy("/a/warm")
	m := s.parents.mark("/a") // and x is vacant
	s.put("/a/x", "")
	s.parents.vacant("/a", "warm") // somebody hears of it
	s.parents.note(m, "x")
	if s.parents.vacant("/a", "x") {
		t.Error("it is taken for vacant")
	}
}

func TestADirectoryThatIsKnownUnderTwoNames(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a/b")
	s.warmVacancy("/a/b/x")
	s.rename("/a/b", "/c")
	s.warmVacancy("/c/x")
	s.rename("/c", "/a/b")
	if got := s.found("/c/x"); got != "no directory for /c/x" {
		t.Error(got)
	}
	s.put("/a/b/x", "")
	if got := s.found("/a/b/x"); got != "---------- /a/b/x" {
		t.Error(got)
	}
}

func TestADirectoryThatGetsAnotherNameDuringALook(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a/b")
	s.warmVacancy("/a/b/y")
	m := s.parents.mark("/a/b") // and x is vacant
	s.rename("/a/b", "/c")
	s.warm("/c")
	s.parents.mark("/c") // from now on it is watched under this name
	s.parents.note(m, "x")
	if len(m.dir.vacancies) > 0 {
		t.Errorf("nobody will hear of changes, but %v is noted", m.dir.vacancies)
	}
}

// The one above is opened anew, which takes over its watch, and closed, which ends it.
func TestADirectoryWhoseParentIsWatchedNoMore(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a/b")
	s.warm("/a/b")
	s.isSound("/a/b", true)
	s.parents.drop(s.parents.kept["/a"])
	s.warmVacancy("/a/x")
	s.parents.drop(s.parents.kept["/a"])
	s.rename("/a/b", "/a/c")
	if p := s.parents.use("/a/b"); p != nil {
		t.Error("it is taken to be where it was")
		p.done()
	}
}

// isSound checks whether a directory is used without a look.
func (s *served) isSound(name string, want bool) {
	s.t.Helper()
	p, _, sound := s.parents.takeSound(name)
	if p != nil {
		p.done()
	}
	if s.parents.deaf {
		s.t.Skip("the system tells of no changes here")
	}
	if sound != want {
		s.t.Errorf("%s is known to stand: %v, want %v", name, sound, want)
	}
}

func TestAKeptDirectoryIsLookedAtAgainOnlyAfterAChangeAbove(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*served)
		sound  bool
	}{
		{"nothing", func(*served) {}, true},
		{"in it a directory is made and removed", func(s *served) { s.mkdir("/a/b/x"); s.rmdir("/a/b/x") }, true},
		{"beside it a file is made", func(s *served) { s.put("/a/x", "") }, true},
		{"beside it a directory is made", func(s *served) { s.mkdir("/a/x") }, false},
		{"above it a directory is made", func(s *served) { s.mkdir("/x") }, false},
		{"it is moved", func(s *served) { s.rename("/a/b", "/c") }, false},
		{"the one above is moved", func(s *served) { s.rename("/a", "/c") }, false},
		{"it is removed", func(s *served) { s.rmdir("/a/b") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, Options{})
			s.mkdir("/a/b")
			s.warm("/a/b")
			s.isSound("/a/b", true)
			c.change(s)
			s.isSound("/a/b", c.sound)
		})
	}
}

func TestALookThatSomethingWasHeardDuringSettlesNothing(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a")
	s.mkdir("/c")
	s.warm("/a")
	s.warm("/c")
	s.mkdir("/new") // so that a look is needed
	p, m, sound := s.parents.takeSound("/a")
	defer p.done()
	if sound || m.dir == nil {
		t.Skip("the system tells of no changes here")
	}
	s.warm("/c")
	s.isSound("/c", true)
	s.rename("/a", "/b")
	s.isSound("/c", false) // somebody hears of it
	s.parents.settle(m)
	s.isSound("/a", false)
}

func TestADirectoryThatIsInUseWhenTheTreeIsClosed(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a")
	s.warmVacancy("/a/x")
	p := s.parents.use("/a")
	s.parents.close()
	p.done()
	if s.descriptors() != 0 {
		t.Error("it is left open")
	}
}

func TestNotAllVacanciesAreKept(t *testing.T) {
	s := serve(t, Options{})
	s.warmVacancy("/x")
	for i := range vacanciesMax + 10 {
		s.found(fmt.Sprint("/x", i))
	}
	if n := len(s.parents.top.vacancies); n > vacanciesMax {
		t.Errorf("%d are kept", n)
	}
}

// watches counts what the process has for being told of changes.
func watches(t *testing.T) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		switch target, _ := os.Readlink("/proc/self/fd/" + e.Name()); {
		case target == "anon_inode:inotify", strings.HasSuffix(target, "/mountinfo"):
			n++
		}
	}
	return n
}

func TestWhatTellsOfChangesIsClosed(t *testing.T) {
	before := watches(t)
	s := serve(t, Options{})
	s.mkdir("/a")
	s.warmVacancy("/a/x")
	if watches(t) == before {
		t.Error("nothing is watched")
	}
	s.rmdir("/a")
	s.found("/a/x") // it is dropped
	if n := len(s.parents.watched); n != 1 {
		t.Errorf("%d are watched, want the root alone", n)
	}
	if err := s.Close(); err != nil || watches(t) != before {
		t.Errorf("%v, %d are left", err, watches(t)-before)
	}
	if s.parents.vacant("/", "x") {
		t.Error("something is known of a closed tree")
	}
}

// Many names at once: whoever has made or removed something finds it so, whoever hears of it first.
func TestVacanciesAreRightForManyAtOnce(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a")
	s.warmVacancy("/a/x")
	var working sync.WaitGroup
	for i := range 4 {
		working.Go(func() {
			name := fmt.Sprint("/a/", i)
			for range 500 {
				if got := s.found(name); got != "vacant "+name {
					t.Errorf("%s is removed: %s", name, got)
					return
				}
				if err := os.WriteFile(s.host(name), nil, 0o600); err != nil {
					t.Error(err)
					return
				}
				if got := s.found(name); got != "---------- "+name {
					t.Errorf("%s is made: %s", name, got)
					return
				}
				if err := os.Remove(s.host(name)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
}
