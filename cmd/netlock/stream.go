package main

import (
	"context"
	"io"
)

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
