package files

import (
	"errors"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFindIsResolveAndLstat(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/a/b/dir")
	s.put("/a/b/file", "x")
	s.put("/file", "x")
	s.link("a/b", "/link")
	s.link("/tmp", "/out")
	s.link("nowhere", "/a/b/dangling")
	for _, c := range []struct {
		name, resolved string
		roofed         bool
		kind           string // of what has the name
		looked         error
		err            error
	}{
		{"/", "/", true, "directory", nil, nil},
		{"/a", "/a", true, "directory", nil, nil},
		{"/new", "/new", true, "", nil, nil},
		{"/a/b/new", "/a/b/new", true, "", nil, nil},
		{"a/b/../b/file", "/a/b/file", true, "file", nil, nil},
		{"/a/b/dir", "/a/b/dir", true, "directory", nil, nil},
		{"/link", "/link", true, "link", nil, nil},
		{"/link/file", "/a/b/file", true, "file", nil, nil},
		{"/link/new", "/a/b/new", true, "", nil, nil},
		{"/a/b/dangling", "/a/b/dangling", true, "link", nil, nil},
		{"/no/x", "/no/x", false, "", nil, nil},
		{"/file/x", "/file/x", false, "", unix.ENOTDIR, nil},
		{"/out/x", "", false, "", nil, ErrEscapes},
		{"/a\x00", "", false, "", nil, ErrName},
	} {
		for try := range 3 { // from the second on directories are kept open
			at, err := s.Find(c.name)
			if !errors.Is(err, c.err) || !errors.Is(at.Err, c.looked) || at.Name != c.resolved || at.Roofed != c.roofed {
				t.Errorf("%s, %d: %+v, %v", c.name, try, at, err)
			}
			kind := ""
			switch {
			case at.Info == nil:
			case at.Info.IsDir():
				kind = "directory"
			case at.Info.Mode().IsRegular():
				kind = "file"
			default:
				kind = "link"
			}
			if kind != c.kind {
				t.Errorf("%s, %d: a %s, want a %s", c.name, try, kind, c.kind)
			}
		}
	}
	s.mustUpload("/a/b/up", "x", UploadOptions{})
	u := s.begun("/a/b/up", "y", UploadOptions{})
	for _, dir := range []string{"/a/b/", "/link/"} {
		if at, err := s.Find(dir + u.rec.temporary()); err != nil || !errors.Is(at.Err, ErrReserved) {
			t.Errorf("a temporary: %+v, %v", at, err)
		}
	}
	if err := u.Discard(); err != nil {
		t.Error(err)
	}
	s.Close()
	for _, name := range []string{"/new", "/a/b/new"} {
		if at, err := s.Find(name); !errors.Is(errors.Join(err, at.Err), fs.ErrClosed) {
			t.Errorf("%s after Close: %+v", name, at)
		}
	}
}
