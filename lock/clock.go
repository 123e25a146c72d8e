package lock

import (
	"os"
	"strings"
	"time"
)

// SystemClock is the machine's clock: wall time, and the time since boot with suspend
// counted (CLOCK_BOOTTIME). Use [NewSystemClock].
type SystemClock struct {
	boot  string
	start time.Time
}

var _ Clock = (*SystemClock)(nil)

// NewSystemClock finds out which boot this is. Where the system does not say, BootID is "", boot
// time counts from now, and ages go by wall time across a restart.
func NewSystemClock() *SystemClock {
	c := &SystemClock{start: time.Now()}
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		c.boot = strings.TrimSpace(string(id))
	}
	if _, ok := sinceBoot(); !ok {
		c.boot = ""
	}
	return c
}

// Now implements [Clock].
func (c *SystemClock) Now() Instant {
	now := time.Now()
	wall := now.Round(0) // without the monotonic reading, by which steps would not be seen
	if c.boot != "" {
		if boot, ok := sinceBoot(); ok {
			return Instant{Wall: wall, Boot: boot, BootID: c.boot}
		}
	}
	return Instant{Wall: wall, Boot: now.Sub(c.start)}
}
