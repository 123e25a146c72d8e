package main

import (
	"errors"
	"io"
	"time"
)

// readTimeout limits the wait for a reader of a message.
const readTimeout = time.Second

var errNotRead = errors.New("no program reads the output")

// startWrite writes in the background and returns a channel for the result. A write that waits for a reader ends with the process.
func startWrite(out io.Writer, text string) <-chan error {
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(out, text)
		written <- err
	}()
	return written
}

// message writes a line of netlock and waits until it is read, for readTimeout at most.
func message(out io.Writer, text string) { _ = await(startWrite(out, "netlock: "+oneLine(text)+"\n")) }

// await waits for the result of startWrite, for readTimeout at most.
func await(written <-chan error) error {
	late := time.NewTimer(readTimeout)
	defer late.Stop()
	select {
	case err := <-written:
		return err
	case <-late.C:
		return errNotRead
	}
}
