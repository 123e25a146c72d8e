package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// catchSIGPIPE keeps SIGPIPE from ending netlock when standard output or error is closed. It does not ignore the signal, because the command would
// inherit that.
func catchSIGPIPE() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// listen returns a channel for the signals, and a function that ends it. Signals that were ignored when netlock was started (nohup, a background
// job) stay ignored.
func listen(signals ...os.Signal) (<-chan os.Signal, func()) {
	received := make(chan os.Signal, 8)
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(received, s)
		}
	}
	return received, func() { signal.Stop(received) }
}

// endSignals returns the signals that end a program.
func endSignals() []os.Signal {
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
}

// interruptible returns a context that ends with the next of endSignals; its cause is interrupted. stop waits for the goroutine.
func interruptible(ctx context.Context) (_ context.Context, stop func()) {
	signals, forget := listen(endSignals()...)
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case s := <-signals:
			cancel(interrupted{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
		forget()
	}
}
