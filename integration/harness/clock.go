//go:build unix

package harness

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is the clock of one server that was built with the tag testclock: the system's clock plus the steps.
type Clock struct {
	File       string
	Wall, Boot time.Duration
	BootID     string // "": the system's
}

// Env returns the variable for the server's environment.
func (c *Clock) Env() string { return "FTPLOCKD_TEST_CLOCK=" + c.File }

// Write makes the server use the steps. It replaces the file by one rename.
func (c *Clock) Write(t testing.TB) {
	t.Helper()
	data, err := json.Marshal(map[string]string{"wall": c.Wall.String(), "boot": c.Boot.String(), "boot_id": c.BootID})
	if err == nil {
		err = os.WriteFile(c.File+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(c.File+".new", c.File)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Now returns the time of a clock that all processes of this machine share, in nanoseconds.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

var ageLine = regexp.MustCompile(`for (\S+), (?:expires in (\S+)|never expires)`)

// Ages returns how long a lock is held and how long it remains, from the text of a 211 or 550.
func Ages(t testing.TB, r Reply) (held, left time.Duration) {
	t.Helper()
	m := ageLine.FindStringSubmatch(r.Text)
	if m == nil {
		t.Fatalf("%v: no ages", r)
	}
	held, err := time.ParseDuration(strings.TrimSuffix(m[1], ","))
	if err == nil && m[2] != "" {
		left, err = time.ParseDuration(strings.TrimSuffix(m[2], ","))
	}
	if err != nil {
		t.Fatalf("%v: %v", r, err)
	}
	return held, left
}
