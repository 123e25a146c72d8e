package locktest

import (
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// FakeClock is a clock that tests move: time passes, the wall clock steps, and the machine restarts. It is for use by several goroutines.
type FakeClock struct {
	mu     sync.Mutex
	base   func() time.Time // the clock that it follows; nil: it stands still
	start  time.Time
	wall   time.Time
	boot   time.Duration
	bootID string
}

var _ lock.Clock = (*FakeClock)(nil)

// NewFakeClock returns a clock that stands still between its methods.
func NewFakeClock() *FakeClock {
	return &FakeClock{wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), boot: time.Hour, bootID: "boot-1"}
}

// NewRunningClock returns a clock that follows time.Now, also in a bubble of testing/synctest. Its methods move it further.
func NewRunningClock() *FakeClock {
	now := time.Now()
	return &FakeClock{base: time.Now, start: now, wall: now.Round(0), boot: time.Hour, bootID: "boot-1"}
}

// Now implements [lock.Clock].
func (c *FakeClock) Now() lock.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	var gone time.Duration
	if c.base != nil {
		gone = c.base().Sub(c.start)
	}
	return lock.Instant{Wall: c.wall.Add(gone), Boot: c.boot + gone}
}

// Exact implements [lock.Clock].
func (c *FakeClock) Exact() lock.Instant { return c.Now() }

// BootID identifies the boot.
func (c *FakeClock) BootID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bootID
}

// Advance moves both clocks forward. The suspend of a machine has the same effect: timers do not notice it.
func (c *FakeClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.boot = c.wall.Add(d), c.boot+d
}

// StepWall sets the wall clock forward or back, as an administrator or NTP does.
func (c *FakeClock) StepWall(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}

// Reboot begins another boot, with the time 0 since boot, after the machine was off for a time.
func (c *FakeClock) Reboot(id string, off time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.boot, c.bootID = c.wall.Add(off), 0, id
	if c.base != nil {
		gone := c.base().Sub(c.start)
		c.wall, c.start = c.wall.Add(gone), c.start.Add(gone)
	}
}
