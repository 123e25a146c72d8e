package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// warm looks a directory up until it is kept open.
func (s *served) warm(dir string) *parent {
	s.t.Helper()
	for range 3 {
		if _, err := s.Resolve(dir + "/x"); err != nil {
			s.t.Fatal(err)
		}
	}
	s.parents.mu.Lock()
	defer s.parents.mu.Unlock()
	return s.parents.kept[dir]
}

// descriptors counts those of the process that lead to or below the tree's root, the root itself not counted.
func (s *served) descriptors() (n int) {
	s.t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range list {
		if target, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.HasPrefix(target, s.root+"/") {
			n++
		}
	}
	return n
}

func TestAKeptDirectoryIsWhatTheNameLeadsTo(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*served)
		err    error
		lands  string // where Mkdir of /a/b/x makes it, on the host
		is     string // what Resolve says of it
	}{
		{"nothing has happened", func(*served) {}, nil, "/a/b/x", "/a/b/x"},
		{"it was moved", func(s *served) { s.rename("/a/b", "/c") }, fs.ErrNotExist, "", "/a/b/x"},
		{"the one above was moved", func(s *served) { s.rename("/a", "/c") }, fs.ErrNotExist, "", "/a/b/x"},
		{"it was removed", func(s *served) { s.rmdir("/a/b") }, fs.ErrNotExist, "", "/a/b/x"},
		{"another has its name", func(s *served) { s.rename("/a/b", "/c"); s.mkdir("/a/b") }, nil, "/a/b/x", "/a/b/x"},
		{"another is above", func(s *served) { s.rename("/a", "/c"); s.mkdir("/a/b") }, nil, "/a/b/x", "/a/b/x"},
		{"it was made anew", func(s *served) { s.rmdir("/a/b"); s.mkdir("/a/b") }, nil, "/a/b/x", "/a/b/x"},
		{"a file has its name", func(s *served) { s.rmdir("/a/b"); s.put("/a/b", "") }, unix.ENOTDIR, "", "/a/b/x"},
		{"a link to itself", func(s *served) { s.rename("/a/b", "/a/c"); s.link("c", "/a/b") }, nil, "/a/c/x", "/a/c/x"},
		{"a link above to itself", func(s *served) { s.rename("/a", "/c"); s.link("c", "/a") }, nil, "/c/b/x", "/c/b/x"},
		{"a link out", func(s *served) { s.rmdir("/a/b"); s.link("/tmp", "/a/b") }, ErrEscapes, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, Options{})
			s.mkdir("/a/b")
			if s.warm("/a/b") == nil {
				t.Skip("nothing is kept open here")
			}
			c.change(s)
			if is, err := s.Resolve("/a/b/x"); is != c.is || (c.is == "") != (err != nil) {
				t.Errorf("it is %q, %v; want %q", is, err, c.is)
			}
			for range 3 { // the first looks again, another one may keep it again
				err := s.Mkdir("/a/b/x", 0o755)
				if !errors.Is(err, c.err) {
					t.Fatalf("%v, want %v", err, c.err)
				}
				if err == nil {
					s.rmdir(c.lands)
				}
			}
		})
	}
}

func (s *served) rename(from, to string) {
	s.t.Helper()
	if err := os.Rename(s.host(from), s.host(to)); err != nil {
		s.t.Fatal(err)
	}
}

// rmdir removes an empty directory, which is to be there.
func (s *served) rmdir(name string) {
	s.t.Helper()
	if err := unix.Rmdir(s.host(name)); err != nil {
		s.t.Fatal(name, err)
	}
}

func TestADirectoryIsKeptFromItsSecondUseOn(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a/b")
	if _, err := s.Lstat("/a/b/x"); !errors.Is(err, fs.ErrNotExist) || s.descriptors() != 0 {
		t.Errorf("%v, and %d are open after the first", err, s.descriptors())
	}
	if s.warm("/a/b") == nil || s.descriptors() != 2 {
		t.Errorf("%d are open", s.descriptors())
	}
	if err := s.Close(); err != nil || s.descriptors() != 0 {
		t.Errorf("%v, and %d are left open", err, s.descriptors())
	}
}

func TestADirectoryThatHasGoneIsClosed(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a/b")
	s.warm("/a/b")
	s.rmdir("/a/b")
	if _, err := s.Lstat("/a/b/x"); !errors.Is(err, fs.ErrNotExist) || s.descriptors() != 1 {
		t.Errorf("%v, and %d are open", err, s.descriptors())
	}
}

func TestNotMoreDirectoriesAreKeptThanAgreed(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/d1/e/f/g")
	if s.warm("/d1/e/f/g") != nil {
		t.Error("one is too deep")
	}
	for i := range parentsMax + 20 {
		s.mkdir(fmt.Sprintf("/d%d", i))
		s.warm(fmt.Sprintf("/d%d", i))
	}
	for i := range 2 * parentsMax { // one look each
		_, _ = s.Lstat(fmt.Sprintf("/d%d/e/x", i))
	}
	if n := s.descriptors(); n > parentsMax || n == 0 || len(s.parents.missed) > parentsMax {
		t.Errorf("%d are open, %d remembered", n, len(s.parents.missed))
	}
}

func TestADirectoryOnAnotherMountIsNotKept(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a/b")
	if err := unix.Mount("none", s.host("/a"), "tmpfs", 0, ""); err != nil {
		t.Skip("no mounts here:", err)
	}
	mounted := true
	defer func() {
		if mounted {
			unix.Unmount(s.host("/a"), unix.MNT_DETACH)
		}
	}()
	s.mkdir("/a/b")
	if s.warm("/a/b") != nil {
		t.Error("kept")
	}
	if err := unix.Unmount(s.host("/a"), 0); err != nil {
		t.Error("it cannot be unmounted:", err)
		return
	}
	mounted = false
}

// A directory that is renamed to and fro: what is made in it is found where it is, and nowhere else.
func TestKeptDirectoriesAreUsedAndChangedAtOnce(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a/b")
	s.mkdir("/c")
	s.put("/c/here", "")
	var working sync.WaitGroup
	stop := make(chan struct{})
	working.Go(func() {
		for {
			select {
			case <-stop:
				return
			default: // c has b's name for a moment
				errs := errors.Join(os.Rename(s.host("/a"), s.host("/d")), os.Rename(s.host("/c"), s.host("/a")),
					os.Rename(s.host("/a"), s.host("/c")), os.Rename(s.host("/d"), s.host("/a")))
				if errs != nil {
					t.Error(errs)
					return
				}
			}
		}
	})
	for i := range 4 {
		working.Go(func() {
			defer func() {
				if i == 0 {
					close(stop)
				}
			}()
			for range 300 {
				_, err := s.Lstat("/a/here")
				if err == nil {
					_, err = s.Lstat("/a/b")
				}
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
				if err := s.Mkdir(fmt.Sprintf("/a/b/%d", i), 0o755); err == nil {
					err = os.Remove(s.host(fmt.Sprintf("/a/b/%d", i)))
					if err != nil {
						_ = os.Remove(s.host(fmt.Sprintf("/d/b/%d", i)))
					}
				}
			}
		})
	}
	working.Wait()
	if err := s.Close(); err != nil || s.descriptors() != 0 {
		t.Errorf("%v, and %d are left open", err, s.descriptors())
	}
}
