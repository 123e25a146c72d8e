package hostdir_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// free returns the error of Make without directories: nil if the name is free.
func (s *scene) free(n lock.Name) error {
	s.Helper()
	was := s.off
	s.off = true
	d := s.opened()
	s.off = was
	id, err := d.Make(s.Context(), n)
	if id != (lock.DirectoryID{}) {
		s.Errorf("%s was made", n)
	}
	if d.Free(n) && err != nil || s.Free(n) {
		s.Errorf("%s is free without directories: %v, with them: %v; Make returns %v", n, d.Free(n), s.Free(n), err)
	}
	return err
}

func TestMakeReportsWhyANameIsTaken(t *testing.T) {
	s := newScene(t)
	s.write("/file_lock")
	s.check(os.Symlink("locks", s.real("/link_lock")))
	s.check(os.Symlink(".", s.real("/link_dir")))
	s.mkdir("/host_lock")
	s.mkdir("/full_lock")
	s.write("/full_lock/f")
	s.age("/host_lock", time.Hour)
	s.age("/full_lock", time.Hour)
	for name, want := range map[lock.Name]error{
		"/file_lock":   lock.ErrNotDirectory,
		"/link_lock":   lock.ErrNotDirectory,
		"/host_lock":   lock.ErrHeld,
		"/full_lock":   lock.ErrHeld,
		"/none/a_lock": lock.ErrNoParent,
		"/file_lock/a": lock.ErrNoParent,
		"/link_dir/a":  lock.ErrNoParent,
	} {
		for what, try := range map[string]func() error{
			"make":  func() error { _, err := s.Make(t.Context(), name); return err },
			"check": func() error { return s.free(name) },
			"job":   func() error { return s.Check(t.Context(), name) },
		} {
			err := try()
			want := want
			if what == "job" && want == lock.ErrNoParent { // its first change may make the parent
				want = nil
			}
			if what == "check" && want == lock.ErrHeld {
				want = fs.ErrExist // without directories any directory makes the name unusable for a lock
			}
			var host *lock.HostError
			if !errors.Is(err, want) || errors.As(err, &host) != (want == lock.ErrHeld) || err != nil && strings.Contains(err.Error(), s.root) {
				t.Errorf("%s %s: %v", what, name, err)
			}
			if host != nil && time.Since(host.Since).Round(time.Minute) != time.Hour {
				t.Errorf("held since %v", host.Since)
			}
		}
	}
	s.check(s.free("/free_lock"))
	s.wants("/free_lock", false)
}

// A kill between mkdir and the record leaves a directory.
func TestADirectoryThatACrashLeftDoesNotBlockTheName(t *testing.T) {
	s := newScene(t)
	for _, name := range []lock.Name{"/locks/empty", "/locks/full", "/locks/full2", "/locks/checked"} {
		_, err := s.Make(t.Context(), name)
		s.check(err)
	}
	s.write("/locks/full/f")
	s.write("/locks/full2/f")
	s.restart()
	s.acquire("/locks/empty")
	s.acquire("/locks/full")
	s.wants("/locks/full/f", false)
	if left := s.leftovers(); len(left) != 1 {
		t.Errorf("moved aside: %q", left)
	}
	s.check(s.free("/locks/checked"))
	s.wants("/locks/checked", false)

	_, err := s.Make(t.Context(), "/locks/again") // while earlier leftovers of the name exist
	s.check(err)
	for range 2 {
		s.rename("/locks/full2", "/locks/other")
		s.mkdir("/locks/full2")
		s.check(os.Chmod(s.real("/locks/full2"), 0o755|fs.ModeSticky))
		s.write("/locks/full2/f")
		s.check(s.free("/locks/full2"))
		s.check(os.RemoveAll(s.real("/locks/full2")))
		s.rename("/locks/other", "/locks/full2")
	}
	if left := s.leftovers(); len(left) != 3 {
		t.Errorf("moved aside: %q", left)
	}
}

