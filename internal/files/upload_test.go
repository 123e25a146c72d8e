package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestModes(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	for _, c := range []struct {
		what     string
		existing fs.FileMode
		option   fs.FileMode
		want     fs.FileMode
	}{
		{"new", 0, 0, 0o640},
		{"new, configured", 0, 0o666, 0o640},
		{"new, configured narrow", 0, 0o600, 0o600},
		{"existing, narrow", 0o400, 0, 0o400},
		{"existing, wide", 0o666, 0, 0o666},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := serve(t, Options{Mode: c.option})
			if c.existing != 0 {
				s.put("/f", "old")
				if err := os.Chmod(s.host("/f"), c.existing); err != nil {
					t.Fatal(err)
				}
			}
			u := s.begun("/f", "new", UploadOptions{})
			during, err := os.Stat(s.host("/" + u.temp))
			if err != nil || during.Mode().Perm()&^c.want != 0 {
				t.Errorf("while it comes in it has %v, %v", during.Mode(), err)
			}
			if err := u.Publish(); err != nil {
				t.Fatal(err)
			}
			if i, err := s.Stat("/f"); err != nil || i.Mode() != c.want {
				t.Errorf("%v, %v, want %v", i.Mode(), err, c.want)
			}
		})
	}
}

func TestTheOwnerIsKept(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	s := serve(t, Options{})
	s.put("/f", "old")
	if err := errors.Join(os.Chown(s.host("/f"), 1234, 2345), os.Chmod(s.host("/f"), 0o640)); err != nil {
		t.Fatal(err)
	}
	s.mustUpload("/f", "new", UploadOptions{})
	i, err := s.Lstat("/f")
	if err != nil {
		t.Fatal(err)
	}
	if d := i.(*info).details; d.user != 1234 || d.group != 2345 || i.Mode() != 0o640 {
		t.Errorf("%d:%d %v", i.(*info).details.user, i.(*info).details.group, i.Mode())
	}
}

func TestAUniqueNameNeverReplaces(t *testing.T) {
	for _, rename := range []error{nil, unix.EINVAL} { // without RENAME_NOREPLACE by a link
		s := serve(t, Options{})
		u := s.begun("/f", "new", UploadOptions{Unique: true})
		s.put("/f", "other")
		s.before = onceFor("rename", rename)
		wantIs(t, u.Publish(), fs.ErrExist)
		s.want("/f", "other")
		s.wantClean()
	}
}

// After Sync the step that others wait for asks no disk to be synced.
func TestPlaceWaitsForNoDisk(t *testing.T) {
	s := serve(t, Options{Durable: true})
	u := s.begun("/f", "content", UploadOptions{})
	if err := u.Sync(); err != nil {
		t.Fatal(err)
	}
	var calls []string
	s.before = func(call string) error {
		calls = append(calls, call)
		return nil
	}
	if err := u.Place(); err != nil || !slices.Equal(calls, []string{"rename"}) {
		t.Errorf("%q, %v", calls, err)
	}
	s.want("/f", "content")
	if err := u.Last(); err != nil || !slices.Contains(calls, "fsync") {
		t.Errorf("%q, %v", calls, err)
	}
	wantIs(t, u.Last(), ErrDone)
	s.wantClean()
}

func TestAnUploadIsNotUndoneByOneThatBeganWithTheOldContent(t *testing.T) {
	s := serve(t, Options{})
	s.mustUpload("/f", "0", UploadOptions{})
	added := UploadOptions{Append: true}
	first, late, resumed := s.begun("/f", "a", added), s.begun("/f", "b", added), s.begun("/f", "c", UploadOptions{Offset: 1})
	new1, new2 := s.begun("/new", "1", added), s.begun("/new", "2", added)
	other := s.begun("/g", "x", added)
	for _, u := range []*Upload{first, new1, other} {
		if err := u.Publish(); err != nil {
			t.Error(err)
		}
	}
	for _, u := range []*Upload{late, resumed, new2} {
		if err := u.Publish(); !errors.Is(err, ErrChanged) {
			t.Errorf("%v", err)
		}
	}
	s.want("/f", "0a")
	s.want("/new", "1")
	s.mustUpload("/f", "b", added) // one that begins now has all
	s.want("/f", "0ab")
}

func TestNothingIsCopiedForAClientThatHasGone(t *testing.T) {
	s := serve(t, Options{})
	s.mustUpload("/f", "old", UploadOptions{})
	_, err := s.Upload("/f", UploadOptions{Append: true, Gone: func() bool { return true }})
	wantIs(t, err, context.Canceled)
	s.want("/f", "old")
	s.wantClean()
}

func TestUniqueNamesOfUploadsAtOnce(t *testing.T) {
	s := serve(t, Options{})
	s.put("/report", "old")
	names := make(chan string, 20)
	var wg sync.WaitGroup
	for range cap(names) {
		wg.Go(func() {
			u, err := s.Upload("/report", UploadOptions{Unique: true})
			if err != nil {
				t.Error(err)
				return
			}
			names <- u.Name()
			if err := u.Publish(); err != nil {
				t.Errorf("%s: %v", u.Name(), err)
			}
		})
	}
	wg.Wait()
	close(names)
	seen := make(map[string]bool)
	for name := range names {
		seen[name] = true
		s.want(name, "")
	}
	if len(seen) != cap(names) {
		t.Errorf("%d names", len(seen))
	}
	s.want("/report", "old")
	s.wantClean()
}
