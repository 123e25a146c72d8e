package lock_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestSystemClockReturnsBothTimesAndTheBootID(t *testing.T) {
	clock := lock.NewSystemClock()
	before := clock.Now()
	for clock.Now().Boot == before.Boot { // a clock that moves
	}
	if now := clock.Now(); now.Boot < before.Boot || time.Since(now.Wall) > time.Minute {
		t.Errorf("%+v after %+v", now, before)
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil && clock.BootID() != strings.TrimSpace(string(id)) {
		t.Errorf("boot id %q, want %q", clock.BootID(), id)
	}
	if strings.Contains(before.Wall.String(), "m=") {
		t.Error("the wall time has a monotonic reading, which hides steps")
	}
}

// A container with a time namespace has the boot id of its machine, and another time since boot.
func TestBootIDNamesTheTimeNamespace(t *testing.T) {
	for offsets, want := range map[string]string{
		"monotonic           0         0\nboottime            0         0\n": "",
		"monotonic           0         0\nboottime         7200         0\n": "+7200.0",
		"monotonic           5         0\nboottime           -1       500\n": "+-1.500",
		"": "",
	} {
		if got := lock.BootOffset(offsets); got != want {
			t.Errorf("%q gives %q, want %q", offsets, got, want)
		}
	}
}
