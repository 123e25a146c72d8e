package driver

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/ftplockd/ftplockd/files"
)

// download is the handle of RETR and of the listings.
type download struct {
	source
	t    *transfer
	pace files.Pace
}

// WriteTo sends everything to the data connection.
func (d *download) WriteTo(w io.Writer) (int64, error) {
	d.t.carriedBy(w)
	if err := handshake(d.t.session.context(), w, d.pace.Timeout); err != nil {
		return 0, err
	}
	n, err := d.source.WriteTo(w)
	if err != nil {
		d.t.cut()
	}
	return n, err
}

// handshake does that of TLS, if the data connection is one, in no more than timeout. The first read or write would do it
// too, but a download has no deadline for reads, and a client that says nothing would hold it up for ever.
func handshake(ctx context.Context, conn any, timeout time.Duration) error {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, os.ErrDeadlineExceeded)
		defer cancel()
	}
	if err := secure.HandshakeContext(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// Write is there for the interface: nothing writes into a download.
func (d *download) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return 0, fs.ErrPermission
}

// Seek is there for the interface: REST was heeded when the file was opened.
func (d *download) Seek(int64, int) (int64, error) { return 0, fs.ErrInvalid }

// TransferError implements ftpserver.FileTransferError.
func (d *download) TransferError(err error) { d.t.fail(broken(d.t, err)) }

func (d *download) Close() error {
	err := d.source.Close()
	d.t.session.worked()
	return err
}

// broken is the reason of a transfer that did not end well: what aborted it, or what the connection or the disk said.
func broken(t *transfer, err error) error {
	if cause := t.aborted(); cause != nil {
		return cause
	}
	return err
}
