package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// closeUpload publishes the upload if all of it came and its client is still there, and discards it otherwise.
func (t *transfer) closeUpload() error {
	err := t.guarded(t.publish)
	if err != nil && !errors.Is(err, files.ErrNotDurable) {
		t.discard()
	}
	if err == nil && !t.proven {
		t.cmd.Unconfirmed(t.unconfirmed)
	}
	done := fmt.Sprintf("transfer complete, %d bytes received", t.received)
	if t.renamed {
		done += "; its name was taken meanwhile, FILE: " + t.path()
	}
	return t.end(done, err)
}

// publish looks at the client before the slow part, if there is one, and after it. Unless the client has shown that nothing is
// missing, the control connection gets Settings.HangUp from the end of the data connection to end, too: the kernel of a
// killed process closes its connections one after the other. A client that waits may wait for the
// reply to an ABOR, so what it has sent is looked at last.
func (t *transfer) publish() error {
	conn := t.client.conn
	if err := t.complete(t.file.Durable() && conn.Gone()); err != nil {
		return err
	}
	if err := t.sync(); err != nil {
		return err
	}
	t.proven = t.meant || t.announced > 0 && t.isAsLong(t.announced)
	within := t.client.server.settings.Load().HangUp
	if !t.proven {
		t.awaitHangUp(within)
	}
	conn.CatchUp(t.client.server.catchUp)
	if err := t.contested(); err != nil {
		t.cmd.Abort(err)
	}
	if err := t.complete((t.proven || within > 0) && conn.Gone()); err != nil {
		return err
	}
	if err := t.cmd.Seal(t.proven); err != nil {
		return err
	}
	return t.put()
}

// awaitHangUp waits until so long after the end of the data connection, unless the upload is aborted before.
func (t *transfer) awaitHangUp(within time.Duration) {
	const look = 5 * time.Millisecond
	for until := t.ended.Add(within); ; {
		left := time.Until(until)
		if left <= 0 || t.complete(t.client.conn.Gone()) != nil {
			return
		}
		pause(min(left, look))
	}
}

// unconfirmed marks a published upload that may be a part of the file: nothing proved that it was complete, and its client reset the connection
// behind the 226, or before it came. A killed client does so, and one that ends its connections by a reset. The session may have ended.
func (t *transfer) unconfirmed() {
	e := t.told
	e.Kind, e.Reason = event.Unconfirmed, "the client reset the connection behind the upload: it was killed, perhaps, and the file is not complete"
	t.client.server.events.Publish(e)
	t.client.server.publishedAs(t.title, "unconfirmed", lock.Publication{Path: lock.Name(e.Path), Bytes: t.size, SHA256: t.sum})
}

// complete returns what is missing of the upload so far: what aborted it, a
// client that is gone, fewer bytes than it announced.
func (t *transfer) complete(gone bool) error {
	switch cause := t.cmd.Cause(); {
	case cause != nil:
		return cause
	case gone:
		return control.ErrHungUp
	case t.received < t.announced && !t.isAsLong(t.announced):
		return &refusal{code: 426, text: fmt.Sprintf("fewer bytes than ALLO announced: %d of %d", t.received, t.announced)}
	}
	return nil
}

// isAsLong reports whether so many bytes came, or the file has so many: before APPE and REST some clients announce the whole
// file with ALLO, others what they send.
func (t *transfer) isAsLong(n int64) bool { return t.received == n || t.file.Size() == n }

// sync is the slow part: the digest of what a lock protects, too.
func (t *transfer) sync() error {
	if t.began.Lock != "" {
		var err error
		if t.size, t.sum, err = t.file.Sum(); err != nil {
			return err
		}
	}
	return t.file.Sync()
}

// name is that by which clients know the file. A directory above may have been renamed since the upload began.
func (t *transfer) name() lock.Name { return lock.Name(t.file.Name()) }

// put gives the file its name, and then waits for the disk, when nobody waits for the lock any more.
func (t *transfer) put() error {
	err := t.place()
	for t.unique && errors.Is(err, fs.ErrExist) {
		if err = t.rename(); err == nil {
			err = t.place()
		}
	}
	if err != nil {
		return err
	}
	return t.file.Last()
}

// rename chooses another name for the file of STOU, since somebody has taken the one that the 150 contained. It must be protected by the
// same hold.
func (t *transfer) rename() error {
	if err := t.file.ChooseAnother(); err != nil {
		return err
	}
	began := t.began
	t.renamed = true
	if err := t.chosen(); err != nil {
		return err
	}
	if t.began != began {
		return errTaken
	}
	return nil
}

var errTaken = &refusal{text: "not protected by the same lock as the name that was taken meanwhile"}

// place gives the file its name. A file whose name is a lock's gets it only while nobody holds that lock.
func (t *transfer) place() error {
	n := t.name()
	if !t.client.isLockName(n) {
		return t.placeProtected()
	}
	return t.client.undisturbed([]lock.Name{n}, t.placeProtected)
}

// placeProtected gives the file its name while the hold stands under which the upload began.
func (t *transfer) placeProtected() error {
	c := t.client
	if !c.locks.Concerned(t.name()) && t.began.Around == "" && !files.Hidden(string(t.name())) {
		return t.file.Place()
	}
	for {
		n := t.name()
		write := lock.Write{Path: n, Begun: true, Title: t.began}
		err := c.locks.Write(c.server.context, []lock.Write{write}, func(titles []lock.Title) error {
			c.server.layout.RLock()
			defer c.server.layout.RUnlock()
			if t.name() != n {
				return errRenamed
			}
			if files.Hidden(string(n)) {
				return errMovedAside
			}
			if err := t.file.InPlace(); err != nil {
				return err
			}
			if err := c.mayStill(titles); err != nil {
				return err
			}
			err := t.file.Place()
			if err == nil {
				t.title = titles[0]
				c.server.publishedAs(t.title, "", lock.Publication{Path: n, Bytes: t.size, SHA256: t.sum})
			}
			return err
		})
		if err != errRenamed {
			return c.shown(err)
		}
	}
}

var errMovedAside = &refusal{text: "lies in a lock that has ended"}

// errRenamed says that a directory above an upload was renamed since its name was looked at.
var errRenamed = errors.New("renamed meanwhile")
