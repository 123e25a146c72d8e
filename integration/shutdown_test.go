package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// TestKickAndStopEndWhatRuns ends a command that would run for hours by a kick, and by a stop, which does not wait for it.
func TestKickAndStopEndWhatRuns(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	s.write("huge", "")
	if err := os.Truncate(s.path("huge"), 8<<40); err != nil {
		t.Skip(err) // the file system has no files of that size
	}
	hashing := func() *session {
		c := s.session(account)
		c.Send("HASH /huge")
		harness.Await(t, "it reads the file", func() bool { return len(s.sessions(account)) == 1 && s.reads("huge") })
		return c
	}
	c := hashing()
	s.command("kick", s.sessions(account)[0])
	c.WantReply(550)
	c.WantReply(421)
	hashing()
	began := time.Now()
	s.signal(syscall.SIGTERM)
	s.stopped()
	if d := time.Since(began); d > 15*time.Second {
		t.Errorf("the stop took %v", d)
	}
}

// reads reports whether the server has a file open.
func (s *server) reads(name string) bool {
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.cmd.Process.Pid))
	for _, fd := range open {
		if target, err := os.Readlink(fd); err == nil && target == s.path(name) {
			return true
		}
	}
	return false
}

// stopped waits for a server after SIGTERM, and checks its status.
func (s *server) stopped() {
	s.t.Helper()
	s.waitExit()
	if status := s.cmd.ProcessState.ExitCode(); status != 0 {
		s.t.Errorf("exit status %d\n%s", status, s.log)
	}
	if _, err := os.Lstat(filepath.Join(s.state, "control.sock")); !os.IsNotExist(err) {
		s.t.Errorf("the control socket is left over: %v", err)
	}
}
