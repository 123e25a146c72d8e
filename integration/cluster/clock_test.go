//go:build linux

package cluster

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

// clock is the clock of one server. Its steps are added to the system's.
type clock struct {
	file       string
	wall, boot time.Duration
	bootID     string
}

// write puts the steps in force, by one rename.
func (c *clock) write(t testing.TB) {
	t.Helper()
	data, err := json.Marshal(map[string]string{"wall": c.wall.String(), "boot": c.boot.String(), "boot_id": c.bootID})
	if err == nil {
		err = os.WriteFile(c.file+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(c.file+".new", c.file)
	}
	if err != nil {
		t.Fatal(err)
	}
}
