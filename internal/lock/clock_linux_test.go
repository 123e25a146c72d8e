package lock_test

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestExactIsNeverLateWhileOtherGoroutinesReadTheClock(t *testing.T) {
	clock := lock.NewSystemClock()
	end := time.Now().Add(100 * time.Millisecond)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for time.Now().Before(end) {
				var before unix.Timespec
				if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &before); err != nil {
					t.Error(err)
					return
				}
				if boot := clock.Exact().Boot; boot < time.Duration(before.Nano()) {
					t.Errorf("%v before CLOCK_BOOTTIME", time.Duration(before.Nano())-boot)
					return
				}
			}
		})
	}
	all.Wait()
}
