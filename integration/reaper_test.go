package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLockEndsAtItsAge(t *testing.T) {
	t.Parallel()
	for _, directories := range []string{"true", "false"} {
		t.Run("directories="+directories, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "[locks]\ndirectories = "+directories+"\n[[lock]]\nmatch = \"/locks/**\"\nmax_age = \"2s\"\n")
			holder, other := s.session(account), s.session("other")
			sent := time.Now()
			holder.want(257, "MKD /locks/a", "expires in 2s")
			answered := time.Now()
			var asked time.Time
			for {
				asked = time.Now()
				if other.wantEither("MKD /locks/a").code == 257 {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if early := time.Since(sent); early < 2*time.Second {
				t.Errorf("free after %v", early)
			}
			if late := asked.Sub(answered); late > 3200*time.Millisecond {
				t.Errorf("held for %v", late)
			}
			holder.want(550, "RMD /locks/a", "taken away", "older than 2s")
			other.want(250, "RMD /locks/a")
		})
	}
}

func TestHostMadeLockIsSeenAndReapedByItsRule(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[[lock]]\nmatch = \"/locks/**\"\nmax_age = \"3s\"\n")
	c := s.session(account)
	made := time.Now()
	if err := os.Mkdir(s.path("locks/by-host"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.want(550, "MKD /locks/by-host", "held by host")
	c.want(550, "RMD /locks/by-host", "not yours")
	c.want(211, "SITE LOCKS /locks/by-host", "held by host")
	await(t, "the lock ends", func() bool { return c.wantEither("MKD /locks/by-host").code == 257 })
	if took := time.Since(made); took < 3*time.Second-10*time.Millisecond || took > 5*time.Second {
		t.Errorf("ended after %v", took)
	}
}

func TestADirectoryWithSomethingInItIsNobodysLock(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[[lock]]\nmatch = \"/locks/**\"\nmax_age = \"1s\"\n")
	s.write("locks/full/precious", "data")
	c := s.session(account)
	c.want(550, "MKD /locks/full", "not empty", "no lock")
	c.want(211, "SITE LOCKS", "no locks are held")
	// A few rounds of the reaper, which another lock's end proves.
	for range 3 {
		c.want(257, "MKD /locks/clock")
		await(t, "another lock ends", func() bool {
			return strings.Contains(c.wantEither("SITE LOCK INFO /locks/clock").text, "not held")
		})
	}
	c.want(550, "MKD /locks/full", "not empty")
	c.want(550, "RMD /locks/full", "not empty")
	if got := s.read("locks/full/precious"); got != "data" {
		t.Errorf("it is %q", got)
	}
}

func TestServerStartedOnATreeFullOfDataLosesNothing(t *testing.T) {
	t.Parallel()
	s := newServer(t, "[[lock]]\nmatch = \"**\"\nmax_age = \"1s\"\n")
	want := make(map[string]string)
	for _, name := range []string{"top", "a/one", "a/b/two", "a/b/c/d/three", "home/you/.profile", "locks/x/notes", ".ftplockd-mine"} {
		want[name] = "content of " + name
		s.write(name, want[name])
	}
	old := time.Now().Add(-24 * time.Hour)
	var directories []string
	if err := filepath.WalkDir(s.root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			directories = append(directories, path)
			err = os.Chtimes(path, old, old)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.start()
	c := s.session(account)
	for range 2 {
		c.want(257, "MKD /clock")
		await(t, "a lock ends", func() bool { return c.wantEither("SITE LOCK INFO /clock").code == 550 })
	}
	for name, content := range want {
		if got := s.read(name); got != content {
			t.Errorf("%s is %q", name, got)
		}
	}
	for _, d := range directories {
		if info, err := os.Stat(d); err != nil || !info.IsDir() {
			t.Errorf("%s is lost: %v", d, err)
		}
	}
}
