package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A crash leaves the temporary files of uploads. Programs move their directories and make them again before the next start.
func TestSweepRemovesTheTemporaryFilesThatACrashLeft(t *testing.T) {
	s := serve(t, Options{})
	version := newID() // an earlier version had an id for each upload, with a text in its mark
	if err := os.WriteFile(filepath.Join(s.state, version), []byte("1 \"/di"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/dir", "/a/b", "/gone", "/z/\xff"} {
		s.mkdir(dir)
	}
	s.put("/dir/f", "old")
	s.put("/"+prefix+"xyz", "a user's own")
	s.put("/dir/"+prefix+newID()+"-1", "another")
	s.link("../dir", "/a/link")
	die(s.begun("/dir/f", "half", UploadOptions{}))
	die(s.begun("/a/b/f", "half", UploadOptions{}))
	die(s.begun("/gone/f", "half", UploadOptions{}))
	die(s.begun("/top", "half", UploadOptions{}))
	s.put("/dir/"+prefix+version, "half")
	s.Close()
	if err := errors.Join(
		os.Rename(s.host("/a/b"), s.host("/z/\xff/moved")),
		os.Mkdir(s.host("/a/b"), 0o755), // another directory of that name
		os.RemoveAll(s.host("/gone")),
	); err != nil {
		t.Fatal(err)
	}
	if n := len(s.temporaries()); n != 6 {
		t.Fatalf("%q", s.temporaries())
	}

	s.open(Options{})
	if list, err := s.ReadDir("/dir"); err != nil || len(list) != 1 {
		t.Errorf("listed before the sweep: %v, %v", list, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	wantIs(t, s.Sweep(ended), context.Canceled)
	s.searchAfter = time.Time{}
	underWay := s.begun("/late", "content", UploadOptions{})
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := underWay.Publish(); err != nil {
		t.Error(err)
	}
	s.want("/late", "content")
	if left := s.temporaries(); len(left) != 2 || len(s.records()) > 0 {
		t.Errorf("%q, %q", left, s.records())
	}
	s.want("/"+prefix+"xyz", "a user's own")
	s.want("/dir/f", "old")
}

// A directory that cannot be read does not stop the sweep. The next sweep, an hour later, reads it again, unless the server lacks
// the permission: then no upload was possible there.
func TestSweepGoesOnPastADirectoryThatItCannotRead(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EIO, unix.EACCES} {
		now := time.Now()
		s := serve(t, Options{})
		for _, dir := range []string{"/a", "/b", "/c"} {
			s.mkdir(dir)
			die(s.begun(dir+"/f", "half", UploadOptions{}))
		}
		s.Close()
		s.open(Options{})
		s.now = func() time.Time { return now }
		s.beforeCall = failAt(3, "open", errno) // the root, one, the next
		wantIs(t, s.Sweep(t.Context()), errno)
		s.beforeCall = nil
		if len(s.temporaries()) != 1 {
			t.Errorf("%v: %q", errno, s.temporaries())
		}
		if errno == unix.EACCES {
			if len(s.records()) > 0 {
				t.Errorf("it will be searched again for %q", s.records())
			}
			continue
		}
		for passed, want := range []int{1, 0} {
			now = now.Add(searchEvery - time.Second + time.Duration(passed)*time.Second)
			if err := s.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(s.temporaries()) != want || len(s.records()) != want {
				t.Errorf("%q, %q", s.temporaries(), s.records())
			}
		}
	}
}

// An earlier server on the same tree may still run after a later one has started.
func TestAnEarlierStartLeavesALaterOneAlone(t *testing.T) {
	s := serve(t, Options{Epoch: 9})
	stopped := s.Tree
	late := s.begun("/late", "content", UploadOptions{})
	s.open(Options{Epoch: 10})
	if err := s.SweepEarlier(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := late.Publish()
	wantIs(t, err, os.ErrNotExist)
	wantIs(t, err, ErrSwept)
	later, err := stopped.Upload("/later", UploadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	die(later) // after the sweep; another sweep finds it an hour later
	if err := s.Sweep(t.Context()); err != nil || len(s.temporaries()) != 1 {
		t.Errorf("%v, %q", err, s.temporaries())
	}
	s.searchAfter = time.Time{}
	if err := s.Sweep(t.Context()); err != nil || len(s.temporaries()) != 0 {
		t.Errorf("%v, %q", err, s.temporaries())
	}
	u := s.begun("/f", "new", UploadOptions{})
	for name, sweep := range map[string]func(context.Context) error{"Sweep": stopped.Sweep, "SweepEarlier": stopped.SweepEarlier} {
		if err := sweep(t.Context()); err != nil {
			t.Error(name, err)
		}
	}
	if err := u.Publish(); err != nil {
		t.Error(err)
	}
	s.want("/f", "new")
	if err := errors.Join(stopped.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(s.state); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestAnIncompleteSweepOfEarlierStartsIsAnError(t *testing.T) {
	for _, c := range []struct {
		errno unix.Errno
		fails bool
	}{{unix.EIO, true}, {unix.EACCES, false}} {
		s := serve(t, Options{Epoch: 1})
		s.mkdir("/a")
		die(s.begun("/a/f", "half", UploadOptions{}))
		s.Close()
		s.open(Options{Epoch: 2})
		s.beforeCall = failAt(2, "open", c.errno)
		if err := s.SweepEarlier(t.Context()); (err != nil) != c.fails {
			t.Errorf("%v: %v", c.errno, err)
		}
		s.beforeCall = nil
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.SweepEarlier(ended); c.fails && !errors.Is(err, context.Canceled) {
			t.Errorf("that was broken off: %v", err)
		}
		if err := s.SweepEarlier(t.Context()); err != nil || c.fails && len(s.temporaries()) > 0 {
			t.Errorf("%v, %q", err, s.temporaries())
		}
	}
}

// After an orderly stop the next start searches nothing.
func TestCloseRemovesTheMarkIfNoTemporaryFileIsLeft(t *testing.T) {
	s := serve(t, Options{})
	s.mustUpload("/f", "content", UploadOptions{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(s.state); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	s.open(Options{})
	s.beforeCall = func(call string) error {
		t.Errorf("the sweep called %s", call)
		return nil
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	s.beforeCall = nil
	u := s.begun("/f", "content", UploadOptions{})
	s.beforeCall = onceFor("unlink", unix.EIO)
	wantIs(t, u.Discard(), unix.EIO)
	s.beforeCall = nil
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.open(Options{})
	if len(s.temporaries()) != 1 || len(s.records()) != 1 || strings.Join(s.records(), "") == s.start {
		t.Errorf("%q, %q", s.temporaries(), s.records())
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantClean()
}
