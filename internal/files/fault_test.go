package files

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// nth fails the n-th call, counted from 1, and says whether it came to that.
type nth struct {
	n     int
	err   error
	calls int
	call  string // the one that failed
}

func (f *nth) before(call string) error {
	f.calls++
	if f.calls == f.n {
		f.call = call
		return f.err
	}
	return nil
}

// Every system call of every kind of upload fails once: the name has the old content or the new, and nothing is left
// once the server looks after what it could not remove.
func TestEveryFaultLeavesTheOldOrTheNewContent(t *testing.T) {
	for _, c := range []struct {
		what    string
		opt     UploadOptions
		old     string
		want    string
		durable bool
	}{
		{"new", UploadOptions{}, "", "line", false},
		{"replace", UploadOptions{}, "old", "line", false},
		{"replace, durable", UploadOptions{}, "old", "line", true},
		{"append, durable", UploadOptions{Append: true}, "old", "oldline", true},
		{"restart", UploadOptions{Offset: 2}, "old", "olline", false},
		{"unique, durable", UploadOptions{Unique: true}, "", "line", true},
	} {
		t.Run(c.what, func(t *testing.T) {
			failed := make(map[string]bool)
			for n := 1; ; n++ {
				s := serve(t, Options{Durable: c.durable})
				if c.old != "" {
					s.put("/f", c.old)
					if err := os.Chmod(s.host("/f"), 0o666); err != nil { // so that there is a chmod
						t.Fatal(err)
					}
				}
				fault := &nth{n: n, err: unix.EIO}
				s.before = fault.before
				err := s.upload("/f", "line", c.opt)
				s.before = nil
				if fault.call == "" {
					break
				}
				failed[fault.call] = true
				got, _ := os.ReadFile(s.host("/f"))
				if string(got) != c.old && string(got) != c.want {
					t.Errorf("call %d (%s) failed: %q", n, fault.call, got)
				}
				switch {
				case err == nil && string(got) != c.want:
					t.Errorf("call %d (%s) failed: success, but the old content", n, fault.call)
				case err != nil && string(got) == c.want && !errors.Is(err, ErrNotDurable):
					t.Errorf("call %d (%s) failed: %v, but the new content", n, fault.call, err)
				case err != nil && string(got) != c.want && errors.Is(err, ErrNotDurable):
					t.Errorf("call %d (%s) failed: %v, but the old content", n, fault.call, err)
				}
				if err != nil {
					wantIs(t, err, unix.EIO)
					s.wantPath(err, "/f")
				}
				if fault.call == "unlink" {
					if err := s.Sweep(t.Context()); err != nil {
						t.Error(err)
					}
				}
				s.wantClean()
				s.Close()
			}
			for _, call := range []string{"open", "stat", "create", "write", "rename"} {
				if !failed[call] {
					t.Errorf("%s was never made to fail", call)
				}
			}
			if c.durable && !failed["fsync"] {
				t.Error("fsync was never made to fail")
			}
		})
	}
}

// A panic at any call of an upload leaves no temporary file and no descriptor, once the upload was discarded.
func TestAPanicLeavesNothing(t *testing.T) {
	s := serve(t, Options{Durable: true})
	s.put("/f", "old")
	s.mustUpload("/f", "old", UploadOptions{}) // what is opened once
	before := s.descriptors()
	for n := 1; ; n++ {
		panicked := func() (panicked bool) {
			var u *Upload
			defer func() {
				s.before = nil
				panicked = recover() != nil
				if u != nil {
					u.Discard()
				}
			}()
			calls := 0
			s.before = func(string) error {
				if calls++; calls == n {
					panic("a bug")
				}
				return nil
			}
			var err error
			if u, err = s.Upload("/f", UploadOptions{Append: true}); err != nil {
				t.Fatal(err)
			}
			if _, err := u.Write([]byte("new")); err != nil {
				t.Fatal(err)
			}
			if err := u.Publish(); err != nil {
				t.Fatal(err)
			}
			return false
		}()
		s.wantClean()
		if after := s.descriptors(); after != before {
			t.Fatalf("call %d: %d descriptors, %d before", n, after, before)
		}
		if !panicked {
			if n < 10 {
				t.Errorf("there were %d calls only", n)
			}
			return
		}
	}
}

// descriptors counts what this process has open.
func (s *served) descriptors() int {
	s.t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		s.t.Fatal(err)
	}
	return len(all)
}

// Two faults: what fails, and the removal of the temporary after it.
func TestATemporaryThatCannotBeRemovedIsRemovedLater(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f", "old")
	u := s.begun("/f", "new", UploadOptions{})
	s.before = func(call string) error {
		if call == "rename" || call == "unlink" {
			return unix.EIO
		}
		return nil
	}
	wantIs(t, u.Publish(), unix.EIO)
	s.before = nil
	s.want("/f", "old")
	if len(s.temporaries()) != 1 {
		t.Fatalf("%q", s.temporaries())
	}
	if list, err := s.ReadDir("/"); err != nil || len(list) != 1 {
		t.Errorf("listed: %v, %v", list, err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "old")
	s.wantClean()
}

func TestALinkedTemporaryThatCannotBeRemovedIsRemovedLater(t *testing.T) {
	s := serve(t, Options{})
	u := s.begun("/f", "new", UploadOptions{Unique: true})
	s.before = func(call string) error {
		switch call {
		case "rename":
			return unix.EINVAL
		case "unlink":
			return unix.EIO
		}
		return nil
	}
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	s.before = nil
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "new")
	s.wantClean()
}

func TestNotDurableIsSaid(t *testing.T) {
	s := serve(t, Options{Durable: true})
	u := s.begun("/f", "new", UploadOptions{})
	if err := u.Sync(); err != nil {
		t.Fatal(err)
	}
	s.before = onceFor("fsync", unix.EIO)
	err := u.Publish()
	wantIs(t, err, ErrNotDurable, unix.EIO)
	if !strings.Contains(err.Error(), "published") {
		t.Error(err)
	}
	s.want("/f", "new")
	s.wantClean()
}

func TestAFullDiskIsSaidAndTheOldFileStays(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EFBIG} {
		s := serve(t, Options{})
		s.put("/f", "old")
		u := s.begun("/f", "new", UploadOptions{})
		s.before = onceFor("write", errno)
		_, err := u.ReadFrom(strings.NewReader("more"))
		wantIs(t, err, errno)
		wantIs(t, u.Publish(), errno, ErrBroken)
		s.want("/f", "old")
		s.wantClean()
	}
}
