package integration

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// steppedBinary builds an ftplockd that reads the steps of its clocks from a file.
var steppedBinary = sync.OnceValues(func() (string, error) {
	to := binary + "-stepped"
	return to, build(to, "-tags", "testclock")
})

// clock is the clock of one server. It counts steps from the start of the test.
type clock struct {
	harness.Clock
	server   *server
	canaries *session
	passed   int
}

// canary is the rule of locks that show the progress of the reaper to a test. They are less deep than the tested locks, so the reaper ends them last of
// all locks that are due at one time.
const canary = `
[[lock]]
match = "/canary*"
max_age = "1m"
`

// newStepped prepares a server with a clock of its own. The rule of the canaries is put before the others.
func newStepped(t testing.TB, config string) (*server, *clock) {
	t.Helper()
	program, err := steppedBinary()
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, canary+config)
	c := &clock{server: s, Clock: harness.Clock{File: filepath.Join(t.TempDir(), "clock")}}
	c.Write(t)
	s.program, s.env = program, []string{c.Env()}
	return s, c
}

// step moves the clocks: wall alone when an operator sets the clock, both when time passes. Boot never moves alone.
func (c *clock) step(wall, boot time.Duration) {
	c.server.t.Helper()
	c.Wall += wall
	c.Boot += boot
	c.Write(c.server.t)
}

// reboot starts another boot, ten seconds ago, and steps the wall clock.
func (c *clock) reboot(wall time.Duration) {
	c.server.t.Helper()
	c.BootID = fmt.Sprint("boot after ", c.BootID)
	c.Boot = 10*time.Second - lock.NewSystemClock().Now().Boot
	c.step(wall, 0)
}

// pass moves both clocks, by a minute at least, and returns after the reaper has ended all locks that are due.
func (c *clock) pass(d time.Duration) {
	c.server.t.Helper()
	if c.canaries == nil {
		c.canaries = c.server.session("other")
	}
	c.passed++
	name := fmt.Sprint("/canary", c.passed)
	c.canaries.Want(257, "MKD "+name)
	c.step(d, d)
	c.server.log.Await(c.server.t, `msg="lock ended" lock=`+name+" ", 1)
	c.canaries.Want(257, "MKD "+name) // locks that are due with it end before this reply
	c.canaries.Want(250, "RMD "+name)
}

// restarted makes the next canary use a session of the new process.
func (c *clock) restarted() { c.canaries = nil }

// wantAges checks how long a lock is held and how long it remains. It allows for the time that the test takes: less than a minute.
func (s *session) wantAges(name string, held, left time.Duration) {
	s.T.Helper()
	const slack = 59 * time.Second
	gotHeld, gotLeft := harness.Ages(s.T, s.Want(211, "SITE LOCK INFO "+name))
	if gotHeld < held || gotHeld > held+slack {
		s.T.Errorf("%s: held for %v, want %v", name, gotHeld, held)
	}
	if gotLeft > left || gotLeft < left-slack {
		s.T.Errorf("%s: expires in %v, want %v", name, gotLeft, left)
	}
}

const hour = `
[[lock]]
match = "/locks/**"
max_age = "1h"
max_idle = "0"
`

// inGrace returns after the server has noticed the end of the holder's connection.
func (s *server) inGrace(c *session, name string) {
	s.t.Helper()
	harness.Await(s.t, "the server notices the end of the connection", func() bool {
		_, left := harness.Ages(s.t, c.Want(211, "SITE LOCK INFO "+name))
		return left <= 10*time.Minute
	})
}
