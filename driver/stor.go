package driver

import (
	"crypto/tls"
	"io"
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
		t.began, err = t.client.mayChange(t.cmd, n)
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
