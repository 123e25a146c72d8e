package files

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var unixEpoch = time.Unix(1e9, 500)

// The tests of driver have the replies of other errors: TestOrdinaryFilesAndDirectories, TestUploads, TestDownloads.
func TestErrorsOfOperations(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/dir/sub")
	s.put("/file", "content")
	if err := unix.Mkfifo(s.host("/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", s.host("/socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.link("fifo", "/link")
	s.mkdir("/empty")
	open := func(name string) error { _, err := s.Open(name); return err }
	upload := func(name string) error { return s.upload(name, "x", UploadOptions{}) }
	restart := func(offset int64) func(string) error {
		return func(name string) error { return s.upload(name, "x", UploadOptions{Offset: offset}) }
	}
	for _, c := range []struct {
		what string
		name string
		do   func(string) error
		err  error
	}{
		{"mkdir of the root", "/", func(n string) error { return s.Mkdir(n, 0o755) }, fs.ErrExist},
		{"rmdir of the root", "/", s.RemoveDir, unix.EBUSY},
		{"unlink of the root", "/", func(n string) error { return s.RemoveFile(n, nil) }, unix.EISDIR},
		{"removeall", "/empty", s.RemoveAll, fs.ErrPermission},
		{"chown", "/file", func(n string) error { return s.Chown(n, 1, 1) }, fs.ErrPermission},
		{"open of a pipe", "/fifo", open, ErrNotRegular},
		{"open of a link to one", "/link", open, ErrNotRegular},
		{"open of a socket", "/socket", open, ErrNotRegular},
		{"upload over a pipe", "/fifo", upload, ErrNotRegular},
		{"upload of a name that is too long", "/" + strings.Repeat("x", 256), upload, ErrName},
		{"mkdir of one", "/" + strings.Repeat("x", 256), func(n string) error { return s.Mkdir(n, 0o755) }, ErrName},
		{"open of a NUL", "/a\x00b", open, ErrName},
		{"restart before the beginning", "/file", restart(-1), ErrOffset},
	} {
		err := c.do(c.name)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.what, err, c.err)
			continue
		}
		s.wantPath(err, c.name)
	}
	s.want("/file", "content")
	for _, d := range []string{"/dir/sub", "/empty"} {
		if i, err := s.Stat(d); err != nil || !i.IsDir() {
			t.Errorf("%s: %v", d, err)
		}
	}
	s.wantClean()
}

func TestTemporaryFilesAreHidden(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/d")
	u := s.begun("/d/new", "half", UploadOptions{})
	if _, err := os.Stat(s.host("/d/" + u.temp)); err != nil || !Hidden("/d/"+u.temp) {
		t.Errorf("%s is not hidden, or not there: %v", u.temp, err)
	}
	if list, err := s.ReadDir("/d"); err != nil || len(list) != 0 {
		t.Errorf("listed: %v, %v", list, err)
	}
	if err := s.RemoveDir("/d"); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("rmdir: %v", err)
	}
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	s.want("/d/new", "half")
	s.wantClean()
}

// A mirror would remove a file that a listing lacks because of a fault.
func TestAListingOmitsOnlyAFileThatIsRemovedMeanwhile(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f", "x")
	s.put("/g", "x")
	for _, fault := range []error{unix.EIO, nil} {
		s.beforeCall = func(call string) error {
			if call == "stat" && fault == nil {
				_ = os.Remove(s.host("/f"))
			}
			return map[string]error{"stat": fault}[call]
		}
		list, err := s.ReadDir("/")
		if !errors.Is(err, fault) || fault == nil && (len(list) != 1 || list[0].Name() != "g") {
			t.Errorf("fault %v: %v, %v", fault, list, err)
		}
	}
}

func TestErrorsShowNoPathOfTheHostAndNoAddress(t *testing.T) {
	address := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4000}
	for _, err := range []error{
		&fs.PathError{Op: "open", Path: "/srv/real", Err: unix.EIO}, &os.LinkError{Op: "rename", Old: "/srv/a", New: "/srv/b", Err: unix.EIO},
		&net.OpError{Op: "read", Net: "tcp", Addr: address, Err: os.NewSyscallError("splice", unix.EIO)},
	} {
		if got := fail("upload", "/f", err).Error(); got != "upload /f: input/output error" {
			t.Errorf("%v: %s", err, got)
		}
	}
}

// A server that was replaced may make a change late. By then another client may hold the lock above the path, in another
// directory of that name.
func TestALateChangeStaysInTheDirectoryThatWasChecked(t *testing.T) {
	for name, change := range map[string]func(*served, Check) error{
		"remove":      func(s *served, c Check) error { return s.RemoveFile("/lock/f", c) },
		"rename":      func(s *served, c Check) error { return s.Move("/lock/f", "/lock/g", c) },
		"rename into": func(s *served, c Check) error { return s.Move("/f", "/lock/f", c) },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, Options{})
			s.put("/f", "outside")
			s.mkdir("/lock")
			s.put("/lock/f", "of the first holder")
			err := change(s, func() error {
				if _, err := s.Aside("/lock", "first", 1); err != nil {
					t.Error(err)
				}
				s.mkdir("/lock")
				s.put("/lock/f", "of the next holder")
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			s.want("/lock/f", "of the next holder")
			refused := errors.New("replaced")
			if err := change(s, func() error { return refused }); !errors.Is(err, refused) {
				t.Errorf("%v after the check had failed", err)
			}
			s.want("/lock/f", "of the next holder")
		})
	}
}

// A reader compares its offset with the length of the file when it was opened.
func TestAFileThatShrinksWhileItIsReadIsAnError(t *testing.T) {
	for _, left := range []int64{2, 3, 6} {
		s := serve(t, Options{})
		s.put("/f", "abcdef")
		f, err := s.Open("/f")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Seek(3, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(s.host("/f"), left); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		n, err := f.(io.WriterTo).WriteTo(&b)
		if want := max(left-3, 0); n != want || (err == nil) != (left == 6) || err != nil && !errors.Is(err, ErrShrunk) {
			t.Errorf("of %d bytes from 3 on: %q, %v", left, b.String(), err)
		}
	}
}
