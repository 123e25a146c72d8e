//go:build linux

// Command floor does the least that a server can do for files in passive mode: a thread for each session that blocks in
// system calls and computes next to nothing between them. It is the measure of what integration/bench finds for small files, as
// echo is for lines, and nothing to serve files with: whoever connects may read and write all that it may.
//
//	floor DIR FIRST LAST
//
// It listens on a free port of 127.0.0.1, prints the address on a line, takes passive ports from FIRST to LAST, and ends when its standard input
// does. A download is open, fstat, sendfile, close; an upload goes to a temporary file that replaces the target by one rename.
// An upload whose client was killed is published like any other, no name is looked at, nothing is recorded.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/ftplockd/ftplockd/integration/bench/raw"
)

// maxSessions is how many threads may block at the same time.
const maxSessions = 256

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: floor DIR FIRST LAST")
	}
	first, ferr := strconv.Atoi(args[1])
	last, lerr := strconv.Atoi(args[2])
	if err := errors.Join(ferr, lerr, os.Chdir(args[0])); err != nil {
		return err
	}
	runtime.GOMAXPROCS(maxSessions + 2) // one for the listener, one for what is left of Go
	debug.SetGCPercent(-1)
	listener, errno := raw.Listen(0, 100)
	if errno != 0 {
		return errno
	}
	port, errno := raw.Port(listener)
	if errno != 0 {
		return errno
	}
	fmt.Printf("127.0.0.1:%d\n", port)
	go serve(listener, first, last)
	_, err := io.Copy(io.Discard, os.Stdin) // sessions end with the process
	return err
}

// serve has each connection served by a thread of its own.
func serve(listener, first, last int) {
	block()
	for n := uint32(1); ; n++ {
		conn, errno := raw.Accept(listener)
		if errno != 0 {
			fmt.Fprintln(os.Stderr, "floor: accept:", errno)
			os.Exit(1)
		}
		s := newSession(conn, n, first, last)
		go func() {
			block()
			s.serve()
		}()
	}
}

// block makes the thread one that may block. It ends with its goroutine.
func block() {
	runtime.LockOSThread()
	if errno := raw.BlockSignals(); errno != 0 {
		panic(errno)
	}
}
