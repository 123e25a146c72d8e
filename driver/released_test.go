package driver

import (
	"os"
	"path/filepath"
	"testing"
)

// The lock that a session took by a path is what it means by that path, whatever the path leads to by now.
func TestRmdOfAPathThatHasBecomeALinks(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *server) {
		s.mkdir("/a")
		s.mkdir("/b")
		c, other := s.as("phoneacc"), s.as("other")
		c.want("MKD /a/x_lock", "257 *")
		other.want("MKD /b/x_lock", "257 *")
		if err := os.Rename(filepath.Join(s.root, "a"), filepath.Join(s.root, "c")); err != nil {
			t.Fatal(err)
		}
		s.link("b", "/a")
		other.want("RMD /a/x_lock", "250 *") // by another path than it was taken, which leads to it
		other.want("RMD /a/x_lock", "550 /a/x_lock: not held*")
		c.want("RMD /a/x_lock", "250 *")
		if s.held("/a/x_lock") || s.held("/b/x_lock") {
			t.Error("held")
		}
		c.want("RMD /a/x_lock", "550 /a/x_lock: not held*")
	})
}
