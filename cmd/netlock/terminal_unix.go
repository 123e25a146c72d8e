//go:build unix

package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal; a nil terminal does nothing.
type terminal struct {
	file  *os.File
	group int // of netlock
}

func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &terminal{file, unix.Getpgrp()}
}

func (t *terminal) fd() int { return int(t.file.Fd()) }

// ours reports whether netlock is in the foreground.
func (t *terminal) ours() bool { return t != nil && t.foreground() == t.group }

func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

// give puts a group into the foreground. It ignores SIGTTOU, which would stop netlock for that and for later output to standard error. Netlock
// starts no command after that, so no command inherits it.
func (t *terminal) give(group int) {
	if t == nil {
		return
	}
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group)
}

// takeBack puts netlock into the foreground if the group is there.
func (t *terminal) takeBack(group int) {
	if t != nil && t.foreground() == group {
		t.give(t.group)
	}
}

// close takes the terminal back from the command's group, which has ended or did not start.
func (t *terminal) close(group int) {
	if t == nil {
		return
	}
	if g := t.foreground(); g == group || g > 0 && errors.Is(unix.Kill(-g, 0), unix.ESRCH) {
		t.give(t.group)
	}
	t.file.Close()
}
