package driver

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAnOverdueLockOfTheHostIsNoHindrance(t *testing.T) {
	s := start(t)
	for name, age := range map[string]time.Duration{"/locks/old": 7 * time.Minute, "/locks/young": time.Minute} {
		s.mkdir(name)
		made := s.clock.Now().Wall.Add(-age)
		if err := os.Chtimes(filepath.Join(s.root, name), made, made); err != nil {
			t.Fatal(err)
		}
	}
	s.as("phoneacc").play(`
		C: MKD /locks/old
		S: 257 "/locks/old" locked, *
		C: MKD /locks/young
		S: 550 /locks/young: held by host for *`)
}
