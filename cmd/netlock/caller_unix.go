//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watch polls standard output for an error condition, which a pipe has when its other end is closed. The parent has ended when another process
// is our parent.
type watch struct {
	output []unix.PollFd
	parent int // its process id
}

func newWatch() *watch {
	return &watch{parent: os.Getppid(), output: []unix.PollFd{{Fd: int32(unix.Stdout)}}}
}

// blind reports whether neither the parent nor the output shows the end of the caller. Process 1 adopts orphans; 0 is a parent in
// another process id namespace. Only pipes and sockets report the end of their reader.
func (w *watch) blind() bool {
	if w.parent > 1 {
		return false
	}
	var s unix.Stat_t
	if err := unix.Fstat(unix.Stdout, &s); err != nil {
		return true
	}
	kind := s.Mode & unix.S_IFMT
	return kind != unix.S_IFIFO && kind != unix.S_IFSOCK
}

// readerGone tells a closed pipe or socket from what else can keep us from writing.
func readerGone(err error) bool { return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) }

func (w *watch) look() string {
	if os.Getppid() != w.parent {
		return parentEnded
	}
	n, err := unix.Poll(w.output, int(lookFor.Milliseconds()))
	switch {
	case errors.Is(err, unix.EINTR), n == 0:
	case err != nil || w.output[0].Revents&unix.POLLNVAL != 0:
		time.Sleep(lookFor) // nothing can be seen: the dots will tell
	default:
		return stdoutClosed
	}
	return ""
}

// hasRoom reports whether a write to the file would not wait. A file that cannot be asked has room.
func hasRoom(file *os.File) bool {
	raw, err := file.SyscallConn()
	if err != nil {
		return true
	}
	room := true
	err = raw.Control(func(fd uintptr) {
		f := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, perr := unix.Poll(f, 0)
		room = perr != nil || n > 0
	})
	return err != nil || room
}

// umask returns the mode bits that new files do not get.
func umask() fs.FileMode {
	mask := unix.Umask(0)
	unix.Umask(mask)
	return fs.FileMode(mask)
}
