package files

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var unixEpoch = time.Unix(1e9, 500)

// What clients are told of the rest, driver's tests say: TestOrdinaryFilesAndDirectories, TestUploads, TestDownloads.
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
		{"mkdir below a file", "/file/x", func(n string) error { return s.Mkdir(n, 0o755) }, unix.ENOTDIR},
		{"mkdir of the root", "/", func(n string) error { return s.Mkdir(n, 0o755) }, fs.ErrExist},
		{"rmdir of the root", "/", s.RemoveDir, unix.EBUSY},
		{"unlink of the root", "/", s.RemoveFile, unix.EISDIR},
		{"remove of what is not empty", "/dir", s.Remove, unix.ENOTEMPTY},
		{"removeall", "/empty", s.RemoveAll, fs.ErrPermission},
		{"chown", "/file", func(n string) error { return s.Chown(n, 1, 1) }, fs.ErrPermission},
		{"open of a pipe", "/fifo", open, ErrNotRegular},
		{"open of a link to one", "/link", open, ErrNotRegular},
		{"open of a socket", "/socket", open, ErrNotRegular},
		{"upload over the root", "/", upload, unix.EISDIR},
		{"upload over a pipe", "/fifo", upload, ErrNotRegular},
		{"upload below a file", "/file/x", upload, unix.ENOTDIR},
		{"upload of a name that is too long", "/" + strings.Repeat("x", 256), upload, ErrName},
		{"mkdir of one", "/" + strings.Repeat("x", 256), func(n string) error { return s.Mkdir(n, 0o755) }, ErrName},
		{"open of a NUL", "/a\x00b", open, ErrName},
		{"restart before the beginning", "/file", restart(-1), ErrOffset},
		{"restart of nothing", "/none", restart(1), ErrOffset},
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

func TestStatSaysWhatPackageOSSays(t *testing.T) {
	s := serve(t, Options{})
	s.put("/file", "content")
	s.mkdir("/dir")
	s.link("file", "/link")
	if err := unix.Mkfifo(s.host("/fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/file", "/dir", "/link", "/fifo"} {
		want, err := os.Lstat(s.host(name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		if got.Mode() != want.Mode() || got.Size() != want.Size() || !got.ModTime().Equal(want.ModTime()) ||
			got.IsDir() != want.IsDir() || got.Name() != want.Name() {
			t.Errorf("%s: %v %v %v, want %v %v %v", name, got.Mode(), got.Size(), got.ModTime(), want.Mode(), want.Size(), want.ModTime())
		}
		d, st := got.Sys().(*details), want.Sys().(*syscall.Stat_t)
		if inode, _ := d.Identity(); inode != st.Ino || d.Device() != uint64(st.Dev) || d.Links() != uint64(st.Nlink) {
			t.Errorf("%s: %+v, want %+v", name, d, st)
		}
	}
}

func TestIdentityTellsADirectoryFromALaterOne(t *testing.T) {
	s := serve(t, Options{})
	before := time.Now().Add(-time.Minute).UnixNano()
	identity := func() (uint64, int64) {
		t.Helper()
		i, err := s.Lstat("/x_lock")
		if err != nil {
			t.Fatal(err)
		}
		return i.Sys().(interface{ Identity() (uint64, int64) }).Identity()
	}
	if err := s.Mkdir("/x_lock", 0o755); err != nil {
		t.Fatal(err)
	}
	inode, birth := identity()
	if birth == 0 {
		t.Skip("births are not recorded here")
	}
	if inode == 0 || birth < before || birth > time.Now().Add(time.Minute).UnixNano() {
		t.Errorf("inode %d, born at %d", inode, birth)
	}
	for i := 0; ; i++ { // two that are made within one tick of the system's clock may be the same
		if err := errors.Join(s.Chtimes("/x_lock", unixEpoch, unixEpoch), s.RemoveDir("/x_lock"), s.Mkdir("/x_lock", 0o755)); err != nil {
			t.Fatal(err)
		}
		if _, later := identity(); later > birth {
			break
		} else if later < birth || i > 1e5 {
			t.Fatalf("the later one was born at %d; the first at %d", later, birth)
		}
	}
}

func TestTemporariesAreHiddenAndRefused(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/d")
	s.put("/mine", "mine")
	u := s.begun("/d/new", "half", UploadOptions{})
	list, err := s.ReadDir("/d")
	if err != nil || len(list) != 0 {
		t.Errorf("listed: %v, %v", list, err)
	}
	temp := "/d/" + u.temp
	if _, err := os.Stat(s.host(temp)); err != nil {
		t.Fatal(err)
	}
	for op, err := range everyOperation(s, temp) {
		if !errors.Is(err, ErrReserved) || !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s of a temporary: %v", op, err)
		}
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

func TestAUsersFileNamedLikeATemporaryIsAFile(t *testing.T) {
	s := serve(t, Options{})
	for _, n := range []string{".ftplockd-xyz", prefix + newID()} {
		s.mustUpload("/"+n, "mine", UploadOptions{})
		list, err := s.ReadDir("/")
		if err != nil || len(list) != 1 || list[0].Name() != n {
			t.Errorf("listed: %v, %v", list, err)
		}
		s.mustUpload("/"+n, "mine", UploadOptions{Append: true})
		if err := s.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		s.want("/"+n, "minemine")
		if err := s.Rename("/"+n, "/x"); err != nil {
			t.Error(err)
		}
		if err := s.RemoveFile("/x"); err != nil {
			t.Error(err)
		}
	}
}

func TestAfterCloseEverythingSaysSo(t *testing.T) {
	s := serve(t, Options{})
	s.put("/mine", "")
	u := s.begun("/up", "content", UploadOptions{})
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	errs := everyOperation(s, "/d/x")
	_, errs["resolve"] = s.Resolve("/d/x")
	for op, err := range errs {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: %v", op, err)
		}
	}
	// An upload that was begun is its owner's to end.
	if err := u.Publish(); err != nil {
		t.Error(err)
	}
	s.want("/up", "content")
}

// A file is written by Upload only.
func TestAferosWaysToWriteAreRefused(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f", "old")
	_, err := s.Create("/f")
	wantIs(t, err, fs.ErrPermission)
	for _, flag := range []int{os.O_RDWR, os.O_WRONLY, os.O_CREATE, os.O_TRUNC, os.O_WRONLY | os.O_APPEND} {
		_, err := s.OpenFile("/f", flag, 0o644)
		wantIs(t, err, fs.ErrPermission)
		s.wantPath(err, "/f")
	}
	f, err := s.Open("/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.Write([]byte("x"))
	wantIs(t, err, fs.ErrInvalid)
	s.want("/f", "old")
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
