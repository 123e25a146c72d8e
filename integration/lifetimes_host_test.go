package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

func TestDirectoryMadeOnTheHostIsTheHosts(t *testing.T) {
	t.Parallel()
	s := startServer(t, hour)
	c := s.session(account)
	if err := os.Mkdir(s.path("locks/host"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.Want(550, "MKD /locks/host", "held by host since ")
	c.Want(550, "RMD /locks/host")
	c.Want(257, "MKD /locks/job") // what it refuses is not remembered
	if held := s.locks(); len(held) != 1 || held[0].Name != "/locks/job" {
		t.Errorf("locks --json: %+v", held)
	}
	if err := os.Remove(s.path("locks/host")); err != nil {
		t.Fatal(err)
	}
	c.Want(257, "MKD /locks/host")
	c.Want(250, "RMD /locks/host")
}

// The article's cron cleaner removes the directory, and an uploader comes right after it.
func TestMkdRightAfterAnRmdirOnTheHost(t *testing.T) {
	t.Parallel()
	s := startServer(t, hour)
	c, other := s.session(account), s.session("other")
	for range count(20, 500) {
		c.Want(257, "MKD /locks/job")
		if err := os.Remove(s.path("locks/job")); err != nil {
			t.Fatal(err)
		}
		other.Want(257, "MKD /locks/job")
		other.Want(250, "RMD /locks/job")
	}
}

// The cleaner goes by modification times, which therefore must be those of the present hold.
func TestArticleCronCleanerSparesFreshAndRenewedLocks(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	s := startServer(t, "[[lock]]\nmatch = \"**/*_lock\"\nmax_age = \"1h\"\n")
	first, second := s.session(account), s.session(account)
	first.Want(200, "SITE LOCK AS job")
	second.Want(200, "SITE LOCK AS job")
	for _, name := range []string{"adopted_lock", "renewed_lock", "taken_lock", "old_lock"} {
		first.Want(257, "MKD /"+name)
	}
	past := time.Now().Add(-10 * time.Minute)
	paths, err := filepath.Glob(s.path("*_lock"))
	if err != nil || len(paths) != 4 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
	}
	second.Want(257, "MKD /adopted_lock")
	first.Want(200, "SITE LOCK RENEW /renewed_lock")
	first.Want(250, "RMD /taken_lock")
	s.session("other").Want(257, "MKD /taken_lock")
	if out := mustRun(t, "perl", "testdata/article/cleaner.pl", s.root, "6"); out != "removed "+s.path("old_lock")+"\n" {
		t.Errorf("the cleaner says %q", out)
	}
	s.log.Await(t, "lock=/old_lock cause=host-removed", 1)
	first.Want(550, "RMD /old_lock", "taken away", "removed on the server")
	second.Want(250, "RMD /adopted_lock")
	first.Want(250, "RMD /renewed_lock")
}

// A lock root that somebody removes on the server's machine is made again by the next MKD below it.
func TestALockRootThatIsGoneIsMadeAgain(t *testing.T) {
	t.Parallel()
	for _, directories := range []bool{false, true} {
		t.Run(fmt.Sprintf("directories=%v", directories), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, fmt.Sprintf("[locks]\ndirectories = %v\n", directories)+hour)
			c := s.session(account)
			c.Want(257, "MKD /locks/before")
			c.Want(250, "RMD /locks/before")
			if err := os.Remove(s.path("locks")); err != nil {
				t.Fatal(err)
			}
			c.Want(257, "MKD /locks/job")
			s.log.Await(t, "was made again", 1)
			c.Want(250, "RMD /locks/job")
			c.Want(550, "MKD /locks/no/job", "no such directory")
		})
	}
}

// Where locks have no directories any more, those that they had are in nobody's way, and no program on the host holds one.
func TestLocksWithoutDirectoriesAfterLocksWithThem(t *testing.T) {
	t.Parallel()
	s := newServer(t, "[locks]\ndirectories = true\n"+hour)
	s.start()
	c := s.session(account)
	c.Want(257, "MKD /locks/held")
	if err := os.Mkdir(s.path("locks/hosts"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.Want(550, "MKD /locks/hosts", "held by host since ")
	s.stop()
	s.configure("[locks]\ndirectories = false\n" + hour)
	s.start()
	if held := s.locks(); len(held) != 1 || held[0].Name != "/locks/held" {
		t.Errorf("held: %+v", held)
	}
	c = s.session(account)
	c.Want(250, "RMD /locks/held")
	c.Want(257, "MKD /locks/held")
	if err := os.Remove(s.path("locks/hosts")); err != nil {
		t.Error(err)
	}
	c.Want(257, "MKD /locks/hosts")
}
