package integration

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// program is a program in the background.
type program struct {
	cmd    *exec.Cmd
	to     io.WriteCloser
	from   *bufio.Reader // if it was launched
	exited chan struct{}
}

// started starts a program with a pipe as its input. The end of the test kills the program and its process group, if it leads one.
func started(t testing.TB, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{cmd: cmd, exited: make(chan struct{})}
	var err error
	if p.to, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		_ = cmd.Wait()
	}()
	t.Cleanup(p.kill)
	return p
}

// launch starts a program with pipes for its input and output.
func launch(t testing.TB, cmd *exec.Cmd) *program {
	t.Helper()
	from, w, err := os.Pipe() // not StdoutPipe, which Wait closes before all is read
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { from.Close() })
	defer w.Close()
	cmd.Stdout = w
	p := started(t, cmd)
	p.from = bufio.NewReader(from)
	return p
}

// line reads a line of its output; "" at the end.
func (p *program) line() string {
	line, _ := p.from.ReadString('\n')
	return strings.TrimSuffix(line, "\n")
}

// until reads its output up to a line that begins with the word, and returns that line; "" at the end.
func (p *program) until(word string) string {
	for {
		line, err := p.from.ReadString('\n')
		line = strings.TrimSuffix(line, "\n")
		if err != nil || strings.HasPrefix(line, word) {
			return line
		}
	}
}

// says checks the next line of its output.
func (p *program) says(t testing.TB, want string) {
	t.Helper()
	if line := p.line(); line != want {
		t.Fatalf("%.200q wrote %q, want %q; standard error: %q", p.cmd.Args, line, want, p.cmd.Stderr)
	}
}

// exit waits for the end of a program and returns its status; -n: signal n ended it.
func (p *program) exit(t testing.TB) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		t.Fatalf("%.200q does not end", p.cmd.Args)
	}
	if ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return -int(ws.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// ended waits for the end of a program and checks its status.
func (p *program) ended(t testing.TB, status int) {
	t.Helper()
	if got := p.exit(t); got != status {
		t.Errorf("%.200q: exit status %d, want %d; standard error: %q", p.cmd.Args, got, status, p.cmd.Stderr)
	}
}

func (p *program) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// kill ends it with SIGKILL and waits.
func (p *program) kill() {
	if p.cmd.SysProcAttr.Setpgid {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// hasEnded reports whether the program has ended.
func (p *program) hasEnded() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// ends checks that the output ends without another line: then all processes of the program have ended.
func (p *program) ends(t testing.TB, what string) {
	t.Helper()
	said := make(chan string, 1)
	go func() { said <- p.line() }()
	select {
	case line := <-said:
		if line != "" {
			t.Errorf("%s: it wrote %q", what, line)
		}
	case <-time.After(patience):
		t.Fatalf("%s: a process of it still runs", what)
	}
}
