package driver

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/ftplockd/ftplockd/files"
)

// upload is the handle of STOR, APPE and STOU.
type upload struct {
	receiver
	t         *transfer
	pace      files.Pace
	announced int64 // by ALLO, in binary type; 0: nothing
	broken    error
}

// ReadFrom receives everything from the data connection.
func (u *upload) ReadFrom(r io.Reader) (int64, error) {
	u.t.carriedBy(r)
	if err := handshake(u.t.session.context(), r, u.pace.Timeout); err != nil {
		return 0, err
	}
	n, err := u.receiver.ReadFrom(r)
	if err == nil && cutShort(r) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Read is there for the interface: nothing reads from an upload.
func (u *upload) Read([]byte) (int, error) { return 0, fs.ErrPermission }

// Seek is there for the interface: REST was heeded when the upload began.
func (u *upload) Seek(int64, int) (int64, error) { return 0, fs.ErrInvalid }

// TransferError implements ftpserver.FileTransferError.
func (u *upload) TransferError(err error) {
	if u.broken == nil {
		u.broken = err
	}
}

// Close publishes the upload if all of it came and its client is still there, and discards it otherwise.
func (u *upload) Close() error {
	defer u.t.session.worked()
	err := u.publish()
	if err == nil {
		u.t.finished(fmt.Sprintf("transfer complete, %d bytes received", u.Received()))
		return nil
	}
	if errors.Is(err, files.ErrNotDurable) {
		u.t.fail(err)
		return err
	}
	if derr := u.Discard(); derr != nil {
		u.t.session.log.Error("could not remove an unfinished upload", "path", u.t.path(), "err", derr)
	}
	u.t.fail(err)
	u.t.session.log.Warn("upload discarded", "path", u.t.path(), "bytes", u.Received(), "why", err.Error())
	return err
}

// publish looks at the client before the slow part and, for as long as it takes, after it.
func (u *upload) publish() error {
	if err := u.complete(u.t.session.conn.Gone()); err != nil {
		return err
	}
	if err := u.Sync(); err != nil {
		return err
	}
	if err := u.complete(u.t.session.conn.GoneWithin(u.t.session.server.delays.hangUp)); err != nil {
		return err
	}
	if err := u.t.seal(); err != nil {
		return err
	}
	return u.Publish()
}

// complete says what is wrong with the upload so far: ABOR, an error of the data connection, a
// client that is gone, fewer bytes than it announced.
func (u *upload) complete(gone bool) error {
	switch err := u.t.aborted(); {
	case err != nil:
		return err
	case u.broken != nil:
		return u.broken
	case gone:
		return errHungUp
	case u.Received() < u.announced:
		return &refusal{code: 426, text: fmt.Sprintf("fewer bytes than ALLO announced: %d of %d", u.Received(), u.announced)}
	}
	return nil
}
