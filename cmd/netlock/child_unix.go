//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// child is a command in a process group of its own, and all that it started there. Its methods but events are for one goroutine.
type child struct {
	pid      int // and the number of its group
	terminal *terminal
	events   chan childEvent
	waited   chan struct{}
}

// childEvent is the end of a command, or that it was stopped, by a signal of job control or another.
type childEvent struct {
	status  int
	stopped os.Signal
}

// startChild starts a command with our standard files, and with the terminal if it is ours to give.
func startChild(path string, argv, env []string) (*child, error) {
	c := &child{terminal: openTerminal(), events: make(chan childEvent), waited: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(c.waited)
		// The kernel ends the command with this thread (childAttributes), so the thread must stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p, err := os.StartProcess(path, argv, &os.ProcAttr{
			Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: c.attributes(),
		})
		if err == nil {
			c.pid = p.Pid
		}
		started <- err
		if err == nil {
			c.wait()
			_ = p.Release()
		}
	}()
	if err := <-started; err != nil {
		<-c.waited
		c.terminal.close(0)
		var failed *os.PathError
		if errors.As(err, &failed) {
			err = &exec.Error{Name: argv[0], Err: failed.Err}
		}
		return nil, err
	}
	return c, nil
}

func (c *child) attributes() *syscall.SysProcAttr {
	a := childAttributes()
	a.Setpgid = true
	if c.terminal.ours() {
		a.Foreground, a.Ctty = true, c.terminal.fd()
	}
	return a
}

// wait tells of everything that happens to the command until its end.
func (c *child) wait() {
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(c.pid, &ws, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			c.events <- childEvent{status: exitInternal} // somebody else has waited for it: it has ended
			return
		case ws.Stopped():
			c.events <- childEvent{stopped: ws.StopSignal()}
		case ws.Signaled():
			c.events <- childEvent{status: exitSignal + int(ws.Signal())}
			return
		case ws.Exited():
			c.events <- childEvent{status: ws.ExitStatus()}
			return
		}
	}
}

// close is called after the last event.
func (c *child) close() {
	<-c.waited
	c.terminal.close(c.pid)
}

// number is that of the group.
func (c *child) number() int { return c.pid }

// group sends a signal to the whole group; there may be nobody any more.
func (c *child) group(s syscall.Signal) { _ = unix.Kill(-c.pid, s) }

// terminate asks the group to end, also what is stopped of it.
func (c *child) terminate() {
	c.group(unix.SIGTERM)
	c.group(unix.SIGCONT)
}

func (c *child) kill() { c.group(unix.SIGKILL) }

// anybody reports whether somebody of the group is left. The number of a group is not used again before.
func (c *child) anybody() bool { return unix.Kill(-c.pid, 0) == nil }

// pass gives a signal that we got to the group. After SIGCONT a shell may have given us the terminal (fg): it is the command's.
func (c *child) pass(s os.Signal) {
	if s == syscall.SIGCONT && c.terminal.ours() {
		c.terminal.give(c.pid)
	}
	c.group(s.(syscall.Signal))
}

// suspend stops us, too, when job control has stopped the command (^Z, or it wants the terminal while in the background), so that the shell has the terminal back.
// SIGCONT to us is passed on. The lock is not looked after meanwhile.
func (c *child) suspend(s os.Signal) {
	switch s {
	case syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU:
		c.terminal.takeBack(c.pid)
		_ = unix.Kill(0, unix.SIGTSTP) // all of our group, which is the shell's job
	}
}

// forwarded are the signals that are passed on to the command.
func forwarded() []os.Signal {
	return append(endings(), syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGALRM)
}
