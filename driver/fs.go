package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// The library executes a command by calling the methods of client in this file; each has its effect there, and says the
// words of the reply. All names are paths as the account sees them, absolute and cleaned; errors are made for replyFor.
var (
	_ afero.Fs                                      = (*client)(nil)
	_ ftpserver.ClientDriver                        = (*client)(nil)
	_ ftpserver.ClientDriverExtentionFileTransfer   = (*client)(nil)
	_ ftpserver.ClientDriverExtensionRemoveDir      = (*client)(nil)
	_ ftpserver.ClientDriverExtensionSite           = (*client)(nil)
	_ ftpserver.ClientDriverExtensionAvailableSpace = (*client)(nil)
	_ ftpserver.ClientDriverExtensionAllocate       = (*client)(nil)
)

// Name implements afero.Fs.
func (c *client) Name() string { return "ftplockd" }

// Mkdir implements afero.Fs: MKD takes the lock of that name, or makes a directory where no rule makes it a lock's. MKD of a
// held lock waits where its rule or SITE WAIT says so.
func (c *client) Mkdir(name string, _ os.FileMode) error {
	cmd := c.conn.Command()
	r, err := c.makeOrAcquire(cmd, name)
	return c.say(cmd, name, r, err)
}

// RemoveDir implements ftpserver.ClientDriverExtensionRemoveDir: RMD gives a lock back, or removes an empty directory.
func (c *client) RemoveDir(name string) error {
	cmd := c.conn.Command()
	r, err := c.removeOrRelease(name)
	return c.say(cmd, name, r, err)
}

// Remove implements afero.Fs: DELE removes a file, and nothing else.
func (c *client) Remove(name string) error {
	return c.say(c.conn.Command(), name, done(250, name, "removed"), c.worked(c.removeFile(name)))
}

// Rename implements afero.Fs: RNFR and RNTO. A file replaces a file in one step; nothing replaces a directory or takes the
// name of a lock.
func (c *client) Rename(from, to string) error {
	renaming := c.renaming
	c.renaming = ""
	if cmd := c.conn.Command(); cmd.Is("RNTO") && from != renaming { // the library goes on with it after a failure (handle_files.go:380)
		cmd.Say(control.Reply{Code: 503, Text: "RNFR comes before RNTO"})
		return errNoRnfr
	}
	return c.say(c.conn.Command(), to, done(250, to, "is the new name"), c.worked(c.rename(from, to)))
}

// Chtimes implements afero.Fs: MFMT, and MDTM with a time before the path. A file whose name is all that, such as
// "20260101000000 report.csv", is asked for its own time. A lock keeps its times.
func (c *client) Chtimes(name string, atime, mtime time.Time) error {
	if cmd := c.conn.Command(); cmd.Is("MDTM") {
		if info, err := c.stat(c.abs(cmd.Param)); err == nil {
			return c.say(cmd, "", modifiedAt(info), nil)
		}
	}
	err := c.change(name, func(n lock.Name) error {
		err := c.server.tree.Chtimes(string(n), atime, mtime)
		if info, serr := c.server.tree.Lstat(string(n)); serr == nil {
			mtime = info.ModTime() // ext4 knows the years 1901 to 2446, a time.Time in nanoseconds those up to 2262
		}
		return err
	})
	r := control.Reply{Code: 213, Text: "Modify=" + mtime.UTC().Format(timeValue) + "; " + name}
	return c.say(c.conn.Command(), name, r, c.worked(err))
}

// worked notes that the client has changed a file, which is a sign of life for the locks of its job. MKD and RMD do not count: a
// program that removes old locks sends them, too.
func (c *client) worked(err error) error {
	if err == nil {
		c.locks.Wrote()
	}
	return err
}

// Chmod implements afero.Fs: SITE CHMOD, for accounts that may. Only permission bits are set.
func (c *client) Chmod(name string, mode os.FileMode) error {
	err := error(errChmod)
	switch {
	case mode&^fs.ModePerm != 0:
		err = errModeBits
	case c.account.Chmod:
		err = c.change(name, func(n lock.Name) error {
			if err := c.stays(n); err != nil {
				return err
			}
			return c.server.tree.Chmod(string(n), mode)
		})
	}
	return c.say(c.conn.Command(), name, done(200, name, fmt.Sprintf("has mode %o", mode)), c.worked(err))
}

