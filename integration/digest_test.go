package integration

import (
	"testing"
	"time"
)

// Digests keep processors busy. Without a limit, eight of them on a large file raise the time of a lock pair from below 1 ms to
// 170 ms on two processors.
func TestDigestsDoNotDelayLocks(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	s.sparse("/large", 1<<40)
	for range 8 {
		s.session("other").says("XSHA512 /large")
	}
	c := s.session(account)
	promptly(t, "a lock pair beside digests", 20*time.Millisecond, func() time.Duration {
		began := time.Now()
		c.Want(257, "MKD /locks/job")
		c.Want(250, "RMD /locks/job")
		return time.Since(began)
	})
	s.write("/small", "content")
	c.Want(250, "XSHA256 /small", "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73")
}
