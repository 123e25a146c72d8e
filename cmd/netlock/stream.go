package main

import (
	"context"
	"io"

	"github.com/ftplockd/ftplockd/locksmith"
)

// whileHeld returns a context that ends, with the lock's error as its cause, when the lock is lost. stop returns when that is over.
func whileHeld(ctx context.Context, lock *locksmith.Lock) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-lock.Done():
			cancel(lock.Err())
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
	}
}

// readUntil reads from a stream that may have nothing for a long time, as a pipe or a terminal, until ctx ends. Nothing ends the
// reading itself: that goroutine ends with the stream or with the process.
func readUntil(ctx context.Context, stream io.Reader) io.Reader {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(w, stream)
		w.CloseWithError(err) // nil is the end of the file
	}()
	return r
}

// writeUntil writes to a stream that may take nothing for a long time, until ctx ends. flush waits until all is written. The last write
// itself ends with the stream or with the process.
func writeUntil(ctx context.Context, stream io.Writer) (_ io.Writer, flush func() error) {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { r.CloseWithError(context.Cause(ctx)) })
	written := make(chan error, 1)
	go func() {
		_, err := io.Copy(stream, r)
		r.CloseWithError(err)
		written <- err
	}()
	return w, func() error {
		w.Close()
		select {
		case err := <-written:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
