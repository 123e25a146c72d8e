package journal

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// smallDisk is where a process of its own has a small disk.
const smallDisk = "FTPLOCKD_SMALL_DISK"

// A real disk gets full: grants are refused, a hundred releases of shared holds in a row are recorded, and a start goes on.
func TestARealFullDisk(t *testing.T) {
	dir := os.Getenv(smallDisk)
	if dir == "" {
		command := []string{"--mount", "sh", "-ec", `mount -t tmpfs -o size=400k ftplockd "$0"; exec "$@"`, t.TempDir(), os.Args[0], "-test.run=^TestARealFullDisk$"}
		if os.Geteuid() != 0 {
			command = append([]string{"--user", "--map-root-user"}, command...)
		}
		cmd := exec.Command("unshare", command...)
		cmd.Env = append(os.Environ(), smallDisk+"="+command[len(command)-3])
		out, err := cmd.CombinedOutput()
		if failed := new(exec.ExitError); err != nil && (!errors.As(err, &failed) || failed.ExitCode() != 1) && os.Getenv("FTPLOCKD_REQUIRE_CLIENTS") != "1" {
			t.Skipf("no mount here: %v\n%s", err, out)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	s := newScene(t)
	s.state = filepath.Join(dir, "state")
	s.options = func(o *Options) { o.MaxSize = DefaultMaxSize }
	if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, 200<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	l := s.mustOpen()
	var shared []lock.Hold
	for range 100 {
		r := s.grant(l, "/shared_lock")
		r.Hold.Shared = true
		s.commit(l, r)
		shared = append(shared, r.Hold)
	}
	others := s.fill(l)
	s.fillDisk(dir)
	for _, h := range shared {
		s.release(l, h)
	}
	if l.stuck.Load() || failed(l) {
		t.Error("a release did not find space")
	}
	s.crash(l)
	l, err := s.open()
	if err == nil {
		defer s.crash(l)
		if len(l.loaded.Holds) != len(others) {
			t.Errorf("%d holds, want %d", len(l.loaded.Holds), len(others))
		}
		return
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "junk")), os.Remove(filepath.Join(dir, "other"))); err != nil {
		t.Fatal(err)
	}
	if l = s.mustOpen(); len(l.loaded.Holds) != len(others) {
		t.Errorf("%d holds, want %d", len(l.loaded.Holds), len(others))
	}
	s.acquire(l, "/late_lock")
}

// fillDisk leaves no space on the disk.
func (s *scene) fillDisk(dir string) {
	s.Helper()
	f, err := os.Create(filepath.Join(dir, "junk"))
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		s.Fatal(err)
	}
	f.Close()
}
