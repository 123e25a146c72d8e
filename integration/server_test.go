package integration

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/integration/peers"
)

// server is an ftplockd of its own for one test, with a directory of its own.
type server struct {
	t      testing.TB
	root   string // what clients see as "/"
	state  string
	config string // its configuration file

	v4, v6 string // where it listens; they change with every start
	page   string // the address of its page, if it has one
	log    *harness.LogBuffer

	program string   // which ftplockd; "": the one that nearly all tests run
	through []string // what it is started by, such as "ip netns exec"; nil: nothing
	env     []string // what is added to its environment
	flags   []string // what is added to its command line

	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended

	errorsExpected bool // its log may have errors
	dumps          bool // its log may have a dump of goroutines that was asked for
}

// defaults is the configuration of most tests: the lock of the article, and the default directory of locks.
const defaults = `
[[lock]]
match = "**/phone_lock"
max_age = "6m"

[[lock]]
match = "/locks/**"
`

// startServer starts a server with the given tables of a configuration; configure adds listen, root, state and the accounts. The end of the test kills
// the server.
func startServer(t testing.TB, config string) *server {
	t.Helper()
	s := newServer(t, config)
	s.start()
	return s
}

// newServer prepares a server that is not started.
func newServer(t testing.TB, config string) *server {
	t.Helper()
	if err := sources(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &server{
		t: t, root: filepath.Join(dir, "files"), state: filepath.Join(dir, "state"),
		config: filepath.Join(dir, "ftplockd.toml"), log: harness.NewLogBuffer(),
	}
	s.configure(config)
	t.Cleanup(s.cleanup)
	return s
}

// configure writes the configuration file.
func (s *server) configure(tables string, accounts ...string) {
	s.t.Helper()
	text := fmt.Sprintf("listen = [\"127.0.0.1:0\", \"[::1]:0\"]\nroot = %q\nstate = %q\n%s\n", s.root, s.state, tables) + harness.Accounts(accounts...)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// tlsTables makes a certificate in dir and returns the configuration that uses it.
func tlsTables(t testing.TB, dir string) string {
	t.Helper()
	made, err := peers.MakeCertificate(dir)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("[tls]\nmode = \"optional\"\ncertificate = %q\nkey = %q\n", made.Certificate, made.Key)
}

// start starts it, or starts it again, and returns when it listens.
func (s *server) start() {
	s.t.Helper()
	if err := s.tryStart(); err != nil {
		s.t.Fatalf("%v\n%s", err, s.log)
	}
}

func (s *server) tryStart() error {
	line := append(slices.Clone(s.through), cmp.Or(s.program, binary), "--config", s.config)
	line = append(line, s.flags...)
	s.cmd = exec.Command(line[0], line[1:]...)
	s.cmd.SysProcAttr = tied(false)
	s.cmd.Env = append(append(harness.Environment(), "GORACE=atexit_sleep_ms=0"), s.env...)
	s.cmd.Stderr = s.log
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	watchdog := time.AfterFunc(time.Minute, func() { _ = s.cmd.Process.Kill() })
	defer watchdog.Stop()
	lines := bufio.NewReader(stdout)
	berr := s.readBanner(lines)
	s.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		defer close(exited)
		_, _ = io.Copy(io.Discard, lines)
		_ = cmd.Wait()
	}(s.cmd, s.exited)
	if berr != nil {
		<-s.exited
		return fmt.Errorf("the server did not start: %w (%v)", berr, s.cmd.ProcessState)
	}
	return nil
}

var (
	listensOn = regexp.MustCompile(`^ftplockd listens on (127\.0\.0\.1:\d+), (\[::1\]:\d+)(?:, .*)?\n$`)
	pageAt    = regexp.MustCompile(`; its page is at (http\S+)\n$`)
)

// readBanner takes the addresses out of the banner.
func (s *server) readBanner(r *bufio.Reader) error {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if m := listensOn.FindStringSubmatch(line); m != nil {
			s.v4, s.v6 = m[1], m[2]
		} else if m := pageAt.FindStringSubmatch(line); m != nil {
			s.page = m[1]
		}
		if line == "\n" {
			return nil
		}
	}
}

// stop stops the server by SIGTERM and checks its status.
func (s *server) stop() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	s.waitExit()
	if status := s.cmd.ProcessState.ExitCode(); status != 0 {
		s.t.Errorf("exit status %d\n%s", status, s.log)
	}
}

func (s *server) signal(signal syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		s.t.Error(err)
	}
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

// waitExit returns when it has ended.
func (s *server) waitExit() {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(time.Minute):
		s.t.Fatalf("the server does not end\n%s", s.log)
	}
}

// kill kills the server and waits for its end.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// cleanup kills the server and checks its log.
func (s *server) cleanup() {
	if s.exited == nil {
		return
	}
	s.kill()
	var allowed []string
	if s.errorsExpected {
		allowed = append(allowed, "level=ERROR")
	}
	if s.dumps {
		allowed = append(allowed, "goroutine ")
	}
	if bad := s.log.Complaint(allowed...); bad != "" {
		s.t.Errorf("the server's log has %q:\n%s", bad, s.log)
	} else if s.t.Failed() {
		s.t.Logf("the server's log:\n%s", s.log)
	}
}

// path returns the path on disk of a file of the served tree.
func (s *server) path(name string) string { return filepath.Join(s.root, name) }

// write writes a file of the served tree on disk.
func (s *server) write(name, content string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.path(name)), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(s.path(name), []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// read returns a file of the served tree.
func (s *server) read(name string) string {
	s.t.Helper()
	data, err := os.ReadFile(s.path(name))
	if err != nil {
		s.t.Error(err)
	}
	return string(data)
}

// wantFile checks what is in a file of the served tree.
func (s *server) wantFile(t testing.TB, name, want string) {
	t.Helper()
	wantFile(t, s.path(name), want)
}

// sparse makes a large file without blocks.
func (s *server) sparse(name string, size int64) {
	s.t.Helper()
	s.write(name, "")
	if err := os.Truncate(s.path(name), size); err != nil {
		s.t.Fatal(err)
	}
}

// exists reports whether the served tree has the name.
func (s *server) exists(name string) bool {
	_, err := os.Lstat(s.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Error(err)
	}
	return err == nil
}

// unfinished returns the temporary files of uploads.
func (s *server) unfinished() []string {
	s.t.Helper()
	var found []string
	err := filepath.WalkDir(s.root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == ".ftplockd-leftovers" {
			return filepath.SkipDir // of locks that were taken away
		}
		if err == nil && strings.HasPrefix(d.Name(), ".ftplockd-") {
			found = append(found, path)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil // it went meanwhile
		}
		return err
	})
	if err != nil {
		s.t.Error(err)
	}
	return found
}

// split returns host and port of an address.
func split(address string) (host, port string) {
	host, port, _ = net.SplitHostPort(address)
	return host, port
}
