package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// catchSIGPIPE keeps SIGPIPE from ending netlock when standard output or error is closed. It does not ignore the signal, because the command would
// inherit that.
func catchSIGPIPE() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// ignoreQuitOfBackgroundJob ignores SIGQUIT, for netlock and its command, if SIGINT was ignored when netlock was started: a shell without job
// control starts a background job so. Go keeps only an inherited SIG_IGN of SIGHUP and SIGINT. It replaces the others before any code of netlock
// runs, and /proc/self/status does not show them any more.
func ignoreQuitOfBackgroundJob() {
	if signal.Ignored(os.Interrupt) {
		signal.Ignore(syscall.SIGQUIT)
	}
}

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

// dieOfSignal ends netlock by the signal of a statusError, if it has one. A shell ends its script only if netlock dies of the signal of ^C.
func dieOfSignal(err error) {
	if e, ok := errors.AsType[*statusError](err); ok && e.signal != nil {
		raise(e.signal.(syscall.Signal), e.group)
	}
}
