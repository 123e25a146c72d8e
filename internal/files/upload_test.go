package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUploadContent(t *testing.T) {
	const old = "0123456789"
	for _, c := range []struct {
		what    string
		target  string // "/old" has the old content
		opt     UploadOptions
		written string
		want    string
		err     error
	}{
		{"a new file", "/new", UploadOptions{}, "abc", "abc", nil},
		{"an empty file", "/new", UploadOptions{}, "", "", nil},
		{"over a longer file", "/old", UploadOptions{}, "abc", "abc", nil},
		{"append", "/old", UploadOptions{Append: true}, "abc", old + "abc", nil},
		{"append to nothing", "/new", UploadOptions{Append: true}, "abc", "abc", nil},
		{"append over a link", "/link", UploadOptions{Append: true}, "abc", old + "abc", nil},
		{"restart in the middle", "/old", UploadOptions{Offset: 4}, "abc", "0123abc", nil},
		{"restart at the end", "/old", UploadOptions{Offset: 10}, "abc", old + "abc", nil},
		{"restart beyond the end", "/old", UploadOptions{Offset: 11}, "", "", ErrOffset},
		{"restart before the beginning", "/old", UploadOptions{Offset: -1}, "", "", ErrOffset},
		{"restart of nothing", "/new", UploadOptions{Offset: 1}, "", "", ErrOffset},
	} {
		for _, durable := range []bool{false, true} {
			t.Run(fmt.Sprint(c.what, " durable ", durable), func(t *testing.T) {
				s := serve(t, Options{Durable: durable})
				s.put("/old", old)
				s.link("old", "/link")
				err := s.upload(c.target, c.written, c.opt)
				if c.err != nil {
					wantIs(t, err, c.err)
					s.wantPath(err, c.target)
				} else if err != nil {
					t.Fatal(err)
				} else {
					s.want(c.target, c.want)
				}
				if c.target != "/old" || c.err != nil {
					s.want("/old", old)
				}
				s.wantClean()
			})
		}
	}
}

func TestReadersSeeTheOldFileOrTheNew(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f", "the old content")
	d, err := s.Open("/f")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	u := s.begun("/f", "new", UploadOptions{})
	s.want("/f", "the old content")
	if err := u.Sync(); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "the old content")
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "new")
	if b, err := io.ReadAll(d); err != nil || string(b) != "the old content" {
		t.Errorf("a download under way got %q, %v", b, err)
	}
}

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
		{"existing", 0o755, 0, 0o755},
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

func TestHardLinksKeepTheOldContent(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f", "old")
	if err := os.Link(s.host("/f"), s.host("/hard")); err != nil {
		t.Fatal(err)
	}
	for _, o := range []UploadOptions{{}, {Append: true}, {Offset: 1}} {
		s.mustUpload("/f", "new", o)
		s.want("/hard", "old")
	}
}

func TestAnUploadReplacesALinkAndNotWhatItLeadsTo(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f", "old")
	s.mkdir("/dir")
	for _, target := range []string{"f", "nowhere", "../..", "/etc/passwd", "link"} {
		if target == "../.." {
			continue // a directory outside: not looked at, so replaced as well; see TestLinksNeverLeadOut
		}
		s.link(target, "/link")
		s.mustUpload("/link", "new", UploadOptions{})
		s.want("/link", "new")
		if i, err := s.Lstat("/link"); err != nil || !i.Mode().IsRegular() {
			t.Errorf("over a link to %s: %v, %v", target, i, err)
		}
		s.want("/f", "old")
		if err := s.RemoveFile("/link"); err != nil {
			t.Fatal(err)
		}
	}
	s.link("dir", "/link")
	wantIs(t, s.upload("/link", "x", UploadOptions{}), unix.EISDIR)
	s.wantClean()
}

func TestDiscardLeavesNothing(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f", "old")
	u := s.begun("/f", "new", UploadOptions{})
	if err := errors.Join(u.Discard(), u.Discard()); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "old")
	for _, err := range []error{u.Publish(), u.Sync()} {
		wantIs(t, err, ErrDone)
	}
	_, err := u.Write([]byte("x"))
	wantIs(t, err, ErrDone)
	u = s.begun("/f", "new", UploadOptions{})
	if err := errors.Join(u.Publish(), u.Discard()); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "new")
	s.wantClean()
}

func TestPublishRefusesADirectoryThatCameUp(t *testing.T) {
	s := serve(t, Options{})
	u := s.begun("/f", "new", UploadOptions{})
	s.mkdir("/f")
	wantIs(t, u.Publish(), unix.EISDIR)
	if i, err := s.Stat("/f"); err != nil || !i.IsDir() {
		t.Errorf("%v, %v", i, err)
	}
	s.wantClean()
}

