package integration

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

func TestStopFinishesUploadsAndKeepsLocks(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	idle, busy := s.session("other"), s.session(account)
	busy.Want(257, "MKD /locks/job")
	busy.Want(200, "TYPE I")
	data := busy.begin("STOR /upload")
	if _, err := io.WriteString(data, "begun, "); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "the upload begins", func() bool { return len(s.unfinished()) == 1 })
	s.signal(syscall.SIGTERM)
	idle.WantReply(421)
	if n, err := io.Copy(io.Discard, idle.R); n != 0 || err != nil {
		t.Errorf("an idle session after its 421: %d bytes, %v", n, err)
	}
	if _, _, err := connect(s.v4); err == nil {
		t.Error("a server that stops takes connections")
	}
	if _, err := io.WriteString(data, "and finished"); err != nil {
		t.Fatal(err)
	}
	data.Close()
	busy.WantReply(226)
	s.stopped()
	s.wantFile(t, "upload", "begun, and finished")
	if left := s.unfinished(); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
	s.start()
	s.session("other").Want(550, "MKD /locks/job", "held by "+account)
	s.session(account).Want(250, "RMD /locks/job")
	s.stop()
}

// A kick and a stop end a command that would run for hours, and a stop does not wait for it.
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

// stopped checks how a server ended that was told to stop.
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
