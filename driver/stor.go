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
	"strconv"
	"syscall"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// upload is the handle of STOR, APPE and STOU.
type upload struct {
	*transfer
	receiver receiver
	received int64     // bytes that came over the wire
	ended    time.Time // when the data connection did; zero: it was never opened
	meant    bool      // its client said that it is through (TLS's close_notify): a killed one does not
	broken   error
}

var _ ftpserver.FileTransfer = (*upload)(nil)

// receiver is what an upload writes to: a staged file.
type receiver interface {
	io.Writer
	io.ReaderFrom
	Durable() bool  // Sync waits for a disk
	Sync() error    // the slow part of making it lasting
	Publish() error // the quick part
	Discard() error
}

// upload opens what the command writes to.
func (t *transfer) upload(appending bool, offset int64) (ftpserver.FileTransfer, error) {
	o := t.uploadOptions(appending, offset)
	r, name, err := t.client.receive(t.view, o)
	if err != nil {
		return nil, err
	}
	opening := "opening data connection for " + name
	if o.Unique {
		t.view, opening = name, "FILE: "+name // RFC 1123 section 4.1.2.9
	}
	t.cmd.Say(control.Reply{Code: 150, Text: opening})
	return &upload{transfer: t, receiver: r}, nil
}

// ReadFrom implements io.ReaderFrom: it receives everything.
func (u *upload) ReadFrom(r io.Reader) (_ int64, err error) {
	defer u.recovered(&u.broken)
	conn, err := u.open(r)
	if err != nil {
		u.broken = err
		return 0, err
	}
	defer u.watch()()
	err = u.receive(conn)
	u.ended, u.broken = time.Now(), stalled(err)
	if u.broken != nil {
		u.cut()
	}
	return u.received, u.broken
}

func (u *upload) receive(conn net.Conn) error {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return u.copy(conn)
	}
	// The library's tls.Conn takes the end of the connection for that of the stream, as anybody on the way could cut it
	// (RFC 8446 section 6.1), and does not tell the two apart. It has not done its handshake yet, so it is put aside.
	below := &ending{Conn: secure.NetConn()}
	secure = tls.Server(below, u.client.server.dataTLS)
	if err := handshake(u.client.server.context, secure); err != nil {
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
			if _, err := u.receiver.Write(piece); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case plain && !u.ascii && u.received >= spliceAfter:
			n, err := u.receiver.ReadFrom(conn)
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
	err := u.tryToPublish()
	if err != nil && !errors.Is(err, files.ErrNotDurable) {
		if derr := u.receiver.Discard(); derr != nil {
			u.client.log.Error("could not remove an unfinished upload", "path", u.path(), "err", derr)
		}
		u.client.log.Warn("upload discarded", "path", u.path(), "bytes", u.received, "why", u.why(err))
	}
	if err == nil {
		u.works()
	}
	return u.end("transfer complete, "+strconv.FormatInt(u.received, 10)+" bytes received", err)
}

func (u *upload) tryToPublish() (err error) {
	defer u.recovered(&err)
	return u.publish()
}

// why is the reason of an upload that did not end well, as the client is told it.
func (u *upload) why(err error) string {
	if isBroken(err) {
		return errBroke.Error()
	}
	_, text := describe(err)
	return text
}

// catchUp is how long an upload waits for the reader of commands: microseconds will do, unless very many commands wait
// unread.
const catchUp = 2 * time.Millisecond

// publish looks at the client before the slow part, if there is one, and after it. Unless the client has shown that nothing is
// missing, the control connection gets Settings.HangUp from the end of the data connection to end, too: the kernel of a
// killed process closes its connections one after the other, microseconds apart. A client that waits may wait for the
// reply to an ABOR, so what it has sent is looked at last.
func (u *upload) publish() error {
	conn := u.client.conn
	if err := u.complete(u.receiver.Durable() && conn.Gone()); err != nil {
		return err
	}
	if err := u.receiver.Sync(); err != nil {
		return err
	}
	proven := u.meant || u.announced > 0 && u.received == u.announced
	gone := false
	switch within := u.client.server.settings.Load().HangUp; {
	case proven:
		gone = conn.Gone()
	case within > 0:
		gone = conn.GoneWithin(time.Until(u.ended.Add(within)))
	}
	conn.CatchUp(catchUp)
	if err := u.complete(gone); err != nil {
		return err
	}
	if err := u.seal(proven); err != nil {
		return err
	}
	return u.receiver.Publish()
}

