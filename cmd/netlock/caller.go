package main

import (
	"context"
	"errors"
	"fmt"
)

// errCallerGone is the cause of a context that ended since nobody needs the lock any more.
var errCallerGone = errors.New("nobody needs the lock any more")

// watchCaller returns a context that ends, with a cause that matches errCallerGone, when the one that started us is gone: its process has
// ended, our standard output is closed or, with stdin, our standard input. forget returns when that is over.
//
// Each system has its watch (caller_*.go): newWatch begins, wait blocks until the caller is gone and says why, or until
// interrupt was called and says "", close comes after wait.
func watchCaller(ctx context.Context, stdin bool) (_ context.Context, forget func(), err error) {
	w, err := newWatch(stdin)
	if err != nil {
		return nil, nil, err
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
