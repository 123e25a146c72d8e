package lock

import (
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// SystemClock is the machine's clock: wall time, and the time since boot with suspend counted. Use [NewSystemClock].
//
// CLOCK_BOOTTIME costs a system call, and Go's monotonic clock none. So Now adds the difference between the two, which grows only in
// a suspend, and Exact measures it anew. Call Exact at least once a second.
type SystemClock struct {
	bootID string
	start  time.Time
	offset atomic.Int64 // from the monotonic time since start to the time since boot, in nanoseconds
}

var _ Clock = (*SystemClock)(nil)

// NewSystemClock reads the id of the boot. Where the system has no time since boot (all but Linux), BootID
// is "", Boot counts from now and stands still while the machine is suspended.
func NewSystemClock() *SystemClock {
	c := &SystemClock{start: time.Now()}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if _, ok := sinceBoot(); ok && err == nil {
		offsets, _ := os.ReadFile("/proc/self/timens_offsets") // Linux 5.6
		c.bootID = strings.TrimSpace(string(id)) + bootOffset(string(offsets))
	}
	c.Exact()
	return c
}

// bootOffset returns the offset of the time since boot in a time namespace (a container), as a part of BootID: another namespace of the same
// boot has another clock. It returns "" without an offset.
func bootOffset(offsets string) string {
	for line := range strings.Lines(offsets) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "boottime" && (f[1] != "0" || f[2] != "0") {
			return "+" + f[1] + "." + f[2]
		}
	}
	return ""
}

// BootID identifies the boot, and the time namespace if it has a clock of its own; "" where the system has no such id.
func (c *SystemClock) BootID() string { return c.bootID }

// Now implements [Clock].
func (c *SystemClock) Now() Instant {
	now := time.Now()
	return Instant{Wall: now.Round(0), Boot: now.Sub(c.start) + time.Duration(c.offset.Load())} // Round(0) strips the monotonic reading, which hides steps
}

// Exact implements [Clock]. It returns its own reading: another goroutine may store an older offset meanwhile.
func (c *SystemClock) Exact() Instant {
	now := c.Now()
	if c.bootID == "" {
		return now
	}
	if boot, ok := sinceBoot(); ok {
		now.Boot = boot
		c.offset.Store(int64(boot - time.Since(c.start)))
	}
	return now
}
