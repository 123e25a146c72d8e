//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ftplockd/ftplockd/integration/peers"
)

// The names of the servers.
const (
	ours    = "ftplockd"
	earlier = "ftplockd before"
	vsftpd  = "vsftpd"
	bare    = "ftpserverlib"
)

// others returns the servers that are not ftplockd.
func others() []string { return []string{vsftpd, bare} }

// The account on ftplockd and on bare.
const account, password = "bench", "bench"

// mode is ftplockd's locks.directories and locks.durable.
type mode struct{ directories, durable bool }

func (m mode) String() string {
	return fmt.Sprintf("directories = %v, durable = %v", m.directories, m.durable)
}

// entrant is a server and its configuration.
type entrant struct {
	server string
	mode   mode // of ftplockd
	tls    bool
	fresh  bool // the server has done no other work
}

// server is a running entrant.
type server struct {
	*peers.Process
	locks string // the FTP path of the directory of locks
	tls   bool   // clients use TLS
}

// contest is the set of servers that take part.
type contest struct {
	dir     string         // contains all files of the run
	wanted  *regexp.Regexp // selects other servers
	before  string         // the program of an earlier ftplockd; "": none
	cert    peers.Certificate
	peers   map[string]*peers.Peer
	missing []string // the servers that do not take part, with the reasons
	running map[entrant]*server
}

// newContest makes the directory, builds our programs and finds the other servers.
func newContest(ctx context.Context, o options) (*contest, error) {
	parent, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "ftplockd-bench-")
	if err != nil {
		return nil, err
	}
	c := &contest{dir: dir, before: o.before, wanted: o.servers, peers: make(map[string]*peers.Peer), running: make(map[entrant]*server)}
	if err := c.prepare(ctx, o.short); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

func (c *contest) prepare(ctx context.Context, short bool) (err error) {
	if c.before != "" {
		if c.before, err = exec.LookPath(c.before); err != nil {
			return err
		}
	}
	if err := os.Chmod(c.dir, 0o755); err != nil { // sessions of other servers run as nobody
		return err
	}
	if c.cert, err = peers.MakeCertificate(c.dir); err != nil {
		return err
	}
	if err := c.build(ctx, "cmd/ftplockd"); err != nil {
		return err
	}
	if c.has(bare) {
		if err := c.build(ctx, "integration/bench/bare"); err != nil {
			return err
		}
	}
	if c.wanted.MatchString(vsftpd) {
		peer, err := peers.Find(vsftpd)
		if err != nil && !short {
			peer, err = peers.Get(ctx, vsftpd) // it may download the package
		}
		if err != nil {
			c.missing = append(c.missing, fmt.Sprintf("%s is missing: %v", vsftpd, err))
		} else {
			c.peers[vsftpd] = peer
		}
	}
	return ctx.Err()
}

// build builds one of our programs.
func (c *contest) build(ctx context.Context, source string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", c.program(filepath.Base(source)), "github.com/ftplockd/ftplockd/"+source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

func (c *contest) program(name string) string { return filepath.Join(c.dir, name) }

// has reports whether a server other than ftplockd takes part.
func (c *contest) has(name string) bool {
	return name == bare && c.wanted.MatchString(bare) || c.peers[name] != nil
}

// get returns the running server. It starts the server first if necessary.
func (c *contest) get(e entrant) (*server, error) {
	if s := c.running[e]; s != nil {
		return s, nil
	}
	process, err := c.start(e)
	if err != nil {
		return nil, err
	}
	s := &server{Process: process, locks: "/locks", tls: e.tls}
	if c.peers[e.server] != nil {
		s.locks = "/pub"
	}
	c.running[e] = s
	return s, nil
}

func (c *contest) start(e entrant) (*peers.Process, error) {
	switch e.server {
	case ours:
		return c.startFtplockd(c.program("ftplockd"), e)
	case earlier:
		return c.startFtplockd(c.before, e)
	case bare:
		return c.startBare()
	}
	var cert peers.Certificate
	if e.tls {
		cert = c.cert
	}
	return c.peers[e.server].Start(c.dir, cert)
}

// stop stops all servers.
func (c *contest) stop() (err error) {
	for e, s := range c.running {
		err = errors.Join(err, s.Stop())
		delete(c.running, e)
	}
	return err
}

// startFtplockd starts ftplockd with its built-in account.
func (c *contest) startFtplockd(program string, e entrant) (*peers.Process, error) {
	dir, root, err := peers.Work(c.dir, "ftplockd")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "ftplockd.toml")
	text, err := onlyKnown(program, c.config(dir, root, e))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p := &peers.Process{Cmd: exec.Command(program, "--config", file, "--log-level", "error"), User: account, Password: password, Root: root}
	p.Cmd.Env = append(os.Environ(), "FTPLOCKD_USER="+account, "FTPLOCKD_PASSWORD="+password)
	return p.LaunchAndRead("ftplockd listens on ")
}

// config returns ftplockd's configuration. Keys that it leaves out have their defaults.
func (c *contest) config(dir, root string, e entrant) string {
	text := fmt.Sprintf(`listen = ["127.0.0.1:0"]
root = %q
state = %q
[ftp]
passive_ports = "%d-%d"
max_connections = 0
max_connections_per_address = 0
[files]
durable = false
[locks]
directories = %v
durable = %v
`, root, filepath.Join(dir, "state"), peers.FirstPort, peers.LastPort, e.mode.directories, e.mode.durable)
	if e.tls {
		text += fmt.Sprintf("[tls]\nmode = \"optional\"\ncertificate = %q\nkey = %q\n", c.cert.Certificate, c.cert.Key)
	}
	return text
}

// onlyKnown removes the keys that the program does not accept: an earlier ftplockd has fewer.
func onlyKnown(program, text string) (string, error) {
	example, err := exec.Command(program, "config", "example").Output()
	if err != nil {
		return "", fmt.Errorf("%s config example: %w", program, err)
	}
	var known strings.Builder
	for line := range strings.Lines(text) {
		key, _, isKey := strings.Cut(line, " = ")
		if !isKey || strings.Contains(string(example), "\n"+key+" = ") {
			known.WriteString(line)
		}
	}
	return known.String(), nil
}

// startBare starts the bare library.
func (c *contest) startBare() (*peers.Process, error) {
	_, root, err := peers.Work(c.dir, "bare")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(c.program("bare"), root, c.cert.Certificate, c.cert.Key)
	p := &peers.Process{Cmd: cmd, User: account, Password: password, Root: root}
	return p.LaunchAndRead("")
}
