//go:build linux

package main

import (
	"bytes"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/integration/bench/raw"
)

// session is a control connection. It is for one thread.
type session struct {
	lines       raw.Lines
	first, last int    // passive ports
	random      uint32 // never 0
	passive     int    // the listener of the last PASV; -1: none
	temporary   []byte // where uploads go, a path
	reply       [64]byte
	path        [1024]byte
	content     [64 << 10]byte
}

// newSession is for the n-th connection, which begins with 1.
func newSession(conn int, n uint32, first, last int) *session {
	s := &session{first: first, last: last, random: n * 2654435761, passive: -1}
	s.lines.FD = conn
	s.temporary = append(strconv.AppendUint([]byte("pub/.upload-"), uint64(n), 10), 0)
	return s
}

// serve returns when the client has hung up, or when anything goes wrong.
func (s *session) serve() {
	errno := raw.NoDelay(s.lines.FD)
	if errno == 0 {
		errno = s.say("220 floor\r\n")
	}
	for errno == 0 {
		var line []byte
		if line, errno = s.lines.Next(); errno == 0 {
			errno = s.do(bytes.TrimRight(line, "\r\n"))
		}
	}
	s.hangUp()
	raw.Close(s.lines.FD)
}

func (s *session) hangUp() {
	if s.passive >= 0 {
		raw.Close(s.passive)
		s.passive = -1
	}
}

// do answers a command. An error ends the session.
func (s *session) do(line []byte) syscall.Errno {
	verb, name, _ := bytes.Cut(line, []byte(" "))
	switch string(verb) {
	case "USER":
		return s.say("331 any\r\n")
	case "PASS":
		return s.say("230 in\r\n")
	case "TYPE":
		return s.say("200 as it is\r\n")
	case "PASV":
		return s.listen()
	case "STOR":
		return s.transfer(s.receive(s.pathOf(name)))
	case "RETR":
		return s.transfer(s.send(s.pathOf(name)))
	case "DELE":
		if raw.Remove(s.pathOf(name)) != 0 {
			return s.say("550 no\r\n")
		}
		return s.say("250 gone\r\n")
	}
	return s.say("502 no\r\n")
}

// pathOf makes a path below the working directory of a name.
func (s *session) pathOf(name []byte) []byte {
	n := copy(s.path[:len(s.path)-1], bytes.TrimLeft(name, "/"))
	s.path[n] = 0
	return s.path[:n+1]
}

func (s *session) say(reply string) syscall.Errno {
	return raw.Write(s.lines.FD, s.reply[:copy(s.reply[:], reply)])
}

// listen answers PASV. Ports are taken at random: few of many are in use.
func (s *session) listen() (errno syscall.Errno) {
	s.hangUp()
	for range 100 {
		port := s.anyPort()
		if s.passive, errno = raw.Listen(port, 1); errno == 0 {
			reply := append(s.reply[:0], "227 (127,0,0,1,"...)
			reply = append(strconv.AppendUint(reply, uint64(port>>8), 10), ',')
			reply = append(strconv.AppendUint(reply, uint64(port&0xff), 10), ")\r\n"...)
			return raw.Write(s.lines.FD, reply)
		}
		s.passive = -1
	}
	return errno
}

// anyPort is xorshift of 32 bits (Marsaglia 2003).
func (s *session) anyPort() int {
	s.random ^= s.random << 13
	s.random ^= s.random >> 17
	s.random ^= s.random << 5
	return s.first + int(s.random%uint32(s.last-s.first+1))
}

// open accepts the data connection and says so.
func (s *session) open() (conn int, errno syscall.Errno) {
	conn, errno = raw.Accept(s.passive)
	s.hangUp()
	if errno == 0 {
		if errno = s.say("150 now\r\n"); errno != 0 {
			raw.Close(conn)
		}
	}
	return conn, errno
}

// transfer says how a transfer ended.
func (s *session) transfer(errno syscall.Errno) syscall.Errno {
	if errno != 0 {
		return s.say("451 broken\r\n")
	}
	return s.say("226 done\r\n")
}

func (s *session) send(path []byte) syscall.Errno {
	file, errno := raw.Open(path, unix.O_RDONLY)
	if errno != 0 {
		return errno
	}
	defer raw.Close(file)
	size, errno := raw.Size(file)
	if errno != 0 {
		return errno
	}
	conn, errno := s.open()
	if errno != 0 {
		return errno
	}
	defer raw.Close(conn)
	return raw.Send(conn, file, size)
}

func (s *session) receive(path []byte) syscall.Errno {
	file, errno := raw.Open(s.temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	if errno != 0 {
		return errno
	}
	errno = s.fill(file)
	raw.Close(file)
	if errno != 0 {
		return errno
	}
	return raw.Rename(s.temporary, path)
}

// fill writes to the file what comes until the client ends the data connection.
func (s *session) fill(file int) syscall.Errno {
	conn, errno := s.open()
	if errno != 0 {
		return errno
	}
	defer raw.Close(conn)
	for {
		n, errno := raw.Read(conn, s.content[:])
		if errno != 0 || n == 0 {
			return errno
		}
		if errno := raw.Write(file, s.content[:n]); errno != 0 {
			return errno
		}
	}
}
