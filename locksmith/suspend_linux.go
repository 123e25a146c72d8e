package locksmith

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns the time in which the machine was suspended since it started. CLOCK_BOOTTIME counts that time, CLOCK_MONOTONIC does not.
func suspended() time.Duration {
	var boot, monotonic unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0
	}
	return time.Duration(boot.Nano() - monotonic.Nano()).Round(100 * time.Millisecond) // the two clocks are not read at the same moment
}
