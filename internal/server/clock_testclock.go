//go:build testclock

package server

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// envClock names the file that steps the clock of a server built with the tag testclock. It is JSON, and each reading of the clock reads it:
// {"wall": "-1h", "boot": "30s", "boot_id": "another"}. "wall" and "boot" are added to the two clocks, "boot_id" replaces the
// system's. Such a server is for tests only.
const envClock = "FTPLOCKD_TEST_CLOCK"

// steppedClock is the system's clock with the steps of a file.
type steppedClock struct {
	system clock
	file   string
}

type clockSteps struct {
	Wall   string `json:"wall"`
	Boot   string `json:"boot"`
	BootID string `json:"boot_id"`
}

// NewClock returns the clock of the server.
func NewClock() (clock, error) {
	c := &steppedClock{lock.NewSystemClock(), os.Getenv(envClock)}
	if c.file == "" {
		return nil, fmt.Errorf("this server was built for tests: set %s", envClock)
	}
	return c, nil
}

// Now implements lock.Clock.
func (c *steppedClock) Now() lock.Instant { return c.step(c.system.Now()) }

// Exact implements lock.Clock.
func (c *steppedClock) Exact() lock.Instant { return c.step(c.system.Exact()) }

// BootID implements clock.
func (c *steppedClock) BootID() string {
	if id := c.steps().BootID; id != "" {
		return id
	}
	return c.system.BootID()
}

func (c *steppedClock) step(now lock.Instant) lock.Instant {
	steps := c.steps()
	now.Wall = now.Wall.Add(parseStep(steps.Wall))
	now.Boot += parseStep(steps.Boot)
	return now
}

// steps reads the file. Tests replace it by rename, so it is always complete. A wrong one ends the server.
func (c *steppedClock) steps() (steps clockSteps) {
	data, err := os.ReadFile(c.file)
	if err != nil {
		panic(err)
	}
	if err := json.Unmarshal(data, &steps); err != nil {
		panic(err)
	}
	return steps
}

func parseStep(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}
