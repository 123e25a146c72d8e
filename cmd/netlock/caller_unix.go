//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watch polls standard output for an error condition, which a pipe has when its other end is closed, and standard input and the parent for
// their ends. The parent has ended when another process is our parent.
type watch struct {
	files  []unix.PollFd // -1 is not looked at
	parent int           // its process id
}

func newWatch(stdin bool) *watch {
	w := &watch{parent: os.Getppid(), files: []unix.PollFd{{Fd: int32(unix.Stdout)}}}
	if stdin {
		w.files = append(w.files, unix.PollFd{Fd: int32(unix.Stdin), Events: unix.POLLIN})
	}
	return w
}

// blind: process 1 adopts what has lost its parent; 0 is a parent in another process id namespace. Only pipes and sockets tell when
// their reader goes.
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
	if _, err := unix.Poll(w.files, int(lookFor.Milliseconds())); errors.Is(err, unix.EINTR) {
		return ""
	} else if err != nil {
		time.Sleep(lookFor) // nothing can be seen: the dots will tell
		return ""
	}
	for i := range w.files {
		f := &w.files[i]
		switch {
		case f.Revents == 0:
		case f.Revents&unix.POLLNVAL != 0:
			f.Fd = -1 // a system that cannot poll such a file
		case f.Events == 0:
			return stdoutClosed
		case !more(int(f.Fd)):
			return stdinClosed
		}
	}
	return ""
}

// more reads what there is, and reports whether more can come.
func more(fd int) bool {
	var b [4096]byte
	n, err := unix.Read(fd, b[:])
	return n > 0 || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
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
