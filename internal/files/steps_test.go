package files

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestVacant(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a/dir")
	s.put("/a/file", "")
	s.link("nowhere", "/a/link")
	for name, want := range map[string]bool{
		"/": false, "/a": false, "/new": true, "/a/new": true, "/a/dir": false, "/a/file": false, "/a/link": false,
		"/no/new": false, "/a/file/new": false, "/a/link/new": false,
		"/a/" + strings.Repeat("x", 256): false,
	} {
		for range 3 { // from the second on directories are kept open
			if got := s.Vacant(name); got != want {
				t.Errorf("%s: %v", name, got)
			}
		}
	}
}

func TestStepsThatAreOne(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a")
	inode, birth, generation, err := s.MkdirIdentity("/a/x", 0o755)
	i, b, g, ierr := s.Identity("/a/x")
	if errors.Join(err, ierr) != nil || inode != i || birth != b || generation != g {
		t.Fatalf("%d %d %d %v, and it is %d %d %d %v", inode, birth, generation, err, i, b, g, ierr)
	}
	if _, _, _, err := s.MkdirIdentity("/a/x", 0o755); !errors.Is(err, fs.ErrExist) {
		t.Error("made twice:", err)
	}
	for _, other := range []identity{
		{inode: inode + 1, birth: birth, generation: generation},
		{inode: inode, birth: birth + 1, generation: generation},
		{inode: inode, birth: birth, generation: generation + 1},
	} {
		if same, err := s.RmdirIdentity("/a/x", other.inode, other.birth, other.generation); same || err != nil {
			t.Errorf("%+v: %v %v", other, same, err)
		}
	}
	s.put("/a/x/f", "")
	if same, err := s.RmdirIdentity("/a/x", inode, birth, generation); !same || !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("not empty: %v %v", same, err)
	}
	if err := s.RemoveFile("/a/x/f"); err != nil {
		t.Fatal(err)
	}
	if same, err := s.RmdirIdentity("/a/x", inode, birth, generation); !same || err != nil {
		t.Errorf("%v %v", same, err)
	}
	for _, gone := range []string{"/a/x", "/no/x"} {
		if same, _ := s.RmdirIdentity(gone, inode, birth, generation); same {
			t.Errorf("%s is the same", gone)
		}
	}
}

func TestVacantIsWrongOnceAtMost(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a/b")
	s.warm("/a/b")
	s.rename("/a/b", "/c")
	s.Vacant("/a/b/x")
	if _, _, _, err := s.MkdirIdentity("/a/b/x", 0o755); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for range 3 {
		if s.Vacant("/a/b/x") {
			t.Error("vacant, without a parent")
		}
	}
	s.Close()
	if s.Vacant("/c/x") {
		t.Error("vacant, of a closed tree")
	}
}
