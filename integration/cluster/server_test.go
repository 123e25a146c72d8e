//go:build linux

package cluster

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/integration/harness"
)

// exitDeposed is the exit status of a server that was replaced or handed over.
const exitDeposed = 75

// cluster is some ftplockds on one etcd and one served tree.
type cluster struct {
	t       testing.TB
	etcd    *etcdtest.Cluster
	root    string // the directory that clients see as "/"
	servers []*server
}

// setup is the configuration of a cluster.
type setup struct {
	servers int                    // 0: 2
	members int                    // of etcd; 0: 1
	ttl     time.Duration          // 0: 2s
	timeout time.Duration          // of requests to etcd; 0: a fifth of ttl
	etcd    []string               // flags of etcd
	keys    string                 // TOML, more keys of [etcd]
	tables  string                 // TOML, behind [etcd]
	binary  func() (string, error) // nil: plainBinary
	env     []string
	skewed  bool // the servers' wall clocks and times since boot differ by minutes
}

// start starts a cluster, and waits until one of its servers is active.
func start(t testing.TB, how setup) *cluster {
	t.Helper()
	c := prepare(t, how)
	for _, s := range c.servers {
		s.supervise()
	}
	c.session(t, account).Conn.Close()
	return c
}

// prepare starts the etcd of a cluster, but not its servers.
func prepare(t testing.TB, how setup) *cluster {
	t.Helper()
	switch {
	case how.binary != nil:
	case how.skewed:
		how.binary = steppedBinary
	default:
		how.binary = plainBinary
	}
	program, err := how.binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := &cluster{t: t, etcd: etcdtest.Start(t, cmp.Or(how.members, 1), how.etcd...), root: filepath.Join(dir, "files")}
	for _, dir := range []string{c.root, filepath.Join(dir, "shared")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	network := etcdtest.Network(t)
	for i := range cmp.Or(how.servers, 2) {
		s := &server{
			t: t, name: fmt.Sprint("server", i+1), address: fmt.Sprint(network, 11+i, ":2121"), page: fmt.Sprint(network, 11+i, ":2180"),
			program: program, env: append(slices.Clone(how.env), stopEnv+"="+filepath.Join(dir, "stop")), log: harness.NewLogBuffer(), relays: c.etcd.Relays(), mayStart: make(chan struct{}),
			config: filepath.Join(dir, fmt.Sprint("server", i+1), "ftplockd.toml"),
		}
		if err := os.MkdirAll(filepath.Dir(s.config), 0o755); err != nil {
			t.Fatal(err)
		}
		if how.skewed {
			s.clock = &harness.Clock{File: filepath.Join(filepath.Dir(s.config), "clock"), Wall: time.Duration(i*7-5) * time.Minute,
				Boot: time.Duration(i) * time.Hour, BootID: s.address}
			s.clock.Write(t)
			s.env = append(s.env, s.clock.Env())
		}
		s.configure(c.root, filepath.Join(dir, "shared"), how)
		c.servers = append(c.servers, s)
		t.Cleanup(s.cleanup)
	}
	return c
}

// addresses returns the addresses of all servers.
func (c *cluster) addresses() []string {
	var all []string
	for _, s := range c.servers {
		all = append(all, s.address)
	}
	return all
}

// session waits for an active server and opens a session with it. It ends with the test.
func (c *cluster) session(t testing.TB, name string) *harness.Session {
	t.Helper()
	var s *harness.Session
	var err error
	for end := time.Now().Add(patience); s == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no server is active: %v", err)
		}
		s, err = harness.LoginAny(c.addresses(), name, 10*time.Second)
	}
	s.T, s.Haste = t, 0
	t.Cleanup(func() { s.Conn.Close() })
	return s
}

// active waits for an active server and returns it.
func (c *cluster) active(t testing.TB) *server {
	t.Helper()
	s := c.session(t, account)
	defer s.Conn.Close()
	return c.server(s.Address())
}

// server returns the server with an address.
func (c *cluster) server(address string) *server {
	return c.servers[slices.Index(c.addresses(), address)]
}

// others returns all servers but one.
func (c *cluster) others(s *server) []*server {
	return slices.DeleteFunc(slices.Clone(c.servers), func(o *server) bool { return o == s })
}

