//go:build unix

package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the one that controls us, if there is one; a nil terminal does nothing.
type terminal struct {
	file  *os.File
	group int // ours
}

func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &terminal{file, unix.Getpgrp()}
}

func (t *terminal) fd() int { return int(t.file.Fd()) }

// ours reports whether our group may read from the terminal.
func (t *terminal) ours() bool { return t != nil && t.foreground() == t.group }

func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

// give makes a group the one that may read from the terminal. We are not to be stopped for that (SIGTTOU), nor for what we
// say on standard error from then on; no command is started later that could inherit it.
func (t *terminal) give(group int) {
	if t == nil {
		return
	}
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group)
}

// takeBack makes it ours again, if the group has it.
func (t *terminal) takeBack(group int) {
	if t != nil && t.foreground() == group {
		t.give(t.group)
	}
}

// close takes the terminal back from the command's group, which has ended, or was never there.
func (t *terminal) close(group int) {
	if t == nil {
		return
	}
	if g := t.foreground(); g == group || g > 0 && errors.Is(unix.Kill(-g, 0), unix.ESRCH) {
		t.give(t.group)
	}
	t.file.Close()
}
