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

// child is a command in a process group of its own, with the processes that it started there. One goroutine may call its methods.
type child struct {
	pid      int // of the command and of its group
	terminal *terminal
	events   chan childEvent
	waited   chan struct{}
}

// childEvent reports that a command ended, or that a signal stopped it.
type childEvent struct {
	status  int
	signal  os.Signal // that ended the command; nil: it exited
	stopped os.Signal
}

// startChild starts a command with the standard files of netlock. The command gets the terminal if netlock is in the foreground.
func startChild(path string, argv, env []string) (*child, error) {
	c := &child{terminal: openTerminal(), events: make(chan childEvent), waited: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(c.waited)
		// The kernel kills the command when this thread ends (childAttributes).
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

// wait sends the events of the command until its end. As process 1, netlock gets the orphans of its container as children, and waits for them, too.
func (c *child) wait() {
	which := c.pid
	if os.Getpid() == 1 {
		which = -1
	}
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(which, &ws, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR), err == nil && pid != c.pid:
		case err != nil:
			c.events <- childEvent{status: exitInternal} // it has ended, and its status is lost
			return
		case ws.Stopped():
			c.events <- childEvent{stopped: ws.StopSignal()}
		case ws.Signaled():
			c.events <- childEvent{status: exitSignal + int(ws.Signal()), signal: ws.Signal()}
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

// groupID returns the id of the group.
func (c *child) groupID() int { return c.pid }

// signalGroup sends a signal to the whole group, which may be empty.
func (c *child) signalGroup(s syscall.Signal) { _ = unix.Kill(-c.pid, s) }

// terminate sends SIGTERM to the group, and SIGCONT to the processes of it that are stopped.
func (c *child) terminate() {
	c.signalGroup(unix.SIGTERM)
	c.signalGroup(unix.SIGCONT)
}

func (c *child) kill() { c.signalGroup(unix.SIGKILL) }

// hasKey reports whether the terminal may have sent the signal to the group of the command: it is that of ^C or ^\, and the group is in the
// foreground. Nothing distinguishes it from the same signal of another program.
func (c *child) hasKey(s os.Signal) bool {
	return (s == syscall.SIGINT || s == syscall.SIGQUIT) && c.terminal != nil && c.terminal.foreground() == c.pid
}

// forward sends a signal on to the group. Before SIGCONT a shell may have given netlock the terminal (fg): the command gets it.
func (c *child) forward(s os.Signal) {
	if s == syscall.SIGCONT && c.terminal.ours() {
		c.terminal.give(c.pid)
	}
	c.signalGroup(s.(syscall.Signal))
}

// suspend stops netlock, too, when job control has stopped the command (^Z, or a read from the terminal in the background). So the shell gets the
// terminal back. Netlock passes a SIGCONT on. Meanwhile it does not watch the lock.
func (c *child) suspend(s os.Signal) {
	switch s {
	case syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU:
		c.terminal.takeBack(c.pid)
		_ = unix.Kill(0, unix.SIGTSTP) // the whole group of netlock, which is the shell's job
	}
}

// forwardedSignals returns the signals that netlock passes on to the command.
func forwardedSignals() []os.Signal {
	return append(endSignals(), syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGALRM)
}
