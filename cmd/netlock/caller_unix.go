//go:build unix

package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// askParent is how often the parent is asked for, in milliseconds: it has ended when another process is our parent.
const askParent = 500

// watch polls standard output for an error condition, which a pipe has when its other end is closed, and standard input and the parent for
// their ends.
type watch struct {
	out    int
	files  []unix.PollFd // the first is stop's; -1 is not looked at
	what   []string      // for each: what it means, "" for stop
	parent int           // its process id
	stop   [2]*os.File   // a pipe: closing the second end interrupts wait
}

func newWatch(stdin bool) (*watch, error) { return watchFiles(stdin, unix.Stdin, unix.Stdout) }

func watchFiles(stdin bool, in, out int) (*watch, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	watch := &watch{out: out, parent: os.Getppid(), stop: [2]*os.File{r, w}}
	watch.add(int(r.Fd()), unix.POLLIN, "")
	watch.add(out, 0, stdoutClosed)
	if stdin {
		watch.add(in, unix.POLLIN, stdinClosed)
	}
	return watch, nil
}

// blind: whoever has lost its parent is given to process 1, or to a service manager (reaps). 0 is a parent that cannot be seen, in another
// process id namespace. Only pipes and sockets tell when their reader goes.
func (w *watch) blind() bool {
	if w.parent > 1 && !reaps(w.parent) {
		return false
	}
	var s unix.Stat_t
	if err := unix.Fstat(w.out, &s); err != nil {
		return true
	}
	kind := s.Mode & unix.S_IFMT
	return kind != unix.S_IFIFO && kind != unix.S_IFSOCK
}

// readerGone tells a closed pipe or socket from what else can keep us from writing.
func readerGone(err error) bool { return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) }

func (w *watch) add(fd int, events int16, what string) {
	w.files = append(w.files, unix.PollFd{Fd: int32(fd), Events: events})
	w.what = append(w.what, what)
}

func (w *watch) interrupt() { w.stop[1].Close() }

func (w *watch) close() {
	w.stop[0].Close()
	w.stop[1].Close()
}

func (w *watch) wait() string {
	for os.Getppid() == w.parent {
		_, err := unix.Poll(w.files, askParent)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return "" // nothing can be seen: the dots will tell
		}
		for i := range w.files {
			if why, stop := w.look(i); stop || why != "" {
				return why
			}
		}
	}
	return parentEnded
}

// look is what poll found out of one file.
func (w *watch) look(i int) (why string, stop bool) {
	f := &w.files[i]
	switch {
	case f.Revents == 0:
	case i == 0:
		return "", true
	case f.Revents&unix.POLLNVAL != 0:
		f.Fd = -1 // a system that cannot poll such a file
	case w.what[i] == stdinClosed && more(int(f.Fd)):
	default:
		return w.what[i], false
	}
	return "", false
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
