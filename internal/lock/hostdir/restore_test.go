package hostdir_test

import (
	"os"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// restored restores one hold as a start does.
func (s *scene) restored(h lock.Hold) (lock.DirectoryID, bool) {
	s.Helper()
	id, gone, err := s.Restore(s.Context(), h)
	s.check(err)
	if gone && id != (lock.DirectoryID{}) {
		s.Errorf("%s is gone and has a directory", h.Name)
	}
	return id, gone
}

func TestAStartComparesHoldsWithTheirDirectories(t *testing.T) {
	s := newScene(t)
	none := lock.DirectoryID{}
	same, missing, replaced := s.acquire("/locks/same"), s.acquire("/locks/missing"), s.acquire("/locks/replaced")
	back, file := s.acquire("/locks/back"), s.acquire("/locks/file")
	s.mkdir("/dir")
	above := s.acquire("/dir/a_lock")
	s.rmdir("/locks/missing")
	s.replace("/locks/replaced")
	s.replace("/locks/back")
	s.check(os.Chmod(s.real("/locks/back"), 0o755|os.ModeSticky)) // a backup brings directories back with their marks
	s.rmdir("/locks/file")
	s.write("/locks/file")
	s.rename("/dir", "/moved")
	s.restart()

	if id, gone := s.restored(same); id != same.Directory || gone {
		t.Errorf("the same: %v, %v", id, gone)
	}
	id, gone := s.restored(missing)
	if id == none || gone || !s.marked("/locks/missing") {
		t.Errorf("missing: %v, %v", id, gone)
	}
	missing.Directory = id
	if _, gone := s.restored(replaced); !gone {
		t.Error("replaced, and the hold stands")
	}
	if id, gone := s.restored(back); id == none || id == back.Directory || gone {
		t.Errorf("brought back: %v, %v", id, gone)
	}
	if id, gone := s.restored(file); id != none || gone {
		t.Errorf("a file: %v, %v", id, gone)
	}
	if id, gone := s.restored(above); id != none || gone {
		t.Errorf("without a parent: %v, %v", id, gone)
	}
	s.mkdir("/locks/host")
	if id, gone := s.restored(lock.Hold{Name: "/locks/host", Token: 90}); id != none || gone {
		t.Errorf("the host's, of a lock without one: %v, %v", id, gone)
	}
	s.wants("/locks/host", true)

	s.gone(same, false)
	s.gone(missing, false)
	s.rmdir("/locks/same")
	s.rmdir("/locks/missing")
	s.gone(same, true)
	s.gone(missing, true)
}

func TestAStartWithoutDirectoriesKeepsThoseOfHolds(t *testing.T) {
	s := newScene(t)
	stays, replaced := s.acquire("/locks/stays"), s.acquire("/locks/replaced")
	s.replace("/locks/replaced")
	s.off = true
	s.restart()
	if id, gone := s.restored(lock.Hold{Name: "/locks/none", Token: 90}); id != (lock.DirectoryID{}) || gone {
		t.Errorf("none: %v, %v", id, gone)
	}
	if _, gone := s.restored(replaced); !gone {
		t.Error("replaced, and the hold stands")
	}
	if id, gone := s.restored(stays); id != stays.Directory || gone {
		t.Errorf("the same: %v, %v", id, gone)
	}
	s.release(stays)
	s.wants("/locks/stays", false)
	id, err := s.Create(t.Context(), "/locks/later") // for the first file in a lock
	s.check(err)
	s.wants("/locks/later", true)
	s.release(lock.Hold{Name: "/locks/later", Directory: id})
	s.wants("/locks/later", false)
}
