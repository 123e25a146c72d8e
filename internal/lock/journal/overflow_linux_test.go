package journal

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// TestAnOverflowOfTheQueueIsMadeUpFor floods the watches before anybody reads them.
func TestAnOverflowOfTheQueueIsMadeUpFor(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Skip(err)
	}
	room, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || room > 50_000 {
		t.Skipf("the queue holds %d notices", room)
	}
	s := newScene(t)
	s.mkdir("/locks")
	store := s.mustOpen()
	s.acquire(store, "/locks/a", "ada")
	s.write("/locks/1")
	for i := 0; i < room; i += 4 { // each rename is two notices
		for _, names := range [][2]string{{"/locks/1", "/locks/2"}, {"/locks/2", "/locks/1"}} {
			if err := os.Rename(s.tree.real(names[0]), s.tree.real(names[1])); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.mkdir("/locks/b")
	s.rmdir("/locks/a")
	next := s.watch(store)
	if event := next("/locks/a"); event.Cause != lock.CauseHostGone {
		t.Errorf("got %+v", event)
	}
	if event := next("/locks/b"); event.Cause != lock.CauseHostMade {
		t.Errorf("got %+v", event)
	}
}
