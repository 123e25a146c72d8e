//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/ftplockd/ftplockd/integration/peers"
)

// The other servers of ours.
const (
	bareName  = "ftpserverlib, bare"
	echoName  = "echo of lines"
	floorName = "floor of files"
)

// ftplockd is this project's server in one of its modes, with its built-in account.
func (c *contest) ftplockd(m mode) server {
	return server{name: m.name, able: canFTP | canWait, profiled: true, start: func(_ context.Context, parent string, tls bool) (*process, error) {
		dir, root, err := peers.Work(parent, "ftplockd")
		if err != nil {
			return nil, err
		}
		config := fmt.Sprintf("listen = [\"127.0.0.1:0\"]\nroot = %q\nstate = %q\n[ftp]\npassive_ports = \"%d-%d\"\n[files]\ndurable = %v\n[locks]\ndirectories = %v\ndurable = %v\n",
			root, filepath.Join(dir, "state"), peers.FirstPort, peers.LastPort, m.durableFiles, m.directories, m.durableLocks)
		if tls {
			config += fmt.Sprintf("[tls]\nmode = \"optional\"\ncertificate = %q\nkey = %q\n", c.cert.Certificate, c.cert.Key)
		}
		file := filepath.Join(dir, "ftplockd.toml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return nil, err
		}
		p := &peers.Process{
			Cmd:  exec.Command(filepath.Join(c.dir, "ftplockd"), "--config", file, "--log-level", "error"),
			User: account, Password: password,
		}
		p.Cmd.Env = append(os.Environ(), "FTPLOCKD_USER="+account, "FTPLOCKD_PASSWORD="+password)
		p, err = p.LaunchAndRead("ftplockd listens on ")
		return &process{Process: p, locks: "/locks", files: "/pub", tls: tls}, err
	}}
}

// bare is ftpserverlib without anything around it.
func (c *contest) bare() server {
	return server{name: bareName, able: canFTP, start: func(_ context.Context, dir string, tls bool) (*process, error) {
		_, root, err := peers.Work(dir, "bare")
		if err != nil {
			return nil, err
		}
		args := []string{root}
		if tls {
			args = append(args, c.cert.Certificate, c.cert.Key)
		}
		return c.ours(tls, "bare", args...)
	}}
}

// echo answers lines, whatever they say.
func (c *contest) echo() server {
	return server{name: echoName, able: canLogin, start: func(context.Context, string, bool) (*process, error) { return c.ours(false, "echo") }}
}

// floor does the least that a server can do for small files.
func (c *contest) floor() server {
	return server{name: floorName, able: canStoreSmall, start: func(_ context.Context, dir string, _ bool) (*process, error) {
		_, root, err := peers.Work(dir, "floor")
		if err != nil {
			return nil, err
		}
		return c.ours(false, "floor", root, strconv.Itoa(peers.FirstPort), strconv.Itoa(peers.LastPort))
	}}
}

// ours starts a program that ends with its standard input.
func (c *contest) ours(tls bool, program string, args ...string) (*process, error) {
	p := &peers.Process{Cmd: exec.Command(filepath.Join(c.dir, program), args...), User: account, Password: password}
	stdin, err := p.Cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.Stdin = stdin
	p, err = p.LaunchAndRead("")
	return &process{Process: p, locks: "/pub", files: "/pub", tls: tls}, err
}