// Stat implements afero.Fs: CWD, RNFR, SIZE, MDTM, MLST, STAT, and what comes before HASH and AVBL. What the answer is about
// depends on the command.
func (c *client) Stat(name string) (os.FileInfo, error) {
	cmd := c.conn.Command()
	if !path.IsAbs(name) { // HASH hands on the argument as it is (handle_files.go:628)
		name = path.Join(c.context.Path(), name)
	}
	info, r, err := c.statFor(cmd, path.Clean(name))
	return info, c.say(cmd, name, r, err)
}

// GetHandle implements ftpserver.ClientDriverExtentionFileTransfer: STOR, APPE and STOU if flags allow writing, else RETR
// and the listings, which control has made a RETR. offset is that of REST. The library reads a file for HASH by it, too.
func (c *client) GetHandle(name string, flags int, offset int64) (ftpserver.FileTransfer, error) {
	cmd := c.conn.Command()
	if cmd.Verb != "" && !cmd.Transfers() {
		handle, err := c.toDigest(name)
		return handle, c.say(cmd, name, control.Reply{}, err)
	}
	if r := c.conn.DataConnection(); r.Code != 0 {
		cmd.Say(r)
		return nil, errNoData
	}
	t := c.newTransfer(cmd, name)
	opened := false
	defer func() { // after a panic, too
		if !opened {
			t.discard()
		}
	}()
	err := error(files.ErrOffset) // the library takes REST -1
	switch {
	case offset < 0:
	case flags&os.O_WRONLY != 0:
		t.works = c.locks.Wrote
		err = t.openUpload(flags&os.O_APPEND != 0, offset)
	default:
		err = t.openDownload(offset)
	}
	if err != nil {
		return nil, c.say(cmd, t.path(), control.Reply{}, err)
	}
	opened = true
	cmd.Opened() // until Close
	return t, nil
}

var (
	errNoData = errors.New("there may not be a data connection")
	errNoRnfr = errors.New("no RNFR before it")
)

// GetAvailableSpace implements ftpserver.ClientDriverExtensionAvailableSpace: AVBL, in bytes.
func (c *client) GetAvailableSpace(dir string) (int64, error) {
	space, err := c.space(dir)
	available := int64(min(space, math.MaxInt64))
	return available, c.say(c.conn.Command(), dir, control.Reply{Code: 213, Text: fmt.Sprint(available)}, err)
}

// space returns how many bytes there is room for in a directory, or in a lock.
func (c *client) space(view string) (uint64, error) {
	n, err := c.resolve(view)
	if err != nil {
		return 0, err
	}
	space, err := c.server.tree.Space(string(n))
	for isNotThere(err) && c.table().Held(n) { // nothing was put into it yet
		n = n.Parent()
		space, err = c.server.tree.Space(string(n))
	}
	return space, err
}

// AllocateSpace implements ftpserver.ClientDriverExtensionAllocate: ALLO. An upload in binary type must reach what is
// announced.
func (c *client) AllocateSpace(size int) error {
	cmd := c.conn.Command()
	if space, err := c.space(c.context.Path()); err == nil && space < uint64(size) {
		return c.say(cmd, "", control.Reply{}, errNoSpace)
	}
	c.announced = int64(size)
	return c.say(cmd, "", control.Reply{Code: 200, Text: "announced"}, nil)
}

// MkdirAll is refused: it would report an existing lock as taken.
func (c *client) MkdirAll(string, os.FileMode) error { return fs.ErrPermission }

// RemoveAll is refused: nothing in the tree is ever removed recursively.
func (c *client) RemoveAll(string) error { return fs.ErrPermission }

// Chown is refused: files belong to the server's user.
func (c *client) Chown(string, int, int) error { return fs.ErrPermission }

// Create is refused, and so are Open and OpenFile: content is transferred by GetHandle, which is paced and can be
// aborted.
func (c *client) Create(string) (afero.File, error) { return nil, fs.ErrPermission }

// Open is refused, see Create.
func (c *client) Open(string) (afero.File, error) { return nil, fs.ErrPermission }

// OpenFile is refused, see Create.
func (c *client) OpenFile(string, int, os.FileMode) (afero.File, error) {
	return nil, fs.ErrPermission
}
