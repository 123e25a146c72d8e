package driver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"syscall"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// upload is the handle of STOR, APPE and STOU: a staged file, whose name locks may protect by the time when it is published.
type upload struct {
	*transfer
	file     *files.Upload
	began    lock.Title // under which it began; the zero Title: its name was not protected
	received int64      // bytes that came over the wire
	ended    time.Time  // when the data connection did
	meant    bool       // its client said that it is through (TLS's close_notify): a killed one does not
	size     int64      // of a protected file that is complete
	sum      string     // its SHA-256
}

var _ ftpserver.FileTransfer = (*upload)(nil)

// uniqueName is what STOU begins with to find a name.
const uniqueName = "ftp"

// upload opens what the command writes to.
func (t *transfer) upload(appending bool, offset int64) (_ ftpserver.FileTransfer, err error) {
	c := t.client
	n, err := c.resolve(t.view)
	if err != nil {
		return nil, err
	}
	unique := t.cmd.Is("STOU")
	if unique { // the path may be a directory, or a link to one
		if dir, derr := c.follow(t.view); derr == nil && c.isDirectory(dir) {
			n, t.view = lock.Name(path.Join(string(dir), uniqueName)), path.Join(t.view, uniqueName)
		}
	}
	u := &upload{transfer: t}
	if err := u.may(n); err != nil {
		return nil, err
	}
	if err := c.openInside(n); err != nil {
		return nil, err
	}
	u.file, err = c.server.tree.Upload(c.server.disk(n),
		files.UploadOptions{Append: appending, Offset: offset, Unique: unique})
	if err != nil {
		return nil, err
	}
	handedOn := false
	defer func() { // after a panic, too
		if !handedOn {
			u.discard()
		}
	}()
	opening := "opening data connection for " + t.view
	if unique { // only now the name is known
		n = u.name()
		t.view = path.Join(path.Dir(t.view), n.Base())
		opening = "FILE: " + t.view // RFC 1123 section 4.1.2.9
		if err := u.may(n); err != nil {
			return nil, err
		}
	}
	t.cmd.Say(control.Reply{Code: 150, Text: opening})
	handedOn = true
	return u, nil
}

// may says whether a file of that name may be uploaded, and notes under which title.
func (u *upload) may(n lock.Name) (err error) {
	if err = u.client.mayCreate(n, u.view); err == nil {
		u.began, err = u.client.mayWrite(n)
	}
	return err
}

func (c *client) isDirectory(n lock.Name) bool {
	info, err := c.lstat(n)
	return err == nil && info.IsDir()
}

// ReadFrom implements io.ReaderFrom: it receives everything.
func (u *upload) ReadFrom(r io.Reader) (int64, error) {
	err := u.move(r, u.receive)
	u.ended = time.Now()
	return u.received, err
}

func (u *upload) receive(conn net.Conn) error {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return u.copy(conn)
	}
	// A tls.Conn takes the end of the connection for that of the stream, as anybody on the way could cut it
	// (RFC 8446 section 6.1), and does not tell the two apart.
	below := &ending{Conn: secure.NetConn()}
	secure, err := u.encrypted(below)
	if err != nil {
		return err
	}
	if err := u.copy(secure); err != nil {
		return err
	}
	if below.ended { // after a close_notify it is not read on
		return io.ErrUnexpectedEOF
	}
	u.meant = true
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
func (u *upload) copy(conn net.Conn) error {
	buf := getBuffer()
	defer putBuffer(buf)
	_, plain := conn.(syscall.Conn) // of tls.Conn there is no socket
	var lf toLF
	for {
		n, err := conn.Read((*buf)[1:])
		u.received += int64(n)
		piece := (*buf)[1 : 1+n]
		if u.ascii { // in place: there is room before it for the CR that may have been held back
			piece = lf.convert((*buf)[:0], piece)
			if err == io.EOF {
				piece = lf.end(piece)
			}
		}
		if len(piece) > 0 {
			if _, err := u.file.Write(piece); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case plain && !u.ascii && u.received >= spliceAfter:
			n, err := u.file.ReadFrom(conn)
			u.received += n
			if err != nil {
				return err
			} // splice takes urgent data for the end of the connection; a read decides
		}
	}
}

// Close implements io.Closer: the library calls it when the data connection has ended, before it writes the reply. The upload
// is published if all of it came and its client is still there, and discarded otherwise.
func (u *upload) Close() error {
	defer u.cmd.Release()
	err := u.guarded(u.publish)
	if err != nil && !errors.Is(err, files.ErrNotDurable) {
		u.discard()
		_, why, _ := u.client.explain(err)
		u.client.log.Warn("upload discarded", "path", u.path(), "bytes", u.received, "why", why)
	}
	if err == nil {
		u.works()
	}
	return u.end(fmt.Sprintf("transfer complete, %d bytes received", u.received), err)
}

