//go:build linux

package files

import (
	"os"
	"strings"
	"testing"
)

// retained returns how many removed files of the tree the process has open.
func (s *served) retained() (open int) {
	s.t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, s.root) && strings.HasSuffix(to, " (deleted)") {
			open++
		}
	}
	return open
}

// The blocks of a replaced or removed file are freed after the change, when its caller holds no mutex.
func TestALargeFileIsFreedAfterTheChange(t *testing.T) {
	s := serve(t, Options{})
	large := strings.Repeat("x", retainFrom)
	for _, c := range []struct {
		name, old string
		want      int
	}{{"large", large, 1}, {"small", "x", 0}} {
		for how, change := range map[string]func() (release func()){
			"removal": func() func() {
				release := s.Retain("/f")
				if err := s.RemoveFile("/f", nil); err != nil {
					t.Error(err)
				}
				return release
			},
			"rename": func() func() {
				s.put("/new", "")
				release := s.Retain("/f")
				if err := s.Rename("/new", "/f"); err != nil {
					t.Error(err)
				}
				return release
			},
			"upload": func() func() {
				u := s.begun("/f", "new", UploadOptions{})
				if err := u.Sync(); err != nil {
					t.Error(err)
				}
				if err := u.Place(); err != nil {
					t.Error(err)
				}
				return func() {
					if err := u.Finish(); err != nil {
						t.Error(err)
					}
				}
			},
		} {
			s.put("/f", c.old)
			release := change()
			if got := s.retained(); got != c.want {
				t.Errorf("%s of a %s file: %d files are kept, want %d", how, c.name, got, c.want)
			}
			release()
			if got := s.retained(); got != 0 {
				t.Errorf("%s of a %s file: %d files are kept after it", how, c.name, got)
			}
		}
	}
	s.Retain("/none")()
}
