//go:build linux

package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/integration/bench/raw"
)

// smallSize is the size of small files.
const smallSize = 1 << 10

// blocking is a client that blocks in system calls and allocates nothing: see raw. It transfers a small file.
type blocking struct {
	user, name string
	way        way
	d          time.Duration // that it works

	lines   raw.Lines
	line    []byte // the memory of what is sent
	refused []byte // the last reply that was not as it should be
	content []byte // to be sent
	buffer  []byte // for what comes
}

func newBlocking(user string, w way, name string, d time.Duration) *blocking {
	return &blocking{
		user: user, name: name, way: w, d: d,
		line: make([]byte, 0, 512), refused: make([]byte, 0, 512), content: text()[:smallSize], buffer: make([]byte, 64<<10),
	}
}

func (c *blocking) login(port int) (errno syscall.Errno) {
	if c.lines.FD, errno = raw.Dial(port); errno != 0 {
		return errno
	}
	if errno = raw.NoDelay(c.lines.FD); errno != 0 {
		return errno
	}
	if _, errno = c.reply(); errno != 0 { // the greeting
		return errno
	}
	for _, line := range [...][2]string{{"USER ", c.user}, {"PASS ", password}, {"TYPE ", "I"}} {
		if _, errno = c.ask(line[0], line[1]); errno != 0 {
			return errno
		}
	}
	return 0
}

// work transfers the file for its time, at least once, and returns how often and how long that took.
func (c *blocking) work() (count int, elapsed time.Duration, errno syscall.Errno) {
	start := time.Now()
	for elapsed < c.d || count == 0 {
		if errno = c.transfer(c.way); errno != 0 {
			return count, elapsed, errno
		}
		count++
		elapsed = time.Since(start)
	}
	return count, elapsed, 0
}

// transfer transfers the file once, in passive mode.
func (c *blocking) transfer(w way) syscall.Errno {
	line, errno := c.ask("PASV", "")
	if errno != 0 {
		return errno
	}
	port, ok := passivePort(line)
	if !ok {
		return c.refuse(line)
	}
	conn, errno := raw.Dial(port)
	if errno != 0 {
		return errno
	}
	verb := "STOR "
	if w == down {
		verb = "RETR "
	}
	if _, errno = c.ask(verb, c.name); errno == 0 { // 125 or 150
		errno = c.move(w, conn)
	}
	raw.Close(conn)
	if errno != 0 {
		return errno
	}
	_, errno = c.reply()
	return errno
}

// move sends the content, or receives as much until the end.
func (c *blocking) move(w way, conn int) syscall.Errno {
	if w == up {
		return raw.Write(conn, c.content)
	}
	for got := 0; ; {
		n, errno := raw.Read(conn, c.buffer)
		if errno != 0 {
			return errno
		}
		if got += n; n == 0 && got != len(c.content) {
			return unix.ENODATA
		}
		if n == 0 {
			return 0
		}
	}
}

// ask sends a command and returns the last line of its reply, which is no refusal.
func (c *blocking) ask(verb, argument string) ([]byte, syscall.Errno) {
	c.line = append(append(append(c.line[:0], verb...), argument...), "\r\n"...)
	if errno := raw.Write(c.lines.FD, c.line); errno != 0 {
		return nil, errno
	}
	return c.reply()
}

// reply reads a reply and returns its last line. A refusal is EPROTO.
func (c *blocking) reply() ([]byte, syscall.Errno) {
	for {
		line, errno := c.lines.Next()
		if errno != 0 {
			return nil, errno
		}
		code, last := replyCode(line)
		if last && code >= 400 {
			return nil, c.refuse(line)
		}
		if last {
			return line, 0
		}
	}
}

func (c *blocking) refuse(line []byte) syscall.Errno {
	c.refused = append(c.refused[:0], line[:min(len(line), cap(c.refused)-1)]...)
	return unix.EPROTO
}

// confess prints what went wrong: the last command, and the server's refusal or the system's.
func (c *blocking) confess(errno syscall.Errno) {
	end := len(c.line)
	for end > 0 && c.line[end-1] < ' ' {
		end--
	}
	_ = raw.Write(1, c.line[:end]) // nobody could be told
	_ = raw.Write(1, []byte(": "))
	if len(c.refused) == 0 {
		c.refused = append(append(c.refused, errno.Error()...), '\n')
	}
	_ = raw.Write(1, c.refused)
}
