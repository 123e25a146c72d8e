package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// listenForPipe keeps a closed standard output or error from killing us: Go does that with SIGPIPE unless somebody listens for it. It is
// not ignored, since the commands that we start would inherit that.
func listenForPipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// listen returns what signals are to be acted on, and what ends that. Those that were ignored when we were started (nohup,
// a background job) stay so.
func listen(signals ...os.Signal) (<-chan os.Signal, func()) {
	heard := make(chan os.Signal, 8)
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(heard, s)
		}
	}
	return heard, func() { signal.Stop(heard) }
}

// endings are the signals that ask for an end.
func endings() []os.Signal {
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
}

// interruptible returns a context that the next of the endings ends, with the cause interrupted. stop returns when that is over.
func interruptible(ctx context.Context) (_ context.Context, stop func()) {
	signals, forget := listen(endings()...)
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
