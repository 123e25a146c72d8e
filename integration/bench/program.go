//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/integration/bench/raw"
)

// programWord is the first argument of a bench that is a client program, which bench itself starts:
//
//	bench client PORT USER up|down NAME DURATION
//
// It logs in, puts the file there, and prints "ready". Then it reads a line, the nanoseconds of CLOCK_MONOTONIC at which it begins to
// transfer the file over and over, for the duration. It prints how often it did, and in how many nanoseconds, and
// stays connected until its standard input ends. When something goes wrong it prints that instead, on a line.
//
// The client is a fork of that process, with one thread that blocks in system calls, like ftp -n or a script in Perl and unlike anything
// with Go's runtime: a server that looks at its clients' processes, as ftplockd does, sees what it sees of those.
// Nothing leads to it while it transfers, not even the pipe of its start. Standard input is read by its parent.
const programWord = "client"

// program is that client program, and returns its exit status.
func program(args []string) int {
	if err := runProgram(args); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// programEnvironment is what raw.Fork wants of Go's runtime.
func programEnvironment() []string { return append(os.Environ(), "GOMAXPROCS=1", "GOGC=off") }

func runProgram(args []string) error {
	c, port, err := parseProgram(args)
	if err != nil {
		return err
	}
	var start [2]int
	if err := unix.Pipe2(start[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	runtime.Gosched()
	pid, errno := raw.Fork()
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		raw.CloseOthers(start[0])
		c.program(port, start[0])
	}
	return errors.Join(unix.Close(start[0]), attend(pid, start[1]))
}

// parseProgram reads the command line of a client program. All the memory that the client needs is made here.
func parseProgram(args []string) (c *blocking, port int, err error) {
	if len(args) != 5 {
		return nil, 0, fmt.Errorf("a client program has no arguments %q", args)
	}
	port, perr := strconv.Atoi(args[0])
	d, derr := time.ParseDuration(args[4])
	if err := errors.Join(perr, derr); err != nil {
		return nil, 0, err
	}
	return newBlocking(args[1], way(args[2]), args[3], d), port, nil
}

// attend passes the time of the start on, and ends the client with the end of standard input.
func attend(pid, start int) error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err == nil {
		_, _ = unix.Write(start, line) // a client that has ended has said why
		_, err = io.Copy(io.Discard, in)
	}
	if err == io.EOF {
		err = nil
	}
	_ = unix.Kill(pid, unix.SIGKILL) // waiting tells whether it was there
	for {
		if _, werr := unix.Wait4(pid, nil, 0, nil); werr != unix.EINTR {
			return errors.Join(err, werr)
		}
	}
}

// program does what programWord says, in a process without Go's runtime. It does not return.
func (c *blocking) program(port, start int) {
	errno := withoutInput()
	if errno == 0 {
		errno = c.login(port)
	}
	if errno == 0 {
		errno = c.transfer(up) // what is to be replaced or fetched
	}
	if errno == 0 {
		errno = raw.Write(1, []byte("ready\n"))
	}
	if errno == 0 {
		errno = await(start)
	}
	count, elapsed := 0, time.Duration(0)
	if errno == 0 {
		count, elapsed, errno = c.work()
	}
	if errno != 0 {
		c.confess(errno)
		raw.Exit(1)
	}
	c.line = append(strconv.AppendInt(c.line[:0], int64(count), 10), ' ')
	c.line = append(strconv.AppendInt(c.line, int64(elapsed), 10), '\n')
	_ = raw.Write(1, c.line) // nobody could be told
	raw.Pause()
}

// withoutInput makes /dev/null the standard input.
func withoutInput() syscall.Errno {
	null, errno := raw.Open([]byte(os.DevNull+"\x00"), unix.O_RDONLY)
	if errno == 0 {
		errno = raw.Become(0, null)
		raw.Close(null)
	}
	return errno
}

// await reads the time of the start from a pipe, closes that, and sleeps until then.
func await(start int) syscall.Errno {
	lines := raw.Lines{FD: start}
	line, errno := lines.Next()
	if errno != 0 {
		return errno
	}
	then := 0
	for _, digit := range line[:len(line)-1] {
		then = 10*then + int(digit-'0')
	}
	raw.Close(start)
	raw.SleepUntil(time.Duration(then))
	return 0
}
