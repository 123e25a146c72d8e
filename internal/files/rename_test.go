package files

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRename(t *testing.T) {
	for _, c := range []struct {
		what, from, to string
		err            error
	}{
		{"a file to a new name", "/file", "/dir/new", nil},
		{"a file over a file", "/file", "/other", nil},
		{"a file to itself", "/file", "/file", nil},
		{"a file over another link of it", "/file", "/hard", nil},
		{"a file over an empty directory", "/file", "/empty", unix.EISDIR},
		{"a file over a full directory", "/file", "/dir", unix.EISDIR},
		{"a directory to a new name", "/dir", "/new", nil},
		{"a directory to itself", "/dir", "/dir", nil},
		{"a directory over an empty directory", "/dir", "/empty", unix.EISDIR},
		{"a directory over a full directory", "/empty", "/dir", unix.EISDIR},
		{"a directory over a file", "/empty", "/file", fs.ErrExist},
		{"a directory over a link to one", "/dir", "/link", fs.ErrExist},
		{"a directory into itself", "/dir", "/dir/sub/x", unix.EINVAL},
		{"nothing", "/none", "/new", fs.ErrNotExist},
		{"to a parent that is missing", "/file", "/none/new", fs.ErrNotExist},
		{"the root", "/", "/new", unix.EBUSY},
		{"over the root", "/file", "/", unix.EBUSY},
		{"a link", "/link", "/new", nil},
	} {
		for _, way := range []string{"renameat2", "renameat"} {
			t.Run(c.what+" by "+way, func(t *testing.T) {
				s := serve(t, Options{})
				s.put("/file", "file")
				s.put("/other", "other")
				s.mkdir("/dir/sub")
				s.mkdir("/empty")
				s.link("empty", "/link")
				if err := os.Link(s.host("/file"), s.host("/hard")); err != nil {
					t.Fatal(err)
				}
				before := s.hostNames()
				if way == "renameat" {
					s.beforeCall = onceFor("rename", unix.EINVAL)
				}
				if way == "renameat" && errors.Is(c.err, unix.EINVAL) {
					t.Skip("said by the kernel itself")
				}
				was, _ := os.Lstat(s.host(c.from))
				err := s.Rename(c.from, c.to)
				if c.err != nil {
					wantIs(t, err, c.err)
					if after := s.hostNames(); len(after) != len(before) {
						t.Errorf("%q became %q", before, after)
					}
					s.want("/file", "file")
					s.want("/other", "other")
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				is, err := os.Lstat(s.host(c.to))
				if err != nil || !os.SameFile(was, is) {
					t.Errorf("%s is another one: %v", c.to, err)
				}
				if _, err := os.Lstat(s.host(c.from)); c.from != c.to && !os.IsNotExist(err) {
					t.Errorf("%s is there still: %v", c.from, err)
				}
			})
		}
	}
}

// onceFor fails the first such call.
func onceFor(call string, err error) func(string) error { return failAt(1, call, err) }

// failAt fails the nth such call.
func failAt(n int, call string, err error) func(string) error {
	return func(c string) error {
		if c == call {
			if n--; n == 0 {
				return err
			}
		}
		return nil
	}
}
