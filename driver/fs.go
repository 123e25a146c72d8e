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

// The library executes a command by calling one of the methods in this file. The method executes the command and words the
// reply. Names are paths as the account sees them, absolute and cleaned. Errors have an answer in reply.go.
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

// Mkdir implements afero.Fs: MKD acquires the lock of that name, or makes a directory if no rule matches. MKD of a
// held lock waits if its rule or SITE WAIT is set so.
func (c *client) Mkdir(name string, _ os.FileMode) error {
	cmd := c.conn.Command()
	r, err := c.makeOrAcquire(cmd, name)
	return c.say(cmd, name, r, err)
}

// RemoveDir implements ftpserver.ClientDriverExtensionRemoveDir: RMD releases a lock, or removes an empty directory.
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

// Chtimes implements afero.Fs: MFMT, and MDTM with a time before the path. If a file has the whole parameter as its name, such as
// "20260101000000 report.csv", MDTM returns its time. A lock keeps its times.
func (c *client) Chtimes(name string, atime, mtime time.Time) error {
	if cmd := c.conn.Command(); cmd.Is("MDTM") {
		if info, err := c.stat(c.abs(cmd.Param)); err == nil {
			return c.say(cmd, "", modifiedAt(info), nil)
		}
	}
	err := c.change(name, func(n lock.Name) error {
		err := c.server.tree.Chtimes(string(n), atime, mtime)
		if info, serr := c.server.tree.Lstat(string(n)); serr == nil {
			mtime = info.ModTime() // ext4 stores the years 1901 to 2446, a time.Time in nanoseconds those up to 2262
		}
		return err
	})
	r := control.Reply{Code: 213, Text: "Modify=" + mtime.UTC().Format(timeValue) + "; " + name}
	return c.say(c.conn.Command(), name, r, c.worked(err))
}

// worked records a change of a file as a sign of life for the locks of the job. MKD and RMD are none: programs that remove old locks
// send them, too.
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

// Stat implements afero.Fs: CWD, RNFR, SIZE, MDTM, MLST, STAT. The library also calls it before HASH and AVBL. The result depends on
// the command.
func (c *client) Stat(name string) (os.FileInfo, error) {
	cmd := c.conn.Command()
	if !path.IsAbs(name) { // HASH passes the argument unchanged (handle_files.go:628)
		name = path.Join(c.context.Path(), name)
	}
	info, r, err := c.statFor(cmd, path.Clean(name))
	return info, c.say(cmd, name, r, err)
}

// GetHandle implements ftpserver.ClientDriverExtentionFileTransfer: STOR, APPE and STOU if flags allow writing, else RETR
// and the listings, which control has turned into RETR. offset is that of REST. The library also calls it for HASH.
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
	errNoData = errors.New("no data connection is allowed")
	errNoRnfr = errors.New("RNTO without RNFR")
)

// GetAvailableSpace implements ftpserver.ClientDriverExtensionAvailableSpace: AVBL, in bytes.
func (c *client) GetAvailableSpace(dir string) (int64, error) {
	space, err := c.space(dir)
	available := int64(min(space, math.MaxInt64))
	return available, c.say(c.conn.Command(), dir, control.Reply{Code: 213, Text: fmt.Sprint(available)}, err)
}

// space returns the free bytes of the file system of a directory or a lock.
func (c *client) space(view string) (uint64, error) {
	n, err := c.resolve(view)
	if err != nil {
		return 0, err
	}
	space, err := c.server.tree.Space(string(n))
	for isNotThere(err) && c.table().Held(n) { // a lock without a directory
		n = n.Parent()
		space, err = c.server.tree.Space(string(n))
	}
	return space, err
}

// AllocateSpace implements ftpserver.ClientDriverExtensionAllocate: ALLO. The next upload in binary type must have at least so many
// bytes.
func (c *client) AllocateSpace(size int) error {
	cmd := c.conn.Command()
	if space, err := c.space(c.context.Path()); err == nil && space < uint64(size) {
		return c.say(cmd, "", control.Reply{}, errNoSpace)
	}
	c.announced = int64(size)
	return c.say(cmd, "", control.Reply{Code: 200, Text: "announced"}, nil)
}

// MkdirAll is refused: it would return success for a lock that is held.
func (c *client) MkdirAll(string, os.FileMode) error { return fs.ErrPermission }

// RemoveAll is refused: no command removes directories with their content.
func (c *client) RemoveAll(string) error { return fs.ErrPermission }

// Chown is refused: files belong to the server's user.
func (c *client) Chown(string, int, int) error { return fs.ErrPermission }

// Create is refused, and so are Open and OpenFile: transfers use GetHandle, whose handles have timeouts and can be
// aborted.
func (c *client) Create(string) (afero.File, error) { return nil, fs.ErrPermission }

// Open is refused, see Create.
func (c *client) Open(string) (afero.File, error) { return nil, fs.ErrPermission }

// OpenFile is refused, see Create.
func (c *client) OpenFile(string, int, os.FileMode) (afero.File, error) {
	return nil, fs.ErrPermission
}
