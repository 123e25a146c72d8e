//go:build unix

package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// watch polls standard output for an error condition, which a pipe has when its reader has closed it. When the parent ends, the process gets
// another parent.
type watch struct {
	output []unix.PollFd
	parent int // its process id
}

func newWatch() *watch {
	return &watch{parent: os.Getppid(), output: []unix.PollFd{{Fd: int32(unix.Stdout)}}}
}

// cannotDetectEnd reports whether neither the parent nor standard output shows the end of the caller. Only pipes and sockets report the end of their
// reader.
func (w *watch) cannotDetectEnd() bool {
	if !w.orphan() {
		return false
	}
	var s unix.Stat_t
	if err := unix.Fstat(unix.Stdout, &s); err != nil {
		return true
	}
	kind := s.Mode & unix.S_IFMT
	return kind != unix.S_IFIFO && kind != unix.S_IFSOCK
}

// orphan reports whether the parent is not the process that started this one. Process 1 adopts orphans, and so does a subreaper such as
// "systemd --user", which is in another session. The number 0 is a parent in another process id namespace. The leader of a session may have a parent
// in another one.
func (w *watch) orphan() bool {
	ours, _ := unix.Getsid(0)
	theirs, err := unix.Getsid(w.parent)
	return w.parent <= 1 || ours != os.Getpid() && (err != nil || theirs != ours)
}

// readerGone reports whether a write failed because the reader of a pipe or socket has closed it.
func readerGone(err error) bool { return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) }

func (w *watch) poll() string {
	if os.Getppid() != w.parent {
		return parentEnded
	}
	n, err := unix.Poll(w.output, int(pollTime.Milliseconds()))
	if errors.Is(err, unix.EINTR) || n == 0 {
		return ""
	}
	return stdoutClosed
}
