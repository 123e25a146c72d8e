package driver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path"
	"syscall"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// upload is what a transfer knows of the file that it receives.
type upload struct {
	file     *files.Upload // staged; its name may be protected by locks by the time when it is published
	began    lock.Title    // under which it began; the zero Title: its name was not protected
	received int64         // bytes that came over the wire
	ended    time.Time     // when the data connection did
	meant    bool          // its client ended the stream itself (TLS's close_notify): a killed one does not
	proven   bool          // that nothing is missing: it is meant, or as long as was announced
	unique   bool          // STOU: its name is chosen
	renamed  bool          // the name that the 150 contained was taken, and another one was chosen
	size     int64         // of a protected file that is complete
	sum      string        // its SHA-256
	title    lock.Title    // by which it was published
	told     event.Event   // of its end
}

// uniqueName is what STOU begins with to find a name.
const uniqueName = "ftp"

// openUpload opens what the command writes to.
func (t *transfer) openUpload(appending bool, offset int64) error {
	c := t.client
	n, err := c.resolve(t.view)
	if err != nil {
		return err
	}
	t.unique = t.cmd.Is("STOU")
	if t.unique { // the path may be a directory, or a link to one
		if dir, derr := c.follow(t.view); derr == nil && c.isDirectory(dir) {
			n, t.view = lock.Name(path.Join(string(dir), uniqueName)), path.Join(t.view, uniqueName)
		}
	}
	if err := t.may(n); err != nil {
		return err
	}
	if err := c.openLocks(n); err != nil {
		return err
	}
	t.file, err = c.server.tree.Upload(string(n),
		files.UploadOptions{Append: appending, Offset: offset, Unique: t.unique, Gone: c.conn.Gone})
	if err != nil {
		return err
	}
	opening := "opening data connection for " + t.view
	if t.unique { // only now the name is known
		if err := t.chosen(); err != nil {
			return err
		}
		opening = "FILE: " + t.view // RFC 1123 section 4.1.2.9
	}
	t.cmd.Say(control.Reply{Code: 150, Text: opening})
	return nil
}

// chosen takes over the name that was chosen for the file.
func (t *transfer) chosen() error {
	n := t.name()
	t.mu.Lock()
	t.view = path.Join(path.Dir(t.view), n.Base())
	t.mu.Unlock()
	return t.may(n)
}

// may says whether a file of that name may be uploaded, and notes under which title.
func (t *transfer) may(n lock.Name) (err error) {
	if err = t.client.mayCreate(n, t.view); err == nil {
		err = t.client.mayChange(t.cmd, n)
	}
	if err == nil {
		t.began, err = t.client.mayWrite(n)
	}
	return err
}

func (c *client) isDirectory(n lock.Name) bool {
	info, err := c.lstat(n)
	return err == nil && info.IsDir()
}

// ReadFrom implements io.ReaderFrom: it receives everything.
func (t *transfer) ReadFrom(r io.Reader) (int64, error) {
	err := t.move(r, t.receive)
	t.ended = time.Now()
	return t.received, err
}

func (t *transfer) receive(conn net.Conn) error {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return t.copy(conn)
	}
	// A tls.Conn takes the end of the connection for that of the stream, as anybody on the way could cut it
	// (RFC 8446 section 6.1), and does not tell the two apart.
	below := &ending{Conn: secure.NetConn()}
	secure, err := t.encrypted(below)
	if err != nil {
		return err
	}
	if err := t.copy(secure); err != nil {
		return err
	}
	if below.ended { // after a close_notify it is not read on
		return io.ErrUnexpectedEOF
	}
	t.meant = true
	_ = secure.CloseWrite() // some clients wait for it; everything has come
	return nil
}

// ending is a connection that notes whether it was read to its end.
type ending struct {
	net.Conn
	ended bool
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.Conn.Read(p)
	e.ended = e.ended || err == io.EOF
	return n, err
}

// spliceAfter is how much of an upload passes through this process before the rest goes into the file within the kernel
// (splice, by os.File): for small files that costs more than it saves.
const spliceAfter = 256 << 10

// copy writes what comes, as much at a time as there is.
func (t *transfer) copy(conn net.Conn) error {
	buf := getBuffer()
	defer putBuffer(buf)
	_, plain := conn.(syscall.Conn) // of tls.Conn there is no socket
	var lf toLF
	for {
		n, err := conn.Read((*buf)[1:])
		t.received += int64(n)
		piece := (*buf)[1 : 1+n]
		if t.ascii { // in place: there is room before it for the CR that may have been held back
			piece = lf.convert((*buf)[:0], piece)
			if err == io.EOF {
				piece = lf.end(piece)
			}
		}
		if len(piece) > 0 {
			if _, err := t.file.Write(piece); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case plain && !t.ascii && t.received >= spliceAfter:
			n, err := t.file.ReadFrom(conn)
			t.received += n
			if err != nil {
				return err
			} // splice takes urgent data for the end of the connection; a read decides
		}
	}
}

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

var errTaken = &refusal{text: "not protected by the same lock as the name that was taken meanwhile", is: fs.ErrPermission}

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

var errMovedAside = &refusal{text: "lies in a lock that has ended", is: fs.ErrPermission}

// errRenamed says that a directory above an upload was renamed since its name was looked at.
var errRenamed = errors.New("renamed meanwhile")
