package main

import (
	"errors"
	"io"
	"time"
)

// unread limits the wait for a reader of a message.
const unread = time.Second

var errUnread = errors.New("it is not read")

// say writes in the background and returns a channel for the result. A write that waits for a reader ends with the process.
func say(out io.Writer, text string) <-chan error {
	said := make(chan error, 1)
	go func() {
		_, err := io.WriteString(out, text)
		said <- err
	}()
	return said
}

// heard waits for the result of say, for a second at most.
func heard(said <-chan error) error {
	late := time.NewTimer(unread)
	defer late.Stop()
	select {
	case err := <-said:
		return err
	case <-late.C:
		return errUnread
	}
}