// discard ends the upload without a file.
func (u *upload) discard() {
	if err := u.guarded(u.file.Discard); err != nil {
		u.client.log.Error("could not remove an unfinished upload", "path", u.path(), "err", err)
	}
}

// catchUp is how long an upload waits at most for the reader of commands. Microseconds will do, unless the machine is busy.
const catchUp = 20 * time.Millisecond

// publish looks at the client before the slow part, if there is one, and after it. Unless the client has shown that nothing is
// missing, the control connection gets Settings.HangUp from the end of the data connection to end, too: the kernel of a
// killed process closes its connections one after the other, microseconds apart. A client that waits may wait for the
// reply to an ABOR, so what it has sent is looked at last.
func (u *upload) publish() error {
	conn := u.client.conn
	if err := u.complete(u.file.Durable() && conn.Gone()); err != nil {
		return err
	}
	if err := u.sync(); err != nil {
		return err
	}
	proven := u.meant || u.announced > 0 && u.received == u.announced
	within := u.client.server.settings.Load().HangUp
	for until := u.ended.Add(within); !proven && u.complete(conn.Gone()) == nil && time.Now().Before(until); {
		time.Sleep(min(time.Until(until), 5*time.Millisecond))
	}
	conn.CatchUp(catchUp)
	if u.broken == nil {
		u.broken = u.contested()
	}
	if err := u.complete((proven || within > 0) && conn.Gone()); err != nil {
		return err
	}
	if err := u.seal(proven); err != nil {
		return err
	}
	return u.put()
}

// complete says what is wrong with the upload so far: ABOR, an error of the data connection, a
// client that is gone, fewer bytes than it announced.
func (u *upload) complete(gone bool) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.cause != nil:
		return u.cause
	case u.broken != nil:
		return u.broken
	case gone:
		return errHungUp
	case u.received < u.announced:
		return &refusal{code: 426, text: fmt.Sprintf("fewer bytes than ALLO announced: %d of %d", u.received, u.announced)}
	}
	return nil
}

// sync is the slow part: the digest of what a lock protects, too.
func (u *upload) sync() error {
	err := u.file.Sync()
	if err == nil && u.began.Lock != "" {
		u.size, u.sum, err = u.file.Sum()
	}
	return err
}

// seal makes it too late to abort, unless that has happened.
func (u *upload) seal(proven bool) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.stage == aborted:
		return u.cause
	case !proven && u.doubt != nil:
		return u.doubt
	}
	u.stage = publishing
	return nil
}

// name is that by which clients know the file. A directory above may have been renamed since the upload began.
func (u *upload) name() lock.Name { return u.client.server.named(u.file.Name()) }

// put gives the file its name, and then waits for the disk, when nobody waits for the lock any more.
func (u *upload) put() error {
	if err := u.place(); err != nil {
		return err
	}
	return u.file.Last()
}

// place gives the file its name. A file whose name is a lock's gets it only while nobody holds that lock.
func (u *upload) place() error {
	n := u.name()
	if !u.client.isLockName(n) {
		return u.placeProtected()
	}
	return u.client.undisturbed([]lock.Name{n}, u.placeProtected)
}

// placeProtected gives the file its name while the hold stands under which the upload began.
func (u *upload) placeProtected() error {
	c := u.client
	if !c.locks.Concerned(u.name()) && u.began.Around == "" && !files.Hidden(string(u.name())) {
		return u.file.Place()
	}
	for {
		n := u.name()
		write := lock.Write{Path: n, Begun: true, Title: u.began}
		err := c.locks.Write(c.server.context, []lock.Write{write}, func(titles []lock.Title) error {
			c.server.layout.RLock()
			defer c.server.layout.RUnlock()
			if u.name() != n {
				return errRenamed
			}
			if files.Hidden(string(n)) {
				return errMovedAside
			}
			if err := u.file.InPlace(); err != nil {
				return err
			}
			err := u.file.Place()
			if err == nil {
				c.server.publishedAs(titles[0], lock.Publication{File: n, Bytes: u.size, SHA256: u.sum})
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

// Read is refused: the library uses ReadFrom.
func (u *upload) Read([]byte) (int, error) { return 0, os.ErrInvalid }

// Write takes the nothing that the library writes for an empty file.
func (u *upload) Write(p []byte) (int, error) {
	if len(p) > 0 {
		return 0, os.ErrInvalid
	}
	return 0, nil
}

// Seek does nothing: the offset was known when the upload began.
func (u *upload) Seek(offset int64, _ int) (int64, error) { return offset, nil }
