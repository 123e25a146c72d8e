//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The account of every server but vsftpd, whose anonymous one needs no PAM; the password is everybody's.
const (
	account  = "bench"
	password = "bench"
)

// server is something to be measured.
type server struct {
	name     string
	able     ability
	profiled bool // with -profile
	// start starts it, with a tree of its own, made anew each time.
	start func(ctx context.Context, tls bool) (*process, error)
}

func (s server) can(needs ability) bool { return s.able&needs == needs }

// process is a server that runs, in a process group of its own.
type process struct {
	cmd     *exec.Cmd
	address string
	user    string
	locks   string // the directory in its tree that locks are made in
	files   string // the one that files are put into
	tls     bool   // clients are to use it
	stdin   io.Closer
}

// stop ends the process and its children, and waits.
func (p *process) stop() error {
	if p.stdin != nil {
		p.stdin.Close()
	} else {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	group := p.cmd.Process.Pid
	kill := time.AfterFunc(10*time.Second, func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
	defer kill.Stop()
	err := p.cmd.Wait()
	_ = syscall.Kill(-group, syscall.SIGKILL) // sessions that are processes; without any there is no such group
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // of a signal
	}
	return err
}

// launch starts the process; it ends with this program.
func (p *process) launch() error {
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = os.Stderr
	return p.cmd.Start()
}

// launchAndRead starts a process that prints its address, behind the prefix.
func (p *process) launchAndRead(prefix string) error {
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.launch(); err != nil {
		return err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), prefix)
	if !ok || err != nil {
		return errors.Join(fmt.Errorf("it prints %q", line), err, p.stop())
	}
	p.address = address
	return nil
}

// launchAndDial starts a process that says nothing, and returns when it takes connections.
func (p *process) launchAndDial() error {
	if err := p.launch(); err != nil {
		return err
	}
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var conn net.Conn
		if conn, err = net.Dial("tcp", p.address); err == nil {
			return conn.Close()
		}
	}
	return errors.Join(err, p.stop())
}

// contest knows all servers that take part.
type contest struct {
	dir   string // for everything
	cert  pair
	peers []server
}

// newContest builds the programs, looks for the peers, and returns why those are missing that are.
func newContest(ctx context.Context, dir string) (_ *contest, notes []string, err error) {
	c := &contest{dir: dir}
	if err := os.Chmod(dir, 0o755); err != nil { // the peers' sessions run as nobody
		return nil, nil, err
	}
	if c.cert, err = makeCertificate(dir); err != nil {
		return nil, nil, err
	}
	for program, source := range map[string]string{"ftplockd": "cmd/ftplockd", "bare": "integration/bench/bare", "echo": "integration/bench/echo"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, program), "github.com/ftplockd/ftplockd/"+source)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	for _, peer := range []func(context.Context) (server, error){c.vsftpd, c.proftpd, c.pureftpd} {
		s, err := peer(ctx)
		if err != nil {
			notes = append(notes, fmt.Sprintf("%s is missing: %v", s.name, err))
			continue
		}
		c.peers = append(c.peers, s)
	}
	c.peers = append(c.peers, c.bare(), c.echo())
	return c, notes, nil
}

// servers returns those that take part in a group.
func (c *contest) servers(g group) (all []server) {
	for _, m := range g.modes {
		all = append(all, c.ftplockd(m))
	}
	for _, p := range c.peers {
		for _, row := range g.rows {
			if p.can(row.needs) {
				all = append(all, p)
				break
			}
		}
	}
	return all
}

// work makes a new directory for a server, and in it one that everybody may write to, which is served.
func (c *contest) work(name string) (dir, root string, err error) {
	if dir, err = os.MkdirTemp(c.dir, name+"-"); err != nil {
		return "", "", err
	}
	root = filepath.Join(dir, "root")
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(root, 0o755), os.Mkdir(filepath.Join(root, "pub"), 0o755),
		os.Chmod(filepath.Join(root, "pub"), 0o777))
	return dir, root, err
}

// freePort returns an address that nobody listens on, for servers that cannot be told to take any. It is outside the
// kernel's ephemeral range, so that no other program is given it meanwhile.
func freePort() (address string, port int, err error) {
	for range 100 {
		port = lastPort + 1 + rand.IntN(2000)
		address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		var l net.Listener
		if l, err = net.Listen("tcp", address); err == nil {
			return address, port, l.Close()
		}
	}
	return "", 0, err
}
