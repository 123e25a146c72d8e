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
	since bootTime
}

var _ Clock = (*SystemClock)(nil)

// NewSystemClock finds out which boot this is. Where the system does not say, BootID is "", boot
// time counts from now, and ages go by wall time across a restart.
func NewSystemClock() *SystemClock {
	c := &SystemClock{start: time.Now()}
	c.since = bootTime{look: c.look, call: sinceBoot}
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		c.boot = strings.TrimSpace(string(id))
	}
	if _, ok := sinceBoot(); !ok {
		c.boot = ""
	}
	return c
}

// Now implements [Clock]. It is no system call, nearly always.
func (c *SystemClock) Now() Instant {
	if c.boot != "" {
		if wall, boot, ok := c.since.now(); ok {
			return Instant{Wall: wall, Boot: boot, BootID: c.boot}
		}
	}
	r := c.look()
	return Instant{Wall: r.wall, Boot: r.mono}
}

func (c *SystemClock) look() reading {
	now := time.Now()
	return reading{wall: now.Round(0), mono: now.Sub(c.start)}
}
