package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// dotEvery is the pause between the dots. It is also how long a closed standard output can go unnoticed where the system
// does not tell of it by itself.
const dotEvery = 2 * time.Second

// holder holds a lock for the one that started it.
type holder struct {
	*settings
	out *os.File // OK or a reason, then dots
}

// run is all of it. What is wrong is said on standard output, where the one that started it reads.
func (h *holder) run(ctx context.Context, arg string) error {
	h.out = os.Stdout
	ctx, stop := interruptible(ctx)
	defer stop()
	ctx, forget, err := watchCaller(ctx)
	if err != nil {
		return h.refuse(err)
	}
	defer forget()
	t, err := h.resolve(arg)
	if err != nil {
		return h.refuse(err)
	}
	lock, err := acquire(ctx, t)
	if err != nil {
		return h.refuse(err)
	}
	herr := h.hold(ctx, lock.Context().Done())
	return h.end(errors.Join(lock.release(t), herr))
}

// hold returns when nobody needs the lock any more, or when it is lost. An error says that nothing can be written, though somebody may read.
func (h *holder) hold(ctx context.Context, lost <-chan struct{}) error {
	ok := say(h.out, "OK\n")
	dots := time.NewTicker(dotEvery)
	defer dots.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			return nil
		case err := <-ok:
			if ok = nil; err != nil {
				return unwritten(err)
			}
		case <-dots.C:
			// Who does not read what we say is still there: dots that find no room are left out.
			if ok != nil || !hasRoom(h.out) {
				continue
			}
			if _, err := io.WriteString(h.out, "."); err != nil {
				return unwritten(err)
			}
		}
	}
}

// unwritten is the status of a write that failed; nil: whoever read has gone, which is how a lock is given back.
func unwritten(err error) error {
	if readerGone(err) {
		return nil
	}
	return fail(exitFailed, "standard output: %w", err)
}

// refuse says why there is no lock.
func (h *holder) refuse(err error) error {
	if errors.Is(err, errCallerGone) {
		return silent(exitOK) // nobody wants it any more
	}
	if werr := heard(say(h.out, oneLine(err.Error())+"\n")); werr != nil && unwritten(werr) != nil {
		return err // then on standard error
	}
	return silent(statusOf(err))
}

// end says how the holding went, if it went wrong: after the dots, and on standard error for the one who looks there.
func (h *holder) end(err error) error {
	if err == nil {
		return nil
	}
	if hasRoom(h.out) {
		fmt.Fprintf(h.out, "\n%s\n", oneLine(err.Error()))
	}
	return err
}

// statusOf is the exit status that an error means.
func statusOf(err error) int {
	var known *statusError
	if errors.As(err, &known) {
		return known.status
	}
	return exitInternal
}
