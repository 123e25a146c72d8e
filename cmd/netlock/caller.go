package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errCallerGone is the cause of a context that ended since nobody needs the lock any more.
var errCallerGone = errors.New("nobody needs the lock any more")

// watchCaller returns a context that ends, with a cause that matches errCallerGone, when the one that started us is gone: its process has
// ended or our standard output is closed.
//
// If it has gone already, and nothing else can tell when nobody needs the lock any more, that is an error.
//
// Each system has its watch (caller_*.go): newWatch begins, blind says that neither a parent nor standard output will ever tell anything, look
// says why the caller is gone, or "" after half a second. The watch ends so soon after the context, or with us.
func watchCaller(ctx context.Context) (context.Context, context.CancelFunc, error) {
	w := newWatch()
	if w.blind() {
		return nil, nil, fail(exitUsage, "the process that started this has ended already, so nothing would end the lock: give netlock a command, or a pipe for standard output")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for ctx.Err() == nil {
			if why := w.look(); why != "" {
				cancel(fmt.Errorf("%w: %s", errCallerGone, why))
			}
		}
	}()
	return ctx, func() { cancel(nil) }, nil
}

// lookFor is how long a look takes if there is nothing to be seen.
const lookFor = 500 * time.Millisecond

// What a watch can see.
const (
	stdoutClosed = "standard output is closed"
	parentEnded  = "the process that started it has ended"
)
