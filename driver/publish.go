package driver

import (
	"fmt"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// closeUpload takes an upload from the end of its data connection to its final reply. The first error ends it. Until placed is true the
// target is unchanged, and an error discards the upload. After that the new content is published, and an error changes only the reply.
func (t *transfer) closeUpload() error {
	err := t.guarded(func() error {
		// Before the slow work on the disk:
		if err := t.checkPublishable(); err != nil {
			return err
		}
		if err := t.computeSum(); err != nil {
			return err
		}
		if err := t.file.Sync(); err != nil {
			return err
		}
		t.awaitHangUp()
		t.client.conn.CatchUp(t.client.server.catchUp) // with an ABOR or QUIT that has arrived
		// After the waits:
		if err := t.checkPublishable(); err != nil {
			return err
		}
		if err := t.contested(); err != nil {
			return err
		}
		if err := t.seal(); err != nil {
			return err
		}
		if err := t.place(); err != nil {
			return err
		}
		return t.file.Finish()
	})
	if err != nil {
		t.discard() // after place it closes the directory only
	}
	if t.placed {
		t.logLost()
	}
	err = t.end(t.receivedText(), err)
	if t.placed {
		t.markIfReset() // after end, because the mark needs endEvent
	}
	return err
}

// checkPublishable returns why the upload cannot be published: the cause of its abort, a client that has hung up, or fewer bytes than
// announced. Before APPE and REST some clients announce the bytes that they send, others the whole file. So a file of the announced size
// is no error. It is no proof either: the old bytes and a part of the new ones may have that size by chance.
func (t *transfer) checkPublishable() error {
	switch cause := t.cmd.Cause(); {
	case cause != nil:
		return cause
	case t.client.conn.Gone():
		return control.ErrHungUp
	case t.received < t.announced && t.file.Size() != t.announced:
		return &refusal{code: 426, text: fmt.Sprintf("fewer bytes than ALLO announced: %d of %d", t.received, t.announced)}
	}
	return nil
}

// complete reports whether the client has proved that no byte is missing: it sent close_notify, or as many bytes as it announced.
func (t *transfer) complete() bool {
	return t.gotCloseNotify || t.announced > 0 && t.received == t.announced
}

// seal fixes the outcome: from here on ABOR and QUIT change nothing. It returns why the upload was aborted.
func (t *transfer) seal() error {
	if t.complete() {
		return t.cmd.SealComplete()
	}
	return t.cmd.Seal()
}

// computeSum computes the digest of a protected file.
func (t *transfer) computeSum() (err error) {
	if t.permitAtStart.Lock != "" {
		t.sum, err = t.file.Sum()
	}
	return err
}

// awaitHangUp waits for the end of the control connection of a killed client, unless the upload is complete.
func (t *transfer) awaitHangUp() {
	if t.complete() {
		return
	}
	hangUp := t.client.server.settings.Load().Files.HangUp.Duration
	time.Sleep(time.Until(t.dataEnded.Add(hangUpWait(hangUp, t.dataEnded.Sub(t.openedAt), t.received))))
}

// longestHangUp bounds the part of hangUpWait that is longer than Files.HangUp.
const longestHangUp = 50 * time.Millisecond

// hangUpWait returns how long an upload that is not complete waits, after the end of its data connection, for the end of the control
// connection. The kernel ends the connections of a killed client one after the other: on a busy machine several milliseconds may pass. A
// longer transfer is more likely to be killed, so the wait is a twentieth of its duration. An empty upload waits longest: clients that were
// killed often leave empty files, and few complete files are empty. If hangUp is 0, the upload does not wait.
func hangUpWait(hangUp, took time.Duration, received int64) time.Duration {
	switch {
	case hangUp == 0:
		return 0
	case received == 0:
		return max(hangUp, longestHangUp)
	}
	return max(hangUp, min(took/20, longestHangUp))
}

// place renames the file to its target. If that is the name of a lock, the lock must be free.
func (t *transfer) place() error {
	n := lock.Name(t.file.Name())
	return t.client.excludingLockOf(n, func() error { return t.placeProtected(n) })
}

// placeProtected renames the file in one step with the check that the lock under which the upload began is still held.
func (t *transfer) placeProtected(n lock.Name) error {
	write := t.client.writeFor(n)
	write.Begun, write.Permit = true, t.permitAtStart
	return t.client.withPermits([]lock.Write{write}, t.file.CheckParent, func(permits []lock.Permit) error {
		if err := t.file.Place(); err != nil {
			return err
		}
		t.placed, t.permitAtEnd = true, permits[0]
		t.client.recordChange(t.permitAtEnd, "", t.publication())
		return nil
	})
}

func (t *transfer) publication() lock.Publication {
	return lock.Publication{Path: lock.Name(t.file.Name()), Bytes: t.file.Size(), SHA256: t.sum}
}

// receivedText returns the text of the 226: the bytes, and the properties of the replaced file that the new one lacks.
func (t *transfer) receivedText() string {
	text := fmt.Sprintf("transfer complete, %d bytes received", t.received)
	if lost := t.file.Lost(); len(lost) > 0 {
		text += "; not kept: " + strings.Join(lost, ", ")
	}
	return text
}

func (t *transfer) logLost() {
	if lost := t.file.Lost(); len(lost) > 0 {
		t.client.log.Warn("the file lost properties of the one that it replaced: the server's user may not set them",
			"path", t.view, "lost", strings.Join(lost, ", "))
	}
}

// markIfReset marks the published upload as unconfirmed if the client resets the control connection after the 226, or has done so before it,
// unless the upload is complete. A killed client resets it; some clients reset it whenever they exit.
func (t *transfer) markIfReset() {
	if !t.complete() {
		t.cmd.Unconfirmed(t.markUnconfirmed)
	}
}

// markUnconfirmed records that a published upload may be a part of the file. The session may have ended.
func (t *transfer) markUnconfirmed() {
	e := t.endEvent
	e.Kind, e.Reason = event.Unconfirmed, "the client reset the connection after the upload: the file may be incomplete"
	t.client.server.events.Publish(e)
	t.client.server.recordUnconfirmed(t.permitAtEnd, t.publication())
}
