package driver

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/ftplockd/ftplockd/files"
	"github.com/ftplockd/ftplockd/lock"
)

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
	if around, inside := c.lockAround(n); inside {
		return c.receiveNote(n, view, around, o)
	}
	if o.Owner != "" { // what was kept for it is gone on with, or, at 0, begun anew
		o.HasOffset = true
	}
	if err := c.mayReplace(n, view); err != nil {
		return nil, "", err
	}
	var title lock.Title
	if !o.Unique { // whose name is not known yet
		if title, err = c.mayWrite(n); err != nil {
			return nil, "", err
		}
		o.Old = c.old(n)
	}
	up, err := c.tree().Upload(string(n), o)
	if err != nil {
		return nil, "", err
	}
	if o.Unique { // only now the name is known
		n = lock.Name(up.Name())
		view = path.Join(path.Dir(view), n.Base())
	}
	return c.guard(n, view, up, title)
}

// kept says how much of an upload to that path was kept for the account. Where a file is published it says nothing: SIZE
// and APPE are about that file then, or its readers would be told of a wrong length.
func (c *client) kept(view string) (int64, bool) {
	if !c.account.Keep {
		return 0, false
	}
	n, err := c.resolve(view)
	if err != nil {
		return 0, false
	}
	if _, err := c.lstat(n); !errors.Is(err, fs.ErrNotExist) {
		return 0, false
	}
	return c.tree().Kept(string(n), c.account.Name)
}

// resuming has an upload go on with what was kept for the account: REST and STOR where they say, and APPE, with which
// curl resumes, at its end.
func (c *client) resuming(view string, o files.UploadOptions) files.UploadOptions {
	if !c.account.Keep || o.Unique {
		return o
	}
	if o.Append {
		size, ok := c.kept(view)
		if !ok {
			return o
		}
		o.Append, o.HasOffset, o.Offset = false, true, size
	}
	o.Owner = c.account.Name
	return o
}

// uniqueName is what STOU begins with to find a name.
const uniqueName = "ftp"

func (c *client) isDirectory(n lock.Name) bool {
	info, err := c.lstat(n)
	return err == nil && info.IsDir()
}

// mayReplace is mayCreate for uploads: a file that was there before a rule made its name a lock's may
// be written again.
func (c *client) mayReplace(n lock.Name, view string) error {
	err := c.mayCreate(n, view)
	if !errors.Is(err, errLockName) || !c.account.Write {
		return err
	}
	if info, serr := c.lstat(n); serr != nil || info.IsDir() {
		return err
	}
	return nil
}

// guard looks at the name that an upload will have, and by which title that is, if it began with none.
func (c *client) guard(n lock.Name, view string, up *files.Upload, title lock.Title) (receiver, string, error) {
	err := c.mayReplace(n, view)
	if err == nil && title.Lock == "" {
		title, err = c.mayWrite(n)
	}
	if err != nil {
		return nil, "", errors.Join(err, up.Discard())
	}
	return &staged{&protectedUpload{Upload: up, client: c, began: title}, c, view}, view, nil
}

// staged is an upload to the tree.
type staged struct {
	*protectedUpload
	client *client
	view   string
}

// Publish gives the file its name. A file whose name is a lock's is published only while nobody holds that
// lock and the file that it replaces is there; a directory above may have been renamed since the upload began.
func (u *staged) Publish() error {
	c, n := u.client, lock.Name(u.Name())
	if !c.isLockName(n) && !c.inLock(n) {
		return u.protectedUpload.Publish()
	}
	return c.undisturbed(c.session.context(), []lock.Name{n}, func() error {
		if err := c.mayReplace(n, u.view); err != nil {
			return err
		}
		return u.protectedUpload.Publish()
	})
}

// receiveNote opens a note in a held lock. Each is written whole: there is nothing to go on with.
func (c *client) receiveNote(n lock.Name, view string, around lock.Status, o files.UploadOptions) (receiver, string, error) {
	if o.Append || o.HasOffset || o.Unique {
		return nil, "", errWholeNote
	}
	if _, held := c.table().Get(n); held {
		return nil, "", errIsLock
	}
	h, err := c.noteHold(n, around)
	if err != nil {
		return nil, "", err
	}
	return &note{client: c, lock: around.Name, token: h.Token, name: n.Base(), timeout: o.Pace.Timeout}, view, nil
}

var errWholeNote = &refusal{text: "is a note in a lock: write it whole with STOR", is: fs.ErrPermission}

// receiver is what an upload writes to: a staged file, or a note.
type receiver interface {
	io.Writer
	io.ReaderFrom
	Received() int64 // bytes that came over the wire
	Sync() error     // the slow part of making it lasting
	Publish() error  // the quick part
	Discard() error
}

// note is what an upload into a lock is received in.
type note struct {
	text    bytes.Buffer
	client  *client
	lock    lock.Name
	token   lock.Token
	name    string
	timeout time.Duration
}

func (n *note) Received() int64 { return int64(n.text.Len()) }
func (n *note) Sync() error     { return nil }
func (n *note) Discard() error  { return nil }

// Publish writes the note if the hold that it is for still stands, and that waits for it.
func (n *note) Publish() error {
	c := n.client
	return c.table().Publish(c.session.context(), n.lock, n.token, func() error {
		return c.server.notes.put(n.token, n.name, n.text.Bytes())
	})
}

// Write refuses what no note holds, before it is all in memory.
func (n *note) Write(p []byte) (int, error) {
	if n.text.Len()+len(p) > maxNoteSize {
		return 0, errNoteTooLarge
	}
	return n.text.Write(p)
}

// ReadFrom reads the data connection, bounded by the pace like every other transfer.
func (n *note) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(writerOnly{n}, paced{r, n.timeout}.read(r))
}

// writerOnly hides ReadFrom.
type writerOnly struct{ io.Writer }