// write writes a file into the served tree, as a program on the host.
func (c *cluster) write(t testing.TB, name string, content []byte) {
	t.Helper()
	file := filepath.Join(c.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// server is one ftplockd: a directory, addresses, and one process after the other.
type server struct {
	t             testing.TB
	name          string
	address, page string
	program       string
	env           []string
	config        string
	log           *harness.LogBuffer
	relays        []*etcdtest.Relay // to each member of etcd
	clock         *harness.Clock    // nil: the system's

	supervised sync.WaitGroup

	mayLog string // an error that the test causes

	mu       sync.Mutex
	runs     []*run
	mayStart chan struct{} // closed: an ended process is started again
	held     bool          // mayStart is open
	over     bool
	wrong    []string
}

// run is one process of a server. It has one term at most.
type run struct {
	server  *server
	cmd     *exec.Cmd
	exited  chan struct{}
	began   int64
	killed  bool   // by the test
	stopped bool   // by the test, with SIGTERM
	listens int64  // when it logged that it is the active one; 0: never
	epoch   uint32 // of its term
}

func (s *server) configure(root, shared string, how setup) {
	s.t.Helper()
	ttl := cmp.Or(how.ttl, 2*time.Second)
	var endpoints []string
	for _, r := range s.relays {
		endpoints = append(endpoints, strconv.Quote("http://"+r.Endpoint()))
	}
	text := fmt.Sprintf(`
listen = [%q]
root = %q
state = %q
[http]
listen = %q
[etcd]
endpoints = [%s]
ttl = %q
request_timeout = %q
shared_state = %q
%s
%s
`, s.address, root, filepath.Join(filepath.Dir(s.config), "state"), s.page, strings.Join(endpoints, ", "), ttl, cmp.Or(how.timeout, ttl/5), shared, how.keys, how.tables) + harness.Accounts()
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// supervise starts the server, and starts it again after its end, as a service manager does. After kill it waits for resume.
func (s *server) supervise() {
	close(s.mayStart)
	s.supervised.Go(func() {
		for {
			s.mu.Lock()
			may := s.mayStart
			s.mu.Unlock()
			<-may
			r, err := s.start()
			if r == nil {
				if err != nil {
					s.complain("it does not start: %v", err)
				}
				return
			}
			<-r.exited
			if !s.ended(r) {
				return
			}
		}
	})
}

// start starts a process; nil: the test is over, or the start failed.
func (s *server) start() (*run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, nil
	}
	r := &run{server: s, exited: make(chan struct{}), began: harness.Now()}
	r.cmd = exec.Command(s.program, "--config", s.config)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r.cmd.Env = append(append(harness.Environment(), "GORACE=atexit_sleep_ms=0"), s.env...)
	r.cmd.Stderr = &runLog{run: r}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	s.runs = append(s.runs, r)
	go func() {
		defer close(r.exited)
		_ = r.cmd.Wait()
	}()
	return r, nil
}

// runLog receives the log of one process.
type runLog struct {
	run  *run
	line []byte // the incomplete last line
}

// entered matches the lines that a server logs at the beginning and the end of a take-over.
var entered = regexp.MustCompile(`msg="cluster: (taking over|active)".*\bterm (\d+)`)

func (l *runLog) Write(p []byte) (int, error) {
	r := l.run
	_, _ = r.server.log.Write(p)
	l.line = append(l.line, p...)
	for {
		line, rest, ok := bytes.Cut(l.line, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.line = rest
		if m := entered.FindSubmatch(line); m != nil {
			epoch, _ := strconv.ParseUint(string(m[2]), 10, 32)
			r.server.mu.Lock()
			r.epoch = uint32(epoch)
			if string(m[1]) == "active" && r.listens == 0 {
				r.listens = harness.Now()
			}
			r.server.mu.Unlock()
		}
	}
}

// ended checks how a process ended, and reports whether to start another one.
func (s *server) ended(r *run) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := r.cmd.ProcessState.ExitCode()
	if !r.killed && status != exitDeposed && !(status == 0 && r.stopped) {
		s.wrong = append(s.wrong, fmt.Sprintf("it has ended: %v", r.cmd.ProcessState))
		return false
	}
	return !s.over
}

func (s *server) complain(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// process returns the running process, or the last one.
func (s *server) process() *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.runs) == 0 {
		return nil
	}
	return s.runs[len(s.runs)-1]
}

// kill sends SIGKILL. The supervisor waits for resume.
func (s *server) kill() { s.finish(syscall.SIGKILL) }

// terminate sends SIGTERM. The supervisor waits for resume.
func (s *server) terminate() { s.finish(syscall.SIGTERM) }

func (s *server) finish(signal syscall.Signal) {
	s.mu.Lock()
	if !s.held {
		s.held, s.mayStart = true, make(chan struct{})
	}
	var r *run
	if len(s.runs) > 0 {
		r = s.runs[len(s.runs)-1]
		r.killed = r.killed || signal == syscall.SIGKILL
		r.stopped = r.stopped || signal == syscall.SIGTERM
		_ = r.cmd.Process.Signal(signal)
	}
	s.mu.Unlock()
	if r == nil {
		return
	}
	select {
	case <-r.exited:
	case <-time.After(patience):
		s.t.Errorf("%s does not end", s.name)
		_ = r.cmd.Process.Kill()
	}
}

// resume starts a killed or terminated server again.
func (s *server) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held {
		s.held = false
		close(s.mayStart)
	}
}

// stop sends SIGSTOP to the process, cont SIGCONT.
func (s *server) stop() { s.signal(syscall.SIGSTOP) }
func (s *server) cont() { s.signal(syscall.SIGCONT) }

func (s *server) signal(signal syscall.Signal) {
	if r := s.process(); r != nil {
		_ = r.cmd.Process.Signal(signal)
	}
}

// toEtcd calls a method of each relay to etcd.
func (s *server) toEtcd(what func(*etcdtest.Relay)) {
	for _, r := range s.relays {
		what(r)
	}
}

// connects reports whether the server accepts connections of clients.
func (s *server) connects() bool {
	conn, err := net.DialTimeout("tcp", s.address, patience)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// get sends a request to the health address; code 0: no answer.
func (s *server) get(path string) harness.Reply {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + s.page + path)
	if err != nil {
		return harness.Reply{}
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return harness.Reply{}
	}
	return harness.Reply{Code: r.StatusCode, Text: string(text)}
}

// run runs a command of ftplockd with the server's configuration.
func (s *server) run(t testing.TB, args ...string) (status int, output string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.program, append(args, "--config", s.config)...)
	cmd.Env = append(harness.Environment(), s.env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// cleanup ends the server and checks its log for errors.
func (s *server) cleanup() {
	s.toEtcd((*etcdtest.Relay).Heal)
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.kill()
	s.resume()
	s.supervised.Wait()
	if bad := s.log.Complaint("level=ERROR"); bad != "" && (s.mayLog == "" || !strings.Contains(bad, s.mayLog)) {
		s.wrong = append(s.wrong, fmt.Sprintf("its log has %q", bad))
	}
	for _, text := range s.wrong {
		s.t.Errorf("%s: %s", s.name, text)
	}
	if s.t.Failed() {
		s.t.Logf("the log of %s:\n%s", s.name, s.log)
	}
}
