package integration

import (
	"os"
	"path/filepath"
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
			await(t, "the lock ends", func() bool { return other.wantEither("MKD /locks/a").code == 257 })
			if took := time.Since(sent); took < 2*time.Second {
				t.Errorf("free after %v", took)
			}
			holder.want(550, "RMD /locks/a", "taken away", "older than 2s")
			other.want(250, "RMD /locks/a")
		})
	}
}

func TestServerStartedOnATreeFullOfDataLosesNothing(t *testing.T) {
	t.Parallel()
	s, clock := newStepped(t, "[[lock]]\nmatch = \"**\"\nmax_age = \"1m\"\n")
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
	for range 2 {
		clock.pass(time.Hour)
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
