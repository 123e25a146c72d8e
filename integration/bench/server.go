//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/ftplockd/ftplockd/integration/peers"
)

// The account of our servers; the password is everybody's.
const (
	account  = "bench"
	password = "bench"
)

// server is something to be measured.
type server struct {
	name     string
	able     ability
	profiled bool // with -profile
	// start starts it, with a tree of its own below dir, made anew each time.
	start func(ctx context.Context, dir string, tls bool) (*process, error)
}

func (s server) can(needs ability) bool { return s.able&needs == needs }

// process is a server that runs.
type process struct {
	*peers.Process
	locks string // the directory in its tree that locks are made in
	files string // the one that files are put into
	tls   bool   // clients are to use it
}

// contest knows all servers that take part.
type contest struct {
	dir   string // of the programs and the certificate
	cert  peers.Certificate
	peers []server
}

// newContest builds the programs, looks for the peers that are wanted, and returns why those are missing that are.
func newContest(ctx context.Context, dir, only string) (_ *contest, notes []string, err error) {
	c := &contest{dir: dir}
	if c.cert, err = peers.MakeCertificate(dir); err != nil {
		return nil, nil, err
	}
	for _, source := range []string{"cmd/ftplockd", "integration/bench/bare", "integration/bench/echo", "integration/bench/floor"} {
		if err := c.build(ctx, source); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range peers.Names() {
		if !wanted(name, only) {
			continue
		}
		peer, err := peers.Get(ctx, name)
		if err != nil {
			notes = append(notes, fmt.Sprintf("%s is missing: %v", name, err))
			continue
		}
		c.peers = append(c.peers, c.peer(peer))
	}
	c.peers = append(c.peers, c.bare(), c.echo(), c.floor())
	return c, notes, nil
}

// build builds one of our programs.
func (c *contest) build(ctx context.Context, source string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(c.dir, filepath.Base(source)), "github.com/ftplockd/ftplockd/"+source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// peer is the server of somebody else.
func (c *contest) peer(p *peers.Peer) server {
	return server{name: p.Name, able: canFTP, start: func(_ context.Context, dir string, tls bool) (*process, error) {
		var cert peers.Certificate
		if tls {
			cert = c.cert
		}
		running, err := p.Start(dir, cert)
		return &process{Process: running, locks: "/pub", files: "/pub", tls: tls}, err
	}}
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
