package integration

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

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