func TestADirectoryOfTheHostIsNeverRemovedAsALeftover(t *testing.T) {
	s := newScene(t)
	refused := func(name lock.Name) {
		t.Helper()
		var host *lock.HostError
		if _, err := s.Make(t.Context(), name); !errors.As(err, &host) {
			t.Errorf("%s: %v", name, err)
		}
		s.wants(string(name), true)
	}
	s.mkdir("/a_lock")
	refused("/a_lock")
	if os.Getuid() == 0 {
		s.mkdir("/other_lock")
		s.check(os.Chmod(s.real("/other_lock"), 0o755|fs.ModeSticky))
		s.check(os.Chown(s.real("/other_lock"), 12345, -1))
		refused("/other_lock")
	}
	entries, err := os.ReadDir(s.root)
	s.check(err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("a probe left %s", e.Name())
		}
	}
}

// A mark proves nothing if the file system keeps none, or gives one to every directory.
func TestALeftoverWithoutAMarkBelongsToTheHost(t *testing.T) {
	for _, change := range []func(*faulty){func(f *faulty) { f.plain = true }, func(f *faulty) { f.sticky = true }} {
		s := newScene(t)
		change(s.fs)
		_, err := s.Make(t.Context(), "/locks/a")
		s.check(err)
		s.restart()
		var host *lock.HostError
		if _, err := s.Make(t.Context(), "/locks/a"); !errors.As(err, &host) {
			t.Error(err)
		}
	}
}

func TestRemoveKeepsOtherDirectories(t *testing.T) {
	s := newScene(t)
	full := s.acquire("/locks/full")
	s.write("/locks/full/f")
	if _, err := s.end(full, lock.CauseRelease); !errors.Is(err, lock.ErrNotEmpty) {
		t.Errorf("not empty: %v", err)
	}
	s.wants("/locks/full", true)

	replaced := s.acquire("/locks/replaced")
	s.replace("/locks/replaced")
	s.wantsGone(replaced)
	s.wants("/locks/replaced", true)

	file := s.acquire("/locks/file")
	s.rmdir("/locks/file")
	s.write("/locks/file")
	s.wantsGone(file)

	gone := s.acquire("/locks/gone")
	s.rmdir("/locks/gone")
	s.wantsGone(gone)

	s.mkdir("/dir")
	above := s.acquire("/dir/a_lock")
	s.rename("/dir", "/moved")
	s.release(above)
	s.wants("/moved/a_lock", true)

	s.mkdir("/locks/none")
	s.release(lock.Hold{Name: "/locks/none", Token: 1})
	s.wants("/locks/none", true)
}

func TestFilesInABrokenLockAreMovedAside(t *testing.T) {
	s := newScene(t)
	h := s.acquire("/locks/full")
	s.write("/locks/full/f")
	note, err := s.end(h, lock.CauseExpire)
	s.check(err)
	to, ok := strings.CutPrefix(note, "left over: ")
	if _, err := os.Stat(s.real(to + "/f")); !ok || err != nil {
		t.Errorf("%q: %v", note, err)
	}
	s.wants("/locks/full", false)
	empty := s.acquire("/locks/full")
	if note, err := s.end(empty, lock.CauseExpire); note != "" || err != nil {
		t.Errorf("%q, %v", note, err)
	}
	s.last = 0 // the state directory was lost, so tokens occur again
	h = s.acquire("/locks/full")
	s.write("/locks/full/f")
	if again, err := s.end(h, lock.CauseExpire); again == note || err != nil {
		t.Errorf("the same token again: %q, %v", again, err)
	}
}

