//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// raise ends netlock by a signal, as if netlock did not catch it. With group, the whole process group of netlock gets the signal. It returns if the
// signal cannot end netlock: an ignored signal stays ignored, process 1 has no default actions, and the Go runtime handles the other signals in its
// own way.
func raise(s syscall.Signal, group bool) {
	fatal := (s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP) && os.Getpid() != 1 && !signal.Ignored(s)
	if fatal {
		signal.Reset(s)
	}
	switch {
	case group:
		_ = unix.Kill(0, s)
	case fatal:
		_ = unix.Kill(os.Getpid(), s)
	}
	if fatal {
		time.Sleep(10 * time.Second) // another thread may receive the signal
	}
}
