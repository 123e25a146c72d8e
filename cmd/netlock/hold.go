package main

import (
	"context"
	"errors"
	"os"
	"time"
)

// dotEvery is the pause between the dots. Where the system does not report a closed standard output, the next dot finds it.
const dotEvery = 2 * time.Second

// hold acquires the lock, holds it for the parent process, and releases it. It writes errors to standard output, which the parent reads.
func (s *settings) hold(ctx context.Context, arg string) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	ctx, forget, err := watchCaller(ctx)
	if err != nil {
		return printRefusal(err)
	}
	defer forget()
	t, err := s.resolve(arg)
	if err != nil {
		return printRefusal(err)
	}
	lock, err := acquire(ctx, t, s.noteOf(os.Getppid()))
	if err != nil {
		return printRefusal(err)
	}
	err = writeDots(ctx, lock.Context().Done())
	if err = errors.Join(release(lock, t), err); err != nil { // on a line after the dots; main writes it to standard error, too
		_ = await(startWrite(os.Stdout, "\n"+oneLine(err.Error())+"\n"))
	}
	return err
}

// writeDots writes OK and the dots. It returns when no program needs the lock any more, or when it is lost. It returns an error if standard output
// cannot be written though it may have a reader.
func writeDots(ctx context.Context, lost <-chan struct{}) error {
	writing := startWrite(os.Stdout, "OK\n")
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
				return outputError(err)
			}
		case <-dots.C:
			if writing == nil { // else the pipe is full: a parent that does not read still needs the lock
				writing = startWrite(os.Stdout, ".")
			}
		}
	}
}

// outputError returns the error of a write that failed; nil if the reader is gone: that releases the lock.
func outputError(err error) error {
	if readerGone(err) {
		return nil
	}
	return fail(exitFailed, "standard output: %w", err)
}

// printRefusal writes the reason why there is no lock.
func printRefusal(err error) error {
	if errors.Is(err, errCallerGone) {
		return exitOnly(exitOK)
	}
	if werr := await(startWrite(os.Stdout, oneLine(err.Error())+"\n")); werr != nil && outputError(werr) != nil {
		return err // main writes it to standard error
	}
	e := &statusError{status: exitInternal}
	if known, ok := errors.AsType[*statusError](err); ok {
		e.status, e.signal = known.status, known.signal
	}
	return e
}