func TestErrorsOfTheFileSystemAreReturned(t *testing.T) {
	s := newScene(t)
	h := lock.Hold{Name: "/locks/a", Directory: lock.DirectoryID{Inode: 5}}
	for _, fault := range []struct {
		open  func(string) error
		lstat error
	}{{lstat: syscall.EIO}, {open: func(name string) error { return &fs.PathError{Op: "open", Path: name, Err: syscall.EIO} }}} {
		s.fs.open, s.fs.lstat = fault.open, fault.lstat
		_, removed := s.Remove(t.Context(), h, lock.CauseRelease)
		_, _, restored := s.Restore(t.Context(), h)
		errs := []error{removed, restored}
		if fault.open != nil {
			_, made := s.Make(t.Context(), "/locks/a")
			errs = append(errs, made, s.free("/locks/a"))
		}
		for _, err := range errs {
			if !errors.Is(err, syscall.EIO) {
				t.Error(err)
			}
		}
	}
	if _, err := s.Remove(t.Context(), lock.Hold{Name: "/locks/a"}, lock.CauseRelease); err != nil {
		t.Errorf("a hold without a directory: %v", err)
	}
}

func TestADirectoryThatTheHostRemovesAtTheSameMomentIsGone(t *testing.T) {
	s := newScene(t)
	vanish := func() {}
	s.valid = func() error { vanish(); return nil }
	s.restart()
	h := s.acquire("/locks/a")
	vanish = func() { s.rmdir("/locks/a") }
	s.wantsGone(h)
}

// ext2, and ext4 with inodes of 128 bytes. A new directory gets the inode of the removed one.
func TestWithoutTimesOfBirthAReplacedDirectoryIsTheHosts(t *testing.T) {
	s := newScene(t)
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	s.restart()
	if s.WarnOfFileSystems(); log.Len() > 0 {
		t.Skipf("the file system of the test has none itself: %s", &log)
	}
	s.fs.old = true
	if s.WarnOfFileSystems(); strings.Count(log.String(), "no birth times") != 1 {
		t.Errorf("logged: %s", &log)
	}
	s.release(s.acquire("/locks/a"))
	s.wants("/locks/a", false)
	h := s.acquire("/locks/a")
	s.gone(h, false)
	if id, gone := s.restored(h); gone || id != h.Directory {
		t.Errorf("restored: %v, %v", id, gone)
	}
	s.rmdir("/locks/a")
	s.mkdir("/locks/a")
	s.gone(h, true)
	if _, gone := s.restored(h); !gone {
		t.Error("replaced, and the hold stands after a start")
	}
	s.wantsGone(h)
	s.wants("/locks/a", true)
}

// A server that freezes between a check and a change may wake after another server took over.
func TestAServerThatWasReplacedChangesNoDirectory(t *testing.T) {
	replaced := errors.New("replaced")
	for what, change := range map[string]func(s *scene, h lock.Hold) error{
		"make":         func(s *scene, _ lock.Hold) error { _, err := s.Make(s.Context(), "/locks/new"); return err },
		"make over it": func(s *scene, h lock.Hold) error { _, err := s.Make(s.Context(), h.Name); return err },
		"check its name": func(s *scene, h lock.Hold) error {
			s.off = true
			_, err := s.opened().Make(s.Context(), h.Name)
			return err
		},
		"remove": func(s *scene, h lock.Hold) error { _, err := s.Remove(s.Context(), h, lock.CauseRelease); return err },
		"sweep":  func(s *scene, _ lock.Hold) error { clear(s.held); return s.Sweep(s.Context()) },
		"move aside": func(s *scene, h lock.Hold) error {
			s.write("/locks/a/f")
			valid := s.valid
			calls := 0
			s.valid = func() error { // until rmdir has failed
				if calls++; calls == 1 {
					return nil
				}
				return valid()
			}
			s.restart()
			_, err := s.Remove(s.Context(), h, lock.CauseExpire)
			return err
		},
	} {
		s := newScene(t)
		h := s.acquire("/locks/a")
		s.valid = func() error { return replaced }
		s.restart()
		if err := change(s, h); !errors.Is(err, replaced) {
			t.Errorf("%s: %v", what, err)
		}
		s.wants("/locks/a", true)
		s.wants("/locks/new", false)
	}
}
