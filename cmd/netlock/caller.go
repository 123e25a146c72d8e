package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errCallerGone is the cause of a context that ended because no program needs the lock any more.
var errCallerGone = errors.New("no program needs the lock any more")

// watchCaller returns a context that ends, with a cause that matches errCallerGone, when the parent process ends or the reader of standard output
// closes it. It returns an error if the parent has ended already and standard output cannot report the end of a reader.
//
// Each system has its own watch (caller_*.go). poll waits for half a second and returns why the caller is gone, or "". cannotDetectEnd reports whether
// poll can never detect that. The goroutine ends with the context, or within half a second after it.
func watchCaller(ctx context.Context) (context.Context, context.CancelFunc, error) {
	w := newWatch()
	if w.cannotDetectEnd() {
		return nil, nil, fail(exitUsage, "the process that started this has ended already, so nothing would release the lock: give netlock a command, or a pipe for standard output")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for ctx.Err() == nil {
			if why := w.poll(); why != "" {
				cancel(fmt.Errorf("%w: %s", errCallerGone, why))
			}
		}
	}()
	return ctx, func() { cancel(nil) }, nil
}

// pollTime is the duration of a poll.
const pollTime = 500 * time.Millisecond

// The results of a poll.
const (
	stdoutClosed = "standard output is closed"
	parentEnded  = "the process that started it has ended"
)
