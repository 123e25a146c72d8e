package driver

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// For each command the library calls one of the methods in this file, which does the work and sets the reply. Paths are absolute, cleaned,
// and as the account sees them. reply.go has the reply to each error. The library calls no other method of afero.Fs. The others come from
// Server.nothing, and fail: MkdirAll of the tree would succeed for a held lock, RemoveAll would remove directories with their content, and a
// file from Open would have no timeout.
var (
	_ afero.Fs                                      = (*client)(nil)
	_ ftpserver.ClientDriver                        = (*client)(nil)
	_ ftpserver.ClientDriverExtentionFileTransfer   = (*client)(nil)
	_ ftpserver.ClientDriverExtensionRemoveDir      = (*client)(nil)
	_ ftpserver.ClientDriverExtensionSite           = (*client)(nil)
	_ ftpserver.ClientDriverExtensionAvailableSpace = (*client)(nil)
	_ ftpserver.ClientDriverExtensionAllocate       = (*client)(nil)
	_ ftpserver.ClientDriverExtensionHasher         = (*client)(nil)
)

// Mkdir implements afero.Fs: MKD acquires the lock of that name, or makes a directory if no rule matches the name. If the lock is held, MKD
// waits for it if its rule or SITE WAIT sets a time.
func (c *client) Mkdir(name string, _ os.FileMode) error {
	cmd := c.conn.Command()
	r, err := c.makeOrAcquire(cmd, name)
	return c.reply(cmd, name, r, err)
}

// RemoveDir implements ftpserver.ClientDriverExtensionRemoveDir: RMD releases a lock, or removes an empty directory.
func (c *client) RemoveDir(name string) error {
	cmd := c.conn.Command()
	r, err := c.removeOrRelease(cmd, name)
	return c.reply(cmd, name, r, err)
}

// Remove implements afero.Fs: DELE removes a file, and never a directory or a lock.
func (c *client) Remove(name string) error {
	return c.reply(c.conn.Command(), name, done(250, name, "removed"), c.noteChange(c.removeFile(name)))
}

// Rename implements afero.Fs: RNFR and RNTO. A file replaces a file in one step. Nothing replaces a directory, and no directory gets the
// name of a lock.
func (c *client) Rename(from, to string) error {
	renaming := c.renaming
	c.renaming = ""
	if cmd := c.conn.Command(); cmd.Is("RNTO") && from != renaming { // the library keeps the name of a failed RNFR (handle_files.go:380)
		cmd.Reply(control.Reply{Code: 503, Text: "RNFR comes before RNTO"})
		return errNoRnfr
	}
	source, info, err := c.prepareMove(from)
	if err != nil {
		return c.reply(c.conn.Command(), from, control.Reply{}, err)
	}
	return c.reply(c.conn.Command(), to, done(250, to, "is the new name"), c.noteChange(c.rename(source, info, to)))
}

// Chtimes implements afero.Fs: MFMT, and MDTM with a time before the path. If a file has the whole parameter as its name, such as
// "20260101000000 report.csv", MDTM returns its time. The times of a lock do not change.
func (c *client) Chtimes(name string, atime, mtime time.Time) error {
	cmd := c.conn.Command()
	if cmd.Is("MDTM") {
		if info, err := c.stat(c.abs(cmd.Param)); err == nil {
			return c.reply(cmd, "", modifiedAt(info), nil)
		}
	}
	err := c.setAttributes(name, func(n lock.Name) error {
		err := c.server.tree.Chtimes(string(n), atime, mtime)
		if info, serr := c.server.tree.Lstat(string(n)); serr == nil {
			mtime = info.ModTime() // a file system has its own range of times
		}
		return err
	})
	r := control.Reply{Code: 213, Text: "Modify=" + mtime.UTC().Format(timeValue) + "; " + name}
	return c.reply(cmd, name, r, c.noteChange(err))
}

// noteChange records a change of a file, if err is nil, as a sign of life for the locks of the job, and returns err. MKD and RMD are no signs of
// life: programs that remove old locks send them, too.
func (c *client) noteChange(err error) error {
	if err == nil {
		c.locks.Work()
	}
	return err
}

// Stat implements afero.Fs: CWD, RNFR, SIZE, MDTM, MLST, STAT. The library also calls it before HASH and AVBL. The result depends on
// the command.
func (c *client) Stat(name string) (os.FileInfo, error) {
	cmd := c.conn.Command()
	if !path.IsAbs(name) { // HASH passes its argument unchanged (handle_files.go:628)
		name = path.Join(c.libraryClient.Path(), name)
	}
	info, r, err := c.statFor(cmd, path.Clean(name))
	return info, c.reply(cmd, name, r, err)
}

// GetHandle implements ftpserver.ClientDriverExtentionFileTransfer: STOR, APPE and STOU if flags allow writing, else RETR
// and the listings, which control turns into RETR. offset is that of REST.
func (c *client) GetHandle(name string, flags int, offset int64) (ftpserver.FileTransfer, error) {
	cmd := c.conn.Command()
	t := c.newTransfer(cmd, name)
	uploads := flags&os.O_WRONLY != 0
	if uploads {
		t.takeAnnounced()
	}
	if r := c.conn.CheckDataConnection(); r.Code != 0 {
		cmd.Reply(r)
		return nil, errNoData
	}
	opened := false
	defer func() { // after a panic, too
		if !opened {
			t.discard()
		}
	}()
	var err error
	if uploads {
		t.signOfLife = t.noteReceived()
		err = t.openUpload(flags&os.O_APPEND != 0, offset)
	} else {
		err = t.openDownload(offset)
	}
	if err = cmp.Or(cmd.Cause(), err); err != nil {
		return nil, c.reply(cmd, t.view, control.Reply{}, err)
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
	return available, c.reply(c.conn.Command(), dir, control.Reply{Code: 213, Text: fmt.Sprint(available)}, err)
}

// AllocateSpace implements ftpserver.ClientDriverExtensionAllocate: ALLO. The next STOR, APPE or STOU in binary type must send that many
// bytes, or more.
func (c *client) AllocateSpace(size int) error {
	c.announced = int64(size)
	return c.reply(c.conn.Command(), "", control.Reply{Code: 200, Text: "announced"}, nil)
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
