//go:build linux

package peers

import (
	"bufio"
	"errors"
	"fmt"
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

// Process is a running server in a process group of its own.
type Process struct {
	Cmd      *exec.Cmd
	Address  string // host:port
	User     string
	Password string
	Root     string // what clients see as "/", on this machine
}

// Stop ends the process and its children, and waits.
func (p *Process) Stop() error {
	_ = p.Cmd.Process.Signal(syscall.SIGTERM)
	group := p.Cmd.Process.Pid
	kill := time.AfterFunc(10*time.Second, func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
	defer kill.Stop()
	err := p.Cmd.Wait()
	_ = syscall.Kill(-group, syscall.SIGKILL) // sessions that are processes; without any there is no such group
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // of a signal
	}
	return err
}

// launch starts the process; it ends with this program.
func (p *Process) launch() error {
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.Cmd.Stderr = os.Stderr
	return p.Cmd.Start()
}

// LaunchAndRead starts a process that prints its address after the prefix.
func (p *Process) LaunchAndRead(prefix string) (*Process, error) {
	stdout, err := p.Cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.launch(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), prefix)
	if !ok || err != nil {
		return nil, errors.Join(fmt.Errorf("it prints %q", line), err, p.Stop())
	}
	p.Address = address
	return p, nil
}

// LaunchAndDial starts a process that prints nothing, and returns when it accepts connections at its Address.
func (p *Process) LaunchAndDial() (*Process, error) {
	if err := p.launch(); err != nil {
		return nil, err
	}
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var conn net.Conn
		if conn, err = net.Dial("tcp", p.Address); err == nil {
			return p, conn.Close()
		}
	}
	return nil, errors.Join(err, p.Stop())
}

// Work makes a new directory for a server below parent, and in it the directory to serve, with a directory /pub that all users may write to.
func Work(parent, name string) (dir, root string, err error) {
	if dir, err = os.MkdirTemp(parent, name+"-"); err != nil {
		return "", "", err
	}
	root = filepath.Join(dir, "root")
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(root, 0o755), os.Mkdir(filepath.Join(root, "pub"), 0o755),
		os.Chmod(filepath.Join(root, "pub"), 0o777))
	return dir, root, err
}

// freePort returns an address without a listener, for servers that cannot choose one. It is outside of the kernel's ephemeral range, so that no other
// program gets it meanwhile.
func freePort() (address string, port int, err error) {
	for range 100 {
		port = LastPort + 1 + rand.IntN(2000)
		address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		var l net.Listener
		if l, err = net.Listen("tcp", address); err == nil {
			return address, port, l.Close()
		}
	}
	return "", 0, err
}
