package files

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestResolve(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/locks/grp")
	s.mkdir("/data/a/b")
	s.put("/file", "")
	s.link("locks", "/l")
	s.link("../data/a", "/locks/in")
	s.link("b/..", "/data/a/dots")
	s.link("l/in", "/chain")
	s.link(".", "/self")
	s.link("loop2", "/loop1")
	s.link("loop1", "/loop2")
	s.link("..", "/out")
	s.link("../../..", "/data/a/out")
	s.link("/etc", "/abs")
	s.link(s.root+"/locks", "/absin")
	s.link("nowhere", "/dangling")
	for _, c := range []struct {
		name, want string
		err        error
	}{
		{name: "/", want: "/"},
		{name: "", want: "/"},
		{name: "/phone_lock", want: "/phone_lock"},
		{name: "phone_lock", want: "/phone_lock"},
		{name: "//locks///x/", want: "/locks/x"},
		{name: "/locks/./x/../y", want: "/locks/y"},
		{name: "/../../x", want: "/x"},
		{name: "/locks/x", want: "/locks/x"},
		{name: "/l/x", want: "/locks/x"},
		{name: "/l", want: "/l"}, // the last element is not followed
		{name: "/l/in", want: "/locks/in"},
		{name: "/l/in/x", want: "/data/a/x"},
		{name: "/chain/x", want: "/data/a/x"},
		{name: "/chain/b/x", want: "/data/a/b/x"},
		{name: "/data/a/dots/x", want: "/data/a/x"},
		{name: "/self/self/locks/x", want: "/locks/x"},
		{name: "/none/x", want: "/none/x"},
		{name: "/l/none/x/y", want: "/locks/none/x/y"},
		{name: "/dangling/x", want: "/nowhere/x"},
		{name: "/file/x", want: "/file/x"},
		{name: "/locks/\xff\xfe", want: "/locks/\xff\xfe"},
		{name: "/l/\xff", want: "/locks/\xff"},
		{name: "/loop1/x", err: unix.ELOOP},
		{name: "/out/x", err: ErrEscapes},
		{name: "/data/a/out/x", err: ErrEscapes},
		{name: "/abs/x", err: ErrEscapes},
		{name: "/absin/x", err: ErrEscapes},
		{name: "/a\x00b", err: ErrName},
		{name: "/" + strings.Repeat("n", 300) + "/x", err: ErrName},
	} {
		got, err := s.Resolve(c.name)
		if c.err != nil {
			wantIs(t, err, c.err)
			s.wantPath(err, filepath.Clean(c.name))
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("Resolve(%q) is %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

// Resolve follows at most 8 links, in a chain or in one path.
func TestResolveFollowsEightLinks(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/l0")
	for i := range maxLinks + 1 {
		s.link(fmt.Sprint("l", i), fmt.Sprint("/l", i+1))
	}
	for links, want := range map[int]error{1: nil, maxLinks: nil, maxLinks + 1: unix.ELOOP} {
		resolved, err := s.Resolve(fmt.Sprintf("/l%d/f", links))
		if !errors.Is(err, want) || want == nil && resolved != "/l0/f" {
			t.Errorf("%d links: %q, %v", links, resolved, err)
		}
	}
}

// On a kernel without openat2 every name leads to the same file, and no name leads out of the tree.
func TestNamesWithoutOpenat2(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a/b")
	s.put("/a/b/f", "content")
	s.link("a/b", "/l")
	s.link("..", "/a/up")
	s.link("../..", "/a/out")
	for name, want := range map[string]bool{"/free": true, "/a/free": true, "/a/b/f": false, "/l": false, "/l/free": false, "/none/free": false, "/a/b/f/free": false} {
		if got := s.IsFree(name); got != want {
			t.Errorf("IsFree(%s) is %v", name, got)
		}
	}
	for _, without := range []bool{false, true} {
		s.beforeCall = func(call string) error {
			if without && call == "openat2" {
				return unix.ENOSYS
			}
			return nil
		}
		for name, want := range map[string]error{
			"/a/b/f": nil, "/l/f": nil, "/a/up/a/b/f": nil, "/a/out/f": ErrEscapes, "/none/f": fs.ErrNotExist, "/a/b/f/x": unix.ENOTDIR,
		} {
			if _, err := s.Lstat(name); !errors.Is(err, want) {
				t.Errorf("without openat2 %v: Lstat(%s): %v, want %v", without, name, err, want)
			}
		}
		for name, want := range map[string]error{
			"/": nil, "/a/b": nil, "/l": unix.ENOTDIR, "/l/b": unix.ELOOP, "/a/up/a": unix.ELOOP, "/none": fs.ErrNotExist, "/a/b/f": unix.ENOTDIR,
		} {
			d, err := s.OpenDirectory(name)
			if err == nil {
				err = d.Close()
			}
			if !errors.Is(err, want) && !(errors.Is(err, unix.ELOOP) && want == unix.ENOTDIR) {
				t.Errorf("without openat2 %v: OpenDirectory(%s): %v, want %v", without, name, err, want)
			}
		}
	}
}
