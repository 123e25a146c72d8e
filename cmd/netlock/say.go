package main

import (
	"errors"
	"io"
	"time"
)

// unread is how long something to be said may wait for somebody who reads it, at the end of a program.
const unread = time.Second

var errUnread = errors.New("nobody reads it")

// say writes without keeping us from what is more urgent. A write that nobody reads ends with the process.
func say(out io.Writer, text string) <-chan error {
	said := make(chan error, 1)
	go func() {
		_, err := io.WriteString(out, text)
		said <- err
	}()
	return said
}

// heard waits until it is said, but not for long.
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
