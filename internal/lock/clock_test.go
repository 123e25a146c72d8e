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