// complete says what is wrong with the upload so far: ABOR, an error of the data connection, a
// client that is gone, fewer bytes than it announced.
func (u *upload) complete(gone bool) error {
	switch err := u.abortedBy(); {
	case err != nil:
		return err
	case u.broken != nil:
		return u.broken
	case u.ended.IsZero():
		return errNotOpened
	case gone:
		return errHungUp
	case u.received < u.announced:
		return &refusal{code: 426, text: fmt.Sprintf("fewer bytes than ALLO announced: %d of %d", u.received, u.announced)}
	}
	return nil
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

// uniqueName is what STOU begins with to find a name.
const uniqueName = "ftp"

// receive opens what an upload writes to, and says under which path it will be.
func (c *client) receive(view string, o files.UploadOptions) (receiver, string, error) {
	n, err := c.resolve(view)
	if err != nil {
		return nil, "", err
	}
	if o.Unique { // the path may be a directory, or a link to one
		if dir, derr := c.follow(view); derr == nil && c.isDirectory(dir) {
			n, view = lock.Name(path.Join(string(dir), uniqueName)), path.Join(view, uniqueName)
		}
	}
	if err := c.mayCreate(n, view); err != nil {
		return nil, "", err
	}
	title, err := c.mayWrite(n)
	if err != nil {
		return nil, "", err
	}
	if err := c.openInside(n); err != nil {
		return nil, "", err
	}
	up, err := c.server.tree.Upload(c.server.disk(n), o)
	if err != nil {
		return nil, "", err
	}
	if o.Unique { // only now the name is known
		n = c.server.named(up.Name())
		view = path.Join(path.Dir(view), n.Base())
		if err = c.mayCreate(n, view); err == nil {
			title, err = c.mayWrite(n)
		}
	}
	if err != nil {
		return nil, "", errors.Join(err, up.Discard())
	}
	return &staged{Upload: up, client: c, began: title}, view, nil
}

func (c *client) isDirectory(n lock.Name) bool {
	info, err := c.lstat(n)
	return err == nil && info.IsDir()
}

// staged is an upload to the tree, to a name that locks may protect by the time when it is published.
type staged struct {
	*files.Upload
	client *client
	began  lock.Title
	size   int64
	sum    string // SHA-256; "": not protected when the upload was complete
}

// Sync is the slow part: the digest of what a lock protects, too.
func (u *staged) Sync() error {
	if err := u.Upload.Sync(); err != nil || u.began.Lock == "" {
		return err
	}
	var err error
	u.size, u.sum, err = u.Upload.Sum()
	return err
}

// name is that by which clients know the file. A directory above may have been renamed since the upload began.
func (u *staged) name() lock.Name { return u.client.server.named(u.Upload.Name()) }

// Publish gives the file its name, and then waits for the disk, when nobody waits for the lock any more.
func (u *staged) Publish() error {
	if err := u.place(); err != nil {
		return err
	}
	return u.Last()
}

// place gives the file its name. A file whose name is a lock's gets it only while nobody holds that lock.
func (u *staged) place() error {
	n := u.name()
	if !u.client.isLockName(n) {
		return u.placeProtected()
	}
	return u.client.undisturbed([]lock.Name{n}, u.placeProtected)
}

// placeProtected gives the file its name while the hold stands under which the upload began.
func (u *staged) placeProtected() error {
	c := u.client
	if !c.locks.Concerned(u.name()) && u.began.Around == "" && !files.Hidden(string(u.name())) {
		return u.Place()
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
			if err := u.InPlace(); err != nil {
				return err
			}
			err := u.Place()
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
