package lock

import (
	"os"
	"strings"
	"time"
)

// SystemClock is the machine's clock: wall time, and the time since boot with suspend
// counted. Use [NewSystemClock].
type SystemClock struct {
	boot  string
	start time.Time
}

var _ Clock = (*SystemClock)(nil)

// NewSystemClock finds out which boot this is. Where the system does not tell the time since boot (all but Linux), BootID
// is "", Boot counts from now and stands still while the machine is suspended, and ages go by wall time across a restart.
func NewSystemClock() *SystemClock {
	c := &SystemClock{start: time.Now()}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if _, ok := sinceBoot(); ok && err == nil {
		c.boot = strings.TrimSpace(string(id))
	}
	return c
}

// Now implements [Clock].
func (c *SystemClock) Now() Instant {
	now := time.Now()
	i := Instant{Wall: now.Round(0), Boot: now.Sub(c.start), BootID: c.boot} // without the monotonic reading, which hides steps
	if c.boot != "" {
		i.Boot, _ = sinceBoot()
	}
	return i
}
