package lock_test

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestSystemClockTellsBothTimesAndTheBoot(t *testing.T) {
	clock := lock.NewSystemClock()
	before := clock.Now()
	for clock.Now().Boot == before.Boot { // a clock that moves
	}
	if now := clock.Now(); now.Boot < before.Boot || now.BootID != before.BootID || time.Since(now.Wall) > time.Minute {
		t.Errorf("%+v after %+v", now, before)
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil && before.BootID != strings.TrimSpace(string(id)) {
		t.Errorf("boot id %q, want %q", before.BootID, id)
	}
	if other := lock.NewSystemClock().Now(); other.BootID != before.BootID {
		t.Error("two clocks are in two boots")
	}
	if strings.Contains(before.Wall.String(), "m=") {
		t.Error("the wall time has a monotonic reading, which hides steps")
	}
}

func TestFakeClockMovesAsToldOnly(t *testing.T) {
	clock := locktest.NewFakeClock()
	start := clock.Now()
	if clock.Now() != start {
		t.Error("moves by itself")
	}
	clock.Advance(time.Minute)
	clock.StepWall(-time.Hour)
	now := clock.Now()
	if now.Boot-start.Boot != time.Minute || now.Wall.Sub(start.Wall) != time.Minute-time.Hour {
		t.Errorf("%+v after %+v", now, start)
	}
	clock.Reboot("boot-2", time.Second)
	if again := clock.Now(); again.Boot != 0 || again.BootID != "boot-2" || again.Wall.Sub(now.Wall) != time.Second {
		t.Errorf("%+v after %+v", again, now)
	}
}

func TestRunningClockGoesWithTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := locktest.NewRunningClock()
		start := clock.Now()
		time.Sleep(time.Hour)
		clock.Advance(time.Minute)
		now := clock.Now()
		if now.Boot-start.Boot != 61*time.Minute || now.Wall.Sub(start.Wall) != 61*time.Minute {
			t.Errorf("%+v after %+v", now, start)
		}
		clock.Reboot("boot-2", time.Second)
		time.Sleep(time.Second)
		if again := clock.Now(); again.Boot != time.Second || again.Wall.Sub(now.Wall) != 2*time.Second {
			t.Errorf("%+v after %+v", again, now)
		}
	})
}
