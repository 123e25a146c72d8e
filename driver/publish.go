package driver

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// closeUpload publishes the upload, or discards it if bytes are missing, its client is gone or the lock of the path has ended.
func (t *transfer) closeUpload() error {
	err := t.guarded(t.publish)
	if err != nil && !errors.Is(err, files.ErrNotDurable) {
		t.discard()
	}
	if err == nil && !t.proven {
		t.cmd.Unconfirmed(t.unconfirmed)
	}
	done := fmt.Sprintf("transfer complete, %d bytes received", t.received)
	if lost := strings.Join(t.file.Lost(), ", "); lost != "" && err == nil {
		done += "; not kept: " + lost
		t.client.log.Warn("the file lost properties of the one that it replaced: the server's user may not set them", "path", t.view, "lost", lost)
	}
	return t.end(done, err)
}

// publish checks the client before the slow work on the disk, and again right before the file gets its name.
func (t *transfer) publish() error {
	conn := t.client.conn
	if err := t.checkPublishable(conn.Gone()); err != nil {
		return err
	}
	if err := t.sync(); err != nil {
		return err
	}
	t.proven = t.gotCloseNotify || t.announced > 0 && t.received == t.announced
	if !t.proven {
		pause(time.Until(t.dataEnded.Add(hangUpWait(t.client.server.settings.Load().Files.HangUp.Duration, t.dataEnded.Sub(t.openedAt), t.received))))
	}
	conn.CatchUp(t.client.server.catchUp) // with an ABOR or QUIT that has arrived
	if err := t.contested(); err != nil {
		t.cmd.Abort(err)
	}
	if err := t.checkPublishable(conn.Gone()); err != nil {
		return err
	}
	if err := t.cmd.Seal(t.proven); err != nil {
		return err
	}
	if err := t.place(); err != nil {
		return err
	}
	return t.file.Finish()
}

// checkPublishable returns why the upload cannot be published: the cause of its abort, a client that is gone, or fewer bytes than announced.
// Before APPE and REST some clients announce the bytes that they send, others the whole file. So a file of the announced size is no error. It
// is no proof either: the old bytes and a part of the new ones may have that size by chance.
func (t *transfer) checkPublishable(gone bool) error {
	switch cause := t.cmd.Cause(); {
	case cause != nil:
		return cause
	case gone:
		return control.ErrHungUp
	case t.received < t.announced && t.file.Size() != t.announced:
		return &refusal{code: 426, text: fmt.Sprintf("fewer bytes than ALLO announced: %d of %d", t.received, t.announced)}
	}
	return nil
}

// sync writes the content to the disk, and computes the digest of a protected file.
func (t *transfer) sync() (err error) {
	if t.permitAtStart.Lock != "" {
		if t.sum, err = t.file.Sum(); err != nil {
			return err
		}
	}
	return t.file.Sync()
}

// place gives the file its name, a lock's name only while the lock is not held.
func (t *transfer) place() error {
	n := lock.Name(t.file.Name())
	return t.client.excludingLockOf(n, func() error { return t.placeProtected(n) })
}

// placeProtected gives the file its name in one step with the check that the lock under which the upload began is still held.
func (t *transfer) placeProtected(n lock.Name) error {
	write := t.client.change(n)
	write.Begun, write.Permit = true, t.permitAtStart
	return t.client.withPermits([]lock.Write{write}, t.file.InPlace, func(permits []lock.Permit) error {
		if err := t.file.Place(); err != nil {
			return err
		}
		t.permitAtEnd = permits[0]
		t.client.recordChange(t.permitAtEnd, "", t.publication())
		return nil
	})
}

func (t *transfer) publication() lock.Publication {
	return lock.Publication{Path: lock.Name(t.file.Name()), Bytes: t.file.Size(), SHA256: t.sum}
}

// unconfirmed marks a published upload that may be a part of the file: nothing proved that it was complete, and its client reset the
// control connection after the 226, or before it came. A killed client does so, but also one that ends its connections by a reset. The
// session may have ended.
func (t *transfer) unconfirmed() {
	e := t.outcome
	e.Kind, e.Reason = event.Unconfirmed, "the client reset the connection after the upload: the file may be incomplete"
	t.client.server.events.Publish(e)
	t.client.server.recordUnconfirmed(t.permitAtEnd, t.publication())
}
