package files

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// leave makes a directory with a file in it and moves it aside.
func (s *served) leave(name string, token uint64) string {
	s.t.Helper()
	s.mkdir(name)
	s.put(name+"/f", name)
	to, err := s.Aside(name, "ada", token)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := os.Lstat(s.host(name)); !errors.Is(err, fs.ErrNotExist) {
		s.t.Errorf("%s is still there: %v", name, err)
	}
	return to
}

func TestAsideGivesEachLeftoverItsOwnName(t *testing.T) {
	s := serve(t, Options{})
	names := make(map[string]string)
	for i, of := range []string{
		"/a_lock", "/a_lock", "/a_lock", "/a/b_lock", "/a-b_lock", "/latin1-\xe9_lock", "/\xff\xfe", "/%2e%2e", "/..lock",
		"/" + strings.Repeat("long", 60), "/" + strings.Repeat("long", 60), "/" + strings.Repeat("\xe9", 250), strings.Repeat("/deep", 300),
	} {
		to := s.leave(of, uint64(i/2)) // each token twice, as after the state directory was lost
		if before, ok := names[to]; ok {
			t.Errorf("%q and %q both became %q", before, of, to)
		}
		names[to] = of
		if path.Dir(to) != Leftovers || !IsLeftover(to) || !Hidden(to) || len(path.Base(to)) > 255 {
			t.Errorf("%q became %q", of, to)
		}
	}
	for to, of := range names {
		s.want(to+"/f", of)
	}
	if info, err := os.Stat(s.host(Leftovers)); err != nil || info.Mode().Perm() != 0o700 { // even if more accounts could read the lock
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestWhichNamesAreHidden(t *testing.T) {
	for name, want := range map[string]bool{
		".ftplockd-leftovers": true, "/.ftplockd-leftovers": true, "/.ftplockd-leftovers/1-x/f": true, ".ftplockd-leftover-1-x": true,
		"/dir/.ftplockd-leftover-1-x/f": true, "x/.ftplockd-leftover-": true,
		"": false, "/": false, ".": false, "leftovers": false, ".leftovers": false, "x.ftplockd-leftover-1": false, "/locks/a": false,
		".ftplockd": false, ".lftp-deployment.lock": false, ".ftplockd-": true, "/a/.ftplockd-x": true,
	} {
		if got := Hidden(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
	for name, want := range map[string]bool{
		"/.ftplockd-leftovers/1-x": true, ".ftplockd-leftovers/1-x": true, "dir/.ftplockd-leftover-1-x": true,
		"/.ftplockd-leftovers": false, "/.ftplockd-leftovers/1-x/f": false, ".": false, "/": false, "/dir/.ftplockd-leftovers/x": false,
		"/a": false,
	} {
		if got := IsLeftover(name); got != want {
			t.Errorf("leftover %q: %t", name, got)
		}
	}
}

func TestOldLeftoversAreRemovedRecursively(t *testing.T) {
	now := time.Now()
	s := serve(t, Options{})
	s.now = func() time.Time { return now }
	if err := s.SweepLeftovers(now); err != nil { // there are none yet
		t.Fatal(err)
	}
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "f"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	now = now.Add(-8 * 24 * time.Hour)
	s.mkdir("/old/sub/sub")
	s.put("/old/sub/f", "x")
	s.put("/old/.hidden", "x")
	s.put("/old/.ftplockd-0123456789abcdef", "of an upload that a crash left behind")
	s.link(outside, "/old/link")
	s.link("sub", "/old/inner")
	s.mkdir("/kept")
	s.put("/kept/f", "x")
	old := s.leave("/old", 1)
	now = now.Add(2 * 24 * time.Hour)
	s.mkdir("/young") // the age counts from the move, even if the directory is old
	if err := os.Chtimes(s.host("/young"), unixEpoch, unixEpoch); err != nil {
		t.Fatal(err)
	}
	young := s.leave("/young", 2)
	if err := s.SweepLeftovers(now.Add(-24 * time.Hour)); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(s.host(old)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", old, err)
	}
	s.want(young+"/f", "/young")
	s.want("/kept/f", "x")
	if _, err := os.Stat(filepath.Join(outside, "f")); err != nil {
		t.Errorf("outside of the tree: %v", err)
	}
}

// If a lock lies on another file system than the top of the tree, its leftovers stay beside it, hidden too.
func TestAsideStaysOnTheFileSystemOfTheLock(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/mnt/a_lock")
	s.put("/mnt/a_lock/f", "x")
	s.beforeCall = onceFor("rename", unix.EXDEV)
	to, err := s.Aside("/mnt/a_lock", "ada", 7)
	s.beforeCall = nil
	if err != nil {
		t.Fatal(err)
	}
	if path.Dir(to) != "/mnt" || !Hidden(to) || !IsLeftover(to) {
		t.Errorf("it is %q", to)
	}
	s.want(to+"/f", "x")
	if infos, err := s.ReadDir("/mnt"); len(infos) != 0 || err != nil {
		t.Errorf("seen: %v, %v", infos, err)
	}
}
