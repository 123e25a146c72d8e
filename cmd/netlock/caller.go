package main

import (
	"context"
	"errors"
	"fmt"
)

// errCallerGone is the cause of a context that ended since nobody needs the lock any more.
var errCallerGone = errors.New("nobody needs the lock any more")

// errNoCaller says that there is nobody to hold a lock for.
var errNoCaller = errors.New("the process that started this has ended already, so nothing would end the lock: use \"netlock run\", or --stdin, or a pipe for standard output")

// watchCaller returns a context that ends, with a cause that matches errCallerGone, when the one that started us is gone: its process has
// ended, our standard output is closed or, with stdin, our standard input. forget returns when that is over.
//
// If it has gone already, and nothing else can tell when nobody needs the lock any more, the error is errNoCaller.
//
// Each system has its watch (caller_*.go): newWatch begins, blind says that neither a parent nor standard output will ever tell anything, wait blocks until the caller is gone and says why, or until
// interrupt was called and says "", close comes after wait.
func watchCaller(ctx context.Context, stdin bool) (_ context.Context, forget func(), err error) {
	w, err := newWatch(stdin)
	if err != nil {
		return nil, nil, err
	}
	if !stdin && w.blind() {
		w.close()
		return nil, nil, errNoCaller
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if why := w.wait(); why != "" {
			cancel(fmt.Errorf("%w: %s", errCallerGone, why))
		}
	}()
	return ctx, func() {
		w.interrupt()
		<-ended
		w.close()
		cancel(nil)
	}, nil
}

// What a watch can see.
const (
	stdoutClosed = "standard output is closed"
	stdinClosed  = "standard input has ended"
	parentEnded  = "the process that started it has ended"
)
