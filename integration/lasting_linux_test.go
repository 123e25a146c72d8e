package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// What is done to names is synced before its reply, where files are to last.
func TestChangesOfNamesAreSynced(t *testing.T) {
	t.Parallel()
	harness.Need(t, "strace")
	for _, durable := range []bool{true, false} {
		t.Run(map[bool]string{true: "durable", false: "not durable"}[durable], func(t *testing.T) {
			t.Parallel()
			s := newServer(t, fmt.Sprintf("[files]\ndurable = %t\n[locks]\ndirectories = false\n", durable)+defaults)
			trace := filepath.Join(t.TempDir(), "trace")
			s.through = []string{"strace", "-D", "-f", "-qq", "-y", "-e", "trace=fsync", "-e", "signal=none", "-o", trace}
			s.start()
			c := s.session(account)
			c.Want(257, "MKD /dir")
			s.write("dir/old", "old")
			s.write("gone", "old")
			for _, change := range []struct {
				lines []string
				dirs  []string // that must be synced by the last of the lines
			}{
				{[]string{"MKD /dir/below"}, []string{"dir"}},
				{[]string{"RNFR /dir/old", "RNTO /new"}, []string{"dir", ""}},
				{[]string{"DELE /gone"}, []string{""}},
				{[]string{"RMD /dir/below"}, []string{"dir"}},
				{[]string{"MKD /dir/phone_lock", "MKD /dir/phone_lock/plain"}, []string{"dir", "dir/phone_lock"}}, // the first one makes no directory
			} {
				before := synced(t, trace)
				for _, line := range change.lines {
					if r, err := c.Try(line); err != nil || r.Code >= 400 {
						t.Fatal(line, r, err)
					}
				}
				for _, dir := range change.dirs {
					what := "<" + filepath.Join(s.root, dir) + ">"
					got := strings.Count(synced(t, trace), what) > strings.Count(before, what)
					if got != durable {
						t.Errorf("%q: %s is synced: %v", change.lines, what, got)
					}
				}
			}
		})
	}
}

// synced is what strace has written down so far.
func synced(t *testing.T, trace string) string {
	t.Helper()
	lines, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	return string(lines)
}
