package integration

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

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
		s.wantFile(t, name, content)
	}
	for _, d := range directories {
		if info, err := os.Stat(d); err != nil || !info.IsDir() {
			t.Errorf("%s is lost: %v", d, err)
		}
	}
}
