package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// resident returns the resident memory of the server in bytes.
func (s *server) resident() (n int) {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	if _, err := fmt.Sscanf(after, "%d kB", &n); err != nil {
		s.t.Fatal(err)
	}
	return n << 10
}

// TestUnreadRepliesTakeLittleMemory requests long replies and the status file with clients that do not read them.
func TestUnreadRepliesTakeLittleMemory(t *testing.T) {
	t.Parallel()
	if harness.RaceEnabled {
		t.Skip("the race detector takes memory of its own")
	}
	s := startServer(t, hour+"[locks]\ndurable = false\ndirectories = false\n")
	deep := "locks"
	for range 13 {
		deep += "/" + strings.Repeat("x", 240)
	}
	if err := os.MkdirAll(s.path(deep), 0o755); err != nil {
		t.Fatal(err)
	}
	holder := s.session(account)
	for i := range 1000 {
		holder.Want(257, fmt.Sprintf("MKD /%s/%04d", deep, i))
	}
	const clients, each = 25, 2 << 20 // a whole reply has over 3 MiB
	for _, command := range []string{"SITE LOCKS", "RETR /.locks.json"} {
		before := s.resident()
		var ends []func()
		for range clients {
			ends = append(ends, s.deaf(command))
		}
		most := 0
		for until := time.Now().Add(time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
			most = max(most, s.resident()-before)
		}
		if most > clients*each {
			t.Errorf("%.10s: %d KiB for each client", command, most/clients>>10)
		}
		for _, end := range ends {
			end()
		}
	}
}

// deaf starts a client that logs in, sends a command and reads nothing afterwards. end ends it.
func (s *server) deaf(command string) (end func()) {
	s.t.Helper()
	c := s.session("other")
	_ = c.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	if verb, _, _ := strings.Cut(command, " "); verb != "LIST" && verb != "RETR" {
		if err := c.Send(command); err != nil {
			s.t.Fatal(err)
		}
		return func() { c.Conn.Close() }
	}
	data, err := c.Open(command)
	if err != nil {
		s.t.Fatal(err)
	}
	return func() {
		data.Close()
		c.Conn.Close()
	}
}

// TestTheServerOutlivesTheReadersOfItsOutput starts a server and commands whose standard output and error have no reader: a pipe, as of a shell, and
// a socket, as of journald.
func TestTheServerOutlivesTheReadersOfItsOutput(t *testing.T) {
	t.Parallel()
	for kind, pair := range map[string]func(*[2]int) error{
		"pipe": func(ends *[2]int) error { return syscall.Pipe2(ends[:], syscall.O_CLOEXEC) },
		"socket": func(ends *[2]int) (err error) {
			*ends, err = syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			return err
		},
	} {
		t.Run(kind, func(t *testing.T) {
			var ends [2]int
			if err := pair(&ends); err != nil {
				t.Fatal(err)
			}
			syscall.Close(ends[0])
			unread := os.NewFile(uintptr(ends[1]), kind)
			defer unread.Close()
			s := newServer(t, defaults)
			silent := func(args ...string) *exec.Cmd {
				cmd := command(t, binary, append(args, "--config", s.config)...)
				cmd.Stdout, cmd.Stderr = unread, unread
				return cmd
			}
			s.cmd = silent("serve")
			if err := s.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			s.exited = make(chan struct{})
			go func() {
				defer close(s.exited)
				_ = s.cmd.Wait()
			}()
			harness.Await(t, "the server serves", func() bool { return run(t, binary, "health", "--config", s.config).status == 0 })
			for range 2 { // each one makes a line of the log
				s.mustReload()
			}
			s.configure("nonsense = 1")
			if r := finish(t, silent("reload")); r.status != 2 {
				t.Errorf("a reload that was refused: status %d", r.status)
			}
			s.stop()
		})
	}
}
