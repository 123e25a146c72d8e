package driver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/ftplockd/ftplockd/files"
)

// upload is the cargo of STOR, APPE and STOU.
type upload struct {
	receiver
	t         *transfer
	pace      files.Pace
	announced int64  // by ALLO, in binary type; 0: nothing
	owner     string // for whom it is kept if it is broken off; "": it is not
	broken    error
	ended     time.Time // when the data connection did
	meant     bool      // its client said that it is through: a killed one sends no close_notify of TLS
}

// small is not known of an upload before it has come.
func (u *upload) small() bool { return true }

func (u *upload) prompt() bool { return !u.slow() }

// slow reports whether publishing waits for a disk.
func (u *upload) slow() bool {
	file, ok := u.receiver.(interface{ Durable() bool })
	return !ok || file.Durable()
}

// carry receives everything from the data connection.
func (u *upload) carry(conn net.Conn) error {
	if err := handshake(u.t.session.context(), conn, u.pace.Timeout); err != nil {
		return err
	}
	_, err := u.receiver.ReadFrom(conn)
	u.ended = time.Now()
	told, meant := closeNotify(conn)
	u.meant = told && meant
	if err == nil && told && !meant {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// end publishes the upload if all of it came and its client is still there, and discards it otherwise.
func (u *upload) end(err error) (string, error) {
	u.broken = err
	err = u.publish()
	if err == nil {
		return "transfer complete, " + strconv.FormatInt(u.Received(), 10) + " bytes received", nil
	}
	if err == errBehind || errors.Is(err, files.ErrNotDurable) {
		return "", err
	}
	done := "upload discarded"
	if u.keep() {
		done = "upload kept to be gone on with"
	} else if derr := u.Discard(); derr != nil {
		u.t.session.log.Error("could not remove an unfinished upload", "path", u.t.path(), "err", derr)
	}
	u.t.session.log.Warn(done, "path", u.t.path(), "bytes", u.Received(), "why", why(err))
	return "", err
}

// keep leaves the upload for its account to go on with, if that is wanted and the transfer was at fault rather than the
// disk or the server's rules. It reports whether it did.
func (u *upload) keep() bool {
	k, ok := u.receiver.(interface {
		Keep(owner string) error
		Size() int64
	})
	if !ok || u.owner == "" || u.complete(u.t.session.conn.Gone()) == nil || full(u.broken) || k.Size() == 0 {
		return false
	}
	if err := k.Keep(u.owner); err != nil {
		u.t.session.log.Error("could not keep an unfinished upload", "path", u.t.path(), "err", err)
		return false
	}
	return true
}

// full reports whether there was no room for more; then what there is is given up, too.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// catchUp is how long an upload waits for those who read commands: microseconds will do, unless very many commands wait unread.
const catchUp = 2 * time.Millisecond

// publish looks at the client before the slow part, if there is one, and after it. It then waits for what is left of the time in which
// the control connection of a killed client ends, too, see hangUps; not if the client has shown that nothing is missing. A client that waits may
// wait for the reply to an ABOR: so what it has sent is looked at last, or the error is errBehind.
func (u *upload) publish() error {
	if err := u.complete(u.slow() && u.t.session.conn.Gone()); err != nil {
		return err
	}
	if err := u.Sync(); err != nil {
		return err
	}
	proven := u.meant || u.announced > 0 && u.Received() == u.announced
	gone := u.t.session.server.hangUps().gone(u.t.session.conn, u.ended, proven)
	switch conn := u.t.session.conn; {
	case !u.t.sole:
		conn.CatchUp(catchUp)
	case conn.Behind():
		return errBehind
	}
	if err := u.complete(gone); err != nil {
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
