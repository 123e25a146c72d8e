package files

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// nth fails the n-th call, counted from 1.
type nth struct {
	n     int
	err   error
	calls int
	call  string // the call that failed; "": none yet
}

func (f *nth) before(call string) error {
	f.calls++
	if f.calls == f.n {
		f.call = call
		return f.err
	}
	return nil
}

// Every system call of every kind of upload fails once. The name has the old content or the new, and no temporary file is left
// after the next start.
func TestEveryFaultLeavesTheOldOrTheNewContent(t *testing.T) {
	for _, c := range []struct {
		what    string
		opt     UploadOptions
		old     string
		want    string
		durable bool
		byLink  bool // the file system cannot rename without replacing
	}{
		{"new", UploadOptions{}, "", "line", false, false},
		{"replace, durable", UploadOptions{}, "old", "line", true, false},
		{"append, durable", UploadOptions{Append: true}, "old", "oldline", true, false},
		{"restart", UploadOptions{Offset: 2}, "old", "olline", false, false},
		{"new name, durable", UploadOptions{New: true}, "", "line", true, false},
		{"new name by a link", UploadOptions{New: true}, "", "line", false, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			failed := make(map[string]bool)
			for n := 1; ; n++ {
				s := serve(t, Options{Durable: c.durable})
				if c.old != "" {
					s.put("/f", c.old)
					if err := os.Chmod(s.host("/f"), 0o666); err != nil { // makes a chmod necessary
						t.Fatal(err)
					}
				}
				fault := &nth{n: n, err: unix.EIO}
				s.beforeCall = func(call string) error {
					err := fault.before(call)
					if c.byLink && call == "rename" && err == nil {
						return unix.EINVAL
					}
					return err
				}
				err := s.upload("/f", "line", c.opt)
				s.beforeCall = nil
				if fault.call == "" {
					break
				}
				failed[fault.call] = true
				got, _ := os.ReadFile(s.host("/f"))
				if string(got) != c.old && string(got) != c.want {
					t.Errorf("call %d (%s) failed: %q", n, fault.call, got)
				}
				switch {
				case err == nil && (fault.call == "fsync" || fault.call == "close"):
					t.Errorf("call %d (%s) failed: success, but the file may not last", n, fault.call)
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
			for _, call := range []string{"open", "stat", "create", "write", "close", "rename"} {
				if !failed[call] {
					t.Errorf("%s was never made to fail", call)
				}
			}
			if c.durable && !failed["fsync"] || c.byLink && !failed["link"] {
				t.Errorf("fsync or link was never made to fail: %v", failed)
			}
		})
	}
}

// The client can tell a disk without room for the copy from one without room for its bytes.
func TestAnAppendWithoutRoomForTheCopyIsRefused(t *testing.T) {
	for _, cause := range []error{unix.ENOSPC, unix.EDQUOT} {
		s := serve(t, Options{})
		s.put("/f", "old")
		s.beforeCall = func(call string) error { return map[string]error{"copy": cause}[call] }
		for _, o := range []UploadOptions{{Append: true}, {Offset: 1}} {
			wantIs(t, s.upload("/f", "line", o), ErrNoRoomToCopy, cause)
		}
		s.want("/f", "old")
		s.wantClean()
	}
}