func TestExclusiveRefusesAFileThatCameUp(t *testing.T) {
	for _, way := range []string{"renameat2", "link"} {
		s := serve(t, Options{})
		u := s.begun("/f", "new", UploadOptions{Unique: true})
		s.put("/f", "other")
		if way == "link" {
			s.before = onceFor("rename", unix.EINVAL)
		}
		wantIs(t, u.Publish(), fs.ErrExist)
		s.want("/f", "other")
		s.wantClean()
		u = s.begun("/g", "new", UploadOptions{Unique: true})
		if way == "link" {
			s.before = onceFor("rename", unix.EINVAL)
		}
		if err := u.Publish(); err != nil {
			t.Error(err)
		}
		s.want("/g", "new")
		s.wantClean()
	}
}

// A swapped link cannot redirect what has begun: the directory is held open.
func TestTheDirectoryOfAnUploadIsHeld(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/real")
	outside := filepath.Join(filepath.Dir(s.root), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	u := s.begun("/real/f", "content", UploadOptions{})
	if err := os.Rename(s.host("/real"), s.host("/moved")); err != nil {
		t.Fatal(err)
	}
	s.link("../outside", "/real")
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	s.want("/moved/f", "content")
	if list, err := os.ReadDir(outside); err != nil || len(list) > 0 {
		t.Errorf("outside: %v, %v", list, err)
	}
	s.wantClean()
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

// What Place has published stays, also if nobody comes to say Last.
func TestDiscardAfterPlaceRemovesNothing(t *testing.T) {
	s := serve(t, Options{})
	u := s.begun("/f", "content", UploadOptions{})
	if err := errors.Join(u.Place(), u.Discard()); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "content")
	s.wantClean()
}

func TestTwoUploadsOfOneName(t *testing.T) {
	s := serve(t, Options{})
	a := s.begun("/f", "first", UploadOptions{})
	b := s.begun("/f", "second", UploadOptions{})
	if err := b.Publish(); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "second")
	if err := a.Publish(); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "first")
	s.wantClean()
}

func TestManyUploadsOfOneNameAreEachWhole(t *testing.T) {
	s := serve(t, Options{})
	content := func(i int) string { return strings.Repeat(string(rune('a'+i)), 50_000) }
	s.put("/f", content(0))
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			d, err := s.Open("/f")
			if err != nil {
				t.Error(err)
				return
			}
			b, err := io.ReadAll(d)
			d.Close()
			if err != nil || len(b) != 50_000 || strings.Trim(string(b), string(b[:1])) != "" {
				t.Errorf("a mixture: %d bytes, %v", len(b), err)
				return
			}
		}
	})
	for i := range 4 {
		writers.Go(func() {
			for range 25 {
				if err := s.upload("/f", content(i), UploadOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	s.wantClean()
}

func TestUniqueNames(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/dir")
	s.put("/report", "old")
	const n = 20
	for _, suggestion := range []string{"/report", "/dir", "/dir/none"} {
		var mu sync.Mutex
		names := make(map[string]string)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				content := fmt.Sprint(suggestion, i)
				u, err := s.Upload(suggestion, UploadOptions{Unique: true})
				if err != nil {
					t.Error(err)
					return
				}
				_, err = u.Write([]byte(content))
				name := u.Name()
				if err := errors.Join(err, u.Publish()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				mu.Lock()
				defer mu.Unlock()
				names[name] = content
			})
		}
		wg.Wait()
		if len(names) != n {
			t.Errorf("%d names for %d uploads to %s", len(names), n, suggestion)
		}
		for name, content := range names {
			s.want(name, content)
			if !strings.HasPrefix(name, suggestion) {
				t.Errorf("%s for %s", name, suggestion)
			}
		}
	}
	s.want("/report", "old")
	_, err := s.Upload("/none/x", UploadOptions{Unique: true})
	wantIs(t, err, fs.ErrNotExist)
	s.wantClean()
}

func TestAUniqueNameNeverReplaces(t *testing.T) {
	s := serve(t, Options{})
	u := s.begun("/f", "new", UploadOptions{Unique: true})
	s.mustUpload("/f", "other", UploadOptions{})
	wantIs(t, u.Publish(), fs.ErrExist)
	s.want("/f", "other")
	s.wantClean()
}

func TestBrokenUploadsAreNotPublished(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f", "old")
	broken := errors.New("the line broke")
	u := s.begun("/f", "new", UploadOptions{})
	n, err := u.ReadFrom(io.MultiReader(strings.NewReader("more"), &failing{broken}))
	if n != 4 || u.Size() != 7 {
		t.Errorf("%d, %d bytes", n, u.Size())
	}
	wantIs(t, err, broken)
	_, err = u.Write([]byte("x"))
	wantIs(t, err, ErrBroken, broken)
	wantIs(t, u.Sync(), ErrBroken, broken)
	wantIs(t, u.Publish(), ErrBroken, broken)
	s.want("/f", "old")
	s.wantClean()
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }
