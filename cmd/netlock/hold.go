package main

import (
	"context"
	"errors"
	"os"
	"time"
)

// dotEvery is the pause between the dots. Where the system does not report a closed standard output, the next dot finds it.
const dotEvery = 2 * time.Second

// holder holds a lock for the parent process.
type holder struct {
	*settings
	out *os.File // gets OK or an error, then dots
}

// run acquires the lock, holds it, and releases it. It writes errors to standard output, which the parent reads.
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

// hold returns when no program needs the lock any more, or when it is lost. It returns an error if standard output cannot be written though it may
// have a reader.
func (h *holder) hold(ctx context.Context, lost <-chan struct{}) error {
	writing := startWrite(h.out, "OK\n")
	dots := time.NewTicker(dotEvery)
	defer dots.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			return nil
		case err := <-writing:
			if writing = nil; err != nil {
				return unwritten(err)
			}
		case <-dots.C:
			if writing == nil { // else the pipe is full: a parent that does not read still needs the lock
				writing = startWrite(h.out, ".")
			}
		}
	}
}

// unwritten returns the error of a write that failed; nil if the reader is gone: that releases the lock.
func unwritten(err error) error {
	if readerGone(err) {
		return nil
	}
	return fail(exitFailed, "standard output: %w", err)
}

// refuse writes the reason why there is no lock.
func (h *holder) refuse(err error) error {
	if errors.Is(err, errCallerGone) {
		return silent(exitOK)
	}
	if werr := await(startWrite(h.out, oneLine(err.Error())+"\n")); werr != nil && unwritten(werr) != nil {
		return err // main writes it to standard error
	}
	return silent(statusOf(err))
}

// end writes an error on a line after the dots, and returns it for standard error.
func (h *holder) end(err error) error {
	if err != nil {
		_ = await(startWrite(h.out, "\n"+oneLine(err.Error())+"\n"))
	}
	return err
}

// statusOf returns the exit status of an error.
func statusOf(err error) int {
	var known *statusError
	if errors.As(err, &known) {
		return known.status
	}
	return exitInternal
}
