package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each start begins a new file of the journal and keeps the one before as history, as long and as much of it as the configuration says.
func TestTheHistoryIsKeptAsLongAsConfigured(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		keys string   // SIZE has room for one file, and none for two
		days int      // so old are the files of the first two starts
		kept []string // of the locks of three starts
	}{
		{"all of it", "history_days = 0\nhistory_size = \"0\"", 10_000, []string{"/locks/1", "/locks/2", "/locks/3"}},
		{"some days", "history_days = 30", 31, []string{"/locks/3"}},
		{"some days, and younger", "history_days = 30", 29, []string{"/locks/1", "/locks/2", "/locks/3"}},
		{"so many bytes", "history_size = \"SIZE\"", 0, []string{"/locks/3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, defaults)
			for i := range 3 {
				s.start()
				c := s.session(account)
				name := fmt.Sprint("/locks/", i+1)
				c.Want(257, "MKD "+name)
				c.Want(250, "RMD "+name)
				s.stop()
			}
			past := time.Now().Add(-time.Duration(tc.days)*24*time.Hour - time.Hour)
			files, err := filepath.Glob(filepath.Join(s.state, "journal", "00*"))
			if err != nil || len(files) != 3 {
				t.Fatalf("the journal has %q, %v", files, err)
			}
			var size int64
			for _, file := range files[:2] {
				if err := os.Chtimes(file, past, past); err != nil {
					t.Fatal(err)
				}
				info, err := os.Stat(file)
				if err != nil {
					t.Fatal(err)
				}
				size = info.Size()
			}
			s.configure("[locks]\n" + strings.Replace(tc.keys, "SIZE", fmt.Sprint(size/1024+1, "KiB"), 1) + "\n" + defaults)
			s.start()
			var kept []string
			for _, name := range []string{"/locks/1", "/locks/2", "/locks/3"} {
				if strings.Contains(s.command("history", name), " acquire ") {
					kept = append(kept, name)
				}
			}
			if !slices.Equal(kept, tc.kept) {
				t.Errorf("the history tells of %q, want %q\n%s", kept, tc.kept, s.log)
			}
			s.log.Await(t, "an old file of the history was removed", 3-len(tc.kept))
		})
	}
}
