//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// server is something to be measured. Its tree lies in a directory of its own, made anew with each start.
type server struct {
	name  string
	base  string // where in its tree locks are made
	start func(context.Context) (*process, error)
}

// process is a server that runs.
type process struct {
	address string
	cmd     *exec.Cmd
	stdin   io.Closer // nil, or what ends it
}

// stop ends the process and its children, and waits.
func (p *process) stop() error {
	if p.stdin != nil {
		p.stdin.Close()
	} else {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	kill := time.AfterFunc(10*time.Second, func() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) })
	defer kill.Stop()
	err := p.cmd.Wait()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // vsftpd's children
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // of a signal
	}
	return err
}

// run starts a server in a process group that ends with this program.
func run(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd.Start()
}

// contestants builds the programs and returns all servers that there are, and why others are missing.
func contestants(ctx context.Context, dir, only string) (servers []server, notes []string, err error) {
	for program, source := range map[string]string{"ftplockd": "cmd/ftplockd", "bare": "integration/bench/bare"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, program), "github.com/ftplockd/ftplockd/"+source)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	all := []server{bareServer(dir)}
	if program, err := findVsftpd(ctx, dir); err != nil {
		notes = append(notes, "vsftpd is missing: "+err.Error())
	} else {
		all = append(all, vsftpdServer(dir, program))
	}
	for _, directories := range []bool{false, true} {
		for _, durable := range []bool{false, true} {
			all = append(all, ftplockdServer(dir, directories, durable))
		}
	}
	fits := regexp.MustCompile(regexp.QuoteMeta(only))
	for _, s := range all {
		if fits.MatchString(s.name) {
			servers = append(servers, s)
		}
	}
	return servers, notes, nil
}

func bareServer(dir string) server {
	return server{name: "ftpserverlib, bare", base: "", start: func(context.Context) (*process, error) {
		root, err := os.MkdirTemp(dir, "bare-")
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(filepath.Join(dir, "bare"), root)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		p := &process{cmd: cmd, stdin: stdin}
		return p, p.startAndRead(regexp.MustCompile(`^(\S+)\n`))
	}}
}

// startAndRead starts the process and finds its address in what it prints.
func (p *process) startAndRead(pattern *regexp.Regexp) error {
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := run(p.cmd); err != nil {
		return err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	m := pattern.FindStringSubmatch(line)
	if m == nil {
		return errors.Join(fmt.Errorf("it prints %q", line), err, p.stop())
	}
	p.address = m[1]
	return nil
}

func ftplockdServer(dir string, directories, durable bool) server {
	name := fmt.Sprintf("ftplockd, directories = %v, durable = %v", directories, durable)
	return server{name: name, base: "/locks", start: func(context.Context) (*process, error) {
		work, err := os.MkdirTemp(dir, "ftplockd-")
		if err != nil {
			return nil, err
		}
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			return nil, err
		}
		config := fmt.Sprintf("listen = [\"127.0.0.1:0\"]\nroot = %q\nstate = %q\n[locks]\ndirectories = %v\ndurable = %v\n"+
			"[[account]]\nname = %q\npassword = %q\n",
			filepath.Join(work, "files"), filepath.Join(work, "state"), directories, durable, user, hash)
		file := filepath.Join(work, "ftplockd.toml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return nil, err
		}
		p := &process{cmd: exec.Command(filepath.Join(dir, "ftplockd"), "--config", file, "--log-level", "error")}
		p.cmd.Stderr = os.Stderr
		return p, p.startAndRead(regexp.MustCompile(`^ftplockd listens on (\S+)\n`))
	}}
}
